// Package importcmd brings back a state that was lost, or a part of it. It writes a file for "pulumi import" with what
// the program wants, the state does not have, and Proxmox VE still has.
//
// What is in the file is what the program registers, for the file begins as the one that "pulumi preview --import-file"
// writes: URNs, parents and providers are the program's own. It is filled in with ids, and with the state itself,
// because the provider's own import leaves out what it does not read (a VM's SMBIOS UUID, its agent): the next update
// would change the VM for it, and restart it.
package importcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/tokens"
	"talos-proxmox/stacks/ops/state"
)

// Files are what Write has written.
type Files struct {
	// Import is the file for pulumi import.
	Import string
	// Secrets holds the cluster's secrets in plain text, for the import to read, in a directory of its own outside of the
	// project; empty when the import reads none, or a file that was given. It is of no use afterwards.
	Secrets string
}

// Discard removes the secrets, which nothing will read.
func (f Files) Discard() error {
	if f.Secrets == "" {
		return nil
	}

	return os.RemoveAll(filepath.Dir(f.Secrets))
}

// Write writes the import file. It changes neither the state nor anything else.
func Write(ctx context.Context, stack *state.Pulumi, o Options) (Files, error) {
	config, err := stack.Config(ctx)
	if err != nil {
		return Files{}, err
	}

	p, err := config.Plan()
	if err != nil {
		return Files{}, err
	}

	proxmox, err := proxmoxapi.New(config.Access())
	if err != nil {
		return Files{}, err
	}

	w, err := preview(ctx, stack.Stack)
	if err != nil {
		return Files{}, err
	}

	if len(w.Resources) == 0 {
		return Files{}, fmt.Errorf("the state of stack %s has all resources of the program: there is nothing to import",
			stack.Name())
	}

	cluster := &cluster{
		options: o, plan: p, proxmox: proxmox, talos: talos{talosapi.Secrets, talosapi.Founded},
	}
	f := finder{proxmox: proxmox, secrets: cluster.bundle, owner: []string{p.Cluster, string(p.Distribution)}}
	if p.Distribution == spec.DistributionK3s {
		f.identity, f.given = p.Cluster+tokens.IdentitySuffix, p.K3s.IdentityProvided
	}

	known := !slices.ContainsFunc(w.Resources,
		func(entry map[string]any) bool { return text(entry, "type") == tokens.Secrets })

	all, err := f.fill(ctx, w)
	if err == nil && known {
		// In memory only.
		var deployment apitype.UntypedDeployment
		if deployment, err = stack.ExportDecrypted(ctx); err == nil {
			err = cluster.compare(ctx, deployment)
		}
	}

	written := Files{Import: filepath.Join(o.Dir, stack.Name()+".import.json"), Secrets: cluster.written}

	err = errors.Join(report(o.Out, all), err)
	if err == nil {
		w.markImported()

		err = w.write(written.Import)
	}

	if err != nil {
		return Files{}, errors.Join(err, written.Discard())
	}

	return written, nil
}

// report prints what became of each resource.
func report(out io.Writer, all []outcome) error {
	slices.SortFunc(all, func(a, b outcome) int { return strings.Compare(a.name, b.name) })

	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)

	for _, o := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\n", o.verdict, o.name, o.remark)
	}

	return t.Flush()
}
