package stacks

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/stacks/files"
)

// WriteFiles writes the files that the configuration asks for (outputs.files) when the cluster is up, below root, the
// project's directory. A preview writes none. Nothing ever removes them but the operator. The output kubeconfig fails
// with what could not be written: call it before Export.
func (d *Deployment) WriteFiles(ctx *pulumi.Context, root string) {
	p := d.plan()

	wanted := p.Outputs.Files
	if wanted == nil || ctx.DryRun() {
		return
	}

	owner, contents := filesOwner(ctx, p), d.fileContents()

	// None of them is of use before the cluster is.
	all := []any{contents["kubeconfig"]}
	for _, name := range wanted.Write {
		all = append(all, contents[name])
	}

	d.Outputs[contract.OutputKubeconfig] = pulumi.ToSecret(pulumi.All(all...).ApplyT(func(texts []any) (string, error) {
		written := map[string]string{}
		for i, name := range wanted.Write {
			written[string(name)] = texts[i+1].(string)
		}

		// A warning that is not shown must not fail what it warns of.
		warn := func(message string) { _ = ctx.Log.Warn("outputs.files: "+message, nil) }

		if err := files.Claim(root, wanted.Dir, owner, written, warn); err != nil {
			return "", filesError(wanted.Dir, err)
		}

		var errs []error

		for _, name := range slices.Sorted(maps.Keys(written)) {
			if err := files.Write(root, wanted.Dir, name, []byte(written[name])); err != nil {
				errs = append(errs, fmt.Errorf("outputs.files: %w", err))
			}
		}

		return texts[0].(string), errors.Join(errs...)
	}))
}

// plan is that of the cluster.
func (d *Deployment) plan() *plan.Plan {
	if d.K3s != nil {
		return d.K3s.Plan
	}

	return d.Cluster.Plan
}

// fileContents are the files that the cluster can leave.
func (d *Deployment) fileContents() map[spec.File]pulumi.StringOutput {
	if d.K3s != nil {
		return map[spec.File]pulumi.StringOutput{"kubeconfig": d.K3s.Kubeconfig}
	}

	c := d.Cluster

	return map[spec.File]pulumi.StringOutput{
		"kubeconfig": c.Kubeconfig, "talosconfig": c.Talosconfig,
		"control-plane.yaml": c.ControlPlaneConfiguration, "worker.yaml": c.WorkerConfiguration,
		"secrets.yaml": components.SecretsBundle(c.MachineSecrets),
	}
}
