package stacks

import (
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components"
	"talos-proxmox/components/plan"
	"talos-proxmox/stacks/files"
)

// WriteFiles writes the files that the configuration asks for (outputs.files) when the cluster is up, below root, the
// project's directory. A preview writes none. Nothing ever removes them but the operator.
func (d *Deployment) WriteFiles(ctx *pulumi.Context, root string) {
	wanted := d.Cluster.Plan.Outputs.Files
	if wanted == nil || ctx.DryRun() {
		return
	}

	c := d.Cluster
	contents := map[plan.File]pulumi.StringOutput{
		"kubeconfig": c.Kubeconfig, "talosconfig": c.Talosconfig,
		"control-plane.yaml": c.ControlPlaneConfiguration, "worker.yaml": c.WorkerConfiguration,
		"secrets.yaml": components.SecretsBundle(c.MachineSecrets),
	}

	for _, name := range wanted.Write {
		// None of them is of use before the cluster is.
		pulumi.All(contents[name], c.Kubeconfig).ApplyT(func(both []any) error {
			if err := files.Write(root, wanted.Dir, string(name), []byte(both[0].(string))); err != nil {
				return fmt.Errorf("outputs.files: %w", err)
			}

			return nil
		})
	}
}
