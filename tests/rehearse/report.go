package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"talos-proxmox/tests/lab/timeline"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// printNodes shows the nodes as the lab has them, not as the plan wants them.
func printNodes(out io.Writer, r *rehearsal.Rehearsal) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tROLE\tHOST\tVMID\tMAC\tADDRESS\tRUNS\tSTATE")

	for _, n := range r.Nodes() {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", n.Name, n.Role, n.Host, n.VMID, n.MAC, n.Address,
			cmp.Or(n.Talos, n.K3s), n.State)
	}

	w.Flush() //nolint:errcheck // the screen
	fmt.Fprintln(out)
}

// printDownloads shows what each host fetched.
func printDownloads(out io.Writer, downloads []world.Download) {
	bytes, files := map[string]int64{}, map[string]int{}

	for _, d := range downloads {
		bytes[d.Host] += d.Bytes
		files[d.Host]++
	}

	for _, host := range slices.Sorted(maps.Keys(bytes)) {
		fmt.Fprintf(out, "host %s downloaded %d MiB; files: %d\n", host, bytes[host]/world.MiB, files[host])
	}
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
	fmt.Fprintf(out, "took %s from the first request to the last: %.2f of it\n\n", round(t.Wall),
		t.Wall.Seconds()/t.CriticalPath.Seconds())
}

// printHints shows how to look around while the lab is there.
func printHints(out io.Writer, r *rehearsal.Rehearsal, files rehearsal.Files, shell string) {
	fmt.Fprint(out, "The lab keeps running until you press Ctrl-C. Look around:\n\n")

	if files.Kubeconfig != "" {
		fmt.Fprintf(out, "  kubectl --kubeconfig %s get nodes -o wide\n", files.Kubeconfig)
	}

	if files.Talosconfig != "" {
		fmt.Fprintf(out, "  talosctl --talosconfig %[1]s version\n  talosctl --talosconfig %[1]s services\n",
			files.Talosconfig)
	}

	fmt.Fprintf(out, "  (%s stack output --stack %s)\n\n", shell, r.Stack.Name())
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
