package stacks

import (
	"path"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components"
	"talos-proxmox/components/plan"
)

// hints are the commands that an operator wants next, ready to be copied. Credentials that are not written as files are
// written by the first two.
func hints(c *components.TalosCluster, controlPlanes pulumi.StringArrayOutput, nodes pulumi.ArrayOutput) pulumi.Map {
	found := pulumi.Map{}

	place := func(name plan.File) string {
		if f := c.Plan.Outputs.Files; f != nil && slices.Contains(f.Write, name) {
			return "./" + path.Join(f.Dir, string(name))
		}

		found["get_"+string(name)] = pulumi.String("(umask 077; pulumi stack output " + string(name) + " --show-secrets > " + string(name) + ")")

		return "./" + string(name)
	}

	kubeconfig, talosconfig := place(OutputKubeconfig), place(OutputTalosconfig)

	found["kubectl"] = pulumi.Sprintf("kubectl --kubeconfig %s --server %s get nodes -o wide", kubeconfig, c.Endpoint)
	found["talosctl"] = pulumi.All(controlPlanes, nodes).ApplyT(func(both []any) string {
		var all []string

		for _, a := range both[1].([]any) {
			if a := a.(*string); a != nil {
				all = append(all, *a)
			}
		}

		return "talosctl --talosconfig " + talosconfig + " --endpoints " + strings.Join(both[0].([]string), ",") + " --nodes " +
			strings.Join(all, ",") + " version"
	}).(pulumi.StringOutput)
	found["contract"] = pulumi.String("pulumi stack output " + OutputContract + " --json")

	return found
}
