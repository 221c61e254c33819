package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"talos-proxmox/tests/lab/timeline"
	"talos-proxmox/tests/rehearsal"
)

// printNodes shows the nodes as the lab has them, not as the plan wants them.
func printNodes(out io.Writer, r *rehearsal.Rehearsal) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tROLE\tHOST\tVMID\tMAC\tADDRESS\tTALOS\tSTATE")

	for _, n := range r.Nodes() {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", n.Name, n.Role, n.Host, n.VMID, n.MAC, n.Address, n.Talos, n.State)
	}

	w.Flush() //nolint:errcheck // the screen
	fmt.Fprintln(out)
}

// printTimes shows how long it took against how long it had to take.
func printTimes(out io.Writer, t timeline.Report) {
	if t.CriticalPath == 0 {
		fmt.Fprintf(out, "took %s from the first request to the last\n\n", round(t.Wall))

		return
	}

	var chain []string
	for _, s := range t.Chain {
		chain = append(chain, fmt.Sprintf("%s %s", s.Name, round(s.Duration)))
	}

	fmt.Fprintf(out, "critical path %s (%s)\n", round(t.CriticalPath), strings.Join(chain, ", "))
	fmt.Fprintf(out, "took %s from the first request to the last: %.2f of it\n\n", round(t.Wall), t.Wall.Seconds()/t.CriticalPath.Seconds())
}

// printHints shows how to look around while the lab is there.
func printHints(out io.Writer, r *rehearsal.Rehearsal, files rehearsal.Files, shell string) {
	fmt.Fprintf(out, `The lab keeps running until you press Ctrl-C. Look around:

  kubectl --kubeconfig %[1]s get nodes -o wide
  talosctl --talosconfig %[2]s version
  talosctl --talosconfig %[2]s services
  (%[3]s stack output --stack %[4]s)

`, files.Kubeconfig, files.Talosconfig, shell, r.Stack.Name())
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
