package stacks

import (
	"path"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components"
	"talos-proxmox/components/spec"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/stacks/shellword"
)

// nextSteps are the commands that an operator wants next, ready to be copied. Credentials that are not written as files
// are written by the first two. They run in the project's directory, whichever stack is selected.
func nextSteps(c *components.TalosCluster, stack string, controlPlanes pulumi.StringArrayOutput,
	nodes pulumi.ArrayOutput,
) pulumi.Map {
	found := pulumi.Map{}
	output := "pulumi stack output --stack " + shellword.Quote(stack) + " "

	place := func(name spec.File) string {
		if f := c.Plan.Outputs.Files; f != nil && slices.Contains(f.Write, name) {
			return shellword.Quote("./" + path.Join(f.Dir, string(name)))
		}

		found["get_"+string(name)] = pulumi.String("(umask 077; " + output + string(name) + " --show-secrets > " +
			string(name) + ")")

		return "./" + string(name)
	}

	kubeconfig, talosconfig := place(contract.OutputKubeconfig), place(contract.OutputTalosconfig)

	found["kubectl"] = c.Endpoint.ApplyT(func(endpoint string) string {
		return "kubectl --kubeconfig " + kubeconfig + " --server " + shellword.Quote(endpoint) + " get nodes -o wide"
	}).(pulumi.StringOutput)
	found["talosctl"] = pulumi.All(controlPlanes, nodes).ApplyT(func(both []any) string {
		var all []string

		for _, a := range both[1].([]any) {
			if a := a.(*string); a != nil {
				all = append(all, *a)
			}
		}

		return "talosctl --talosconfig " + talosconfig + " --endpoints " + strings.Join(both[0].([]string), ",") +
			" --nodes " +
			strings.Join(all, ",") + " version"
	}).(pulumi.StringOutput)
	found["contract"] = pulumi.String(output + contract.OutputContract + " --json")

	return found
}
