package components

import (
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// talosConfiguration renders the machine configuration of the nodes of a cluster.
type talosConfiguration struct {
	ctx     *pulumi.Context
	plan    *plan.Plan
	secrets machineSecrets
	// endpoint of the Kubernetes API.
	endpoint pulumi.StringOutput
	// tailscaleKey lets nodes join the tailnet, manifests are those with secrets, and logins those of registries; nil:
	// none.
	tailscaleKey, manifests, logins pulumi.StringInput
	// invoke makes functions use the cluster's providers.
	invoke pulumi.InvokeOption
}

// ofPool is the configuration that the nodes of a pool share, secret.
func (c *talosConfiguration) ofPool(pool plan.PlannedPool) pulumi.StringOutput {
	own := c.rendered(func(p *plan.Plan) ([]string, error) { return machineconfig.Patches(p, pool) })

	patches := pulumi.All(c.secretPatches(pool), own, c.registryLogins()).ApplyT(func(all []any) []string {
		return slices.Concat(all[0].([]string), all[2].([]string), all[1].([]string))
	}).(pulumi.StringArrayOutput)

	found := machine.GetConfigurationOutput(c.ctx, machine.GetConfigurationOutputArgs{
		ClusterName:       pulumi.String(c.plan.Cluster),
		ClusterEndpoint:   c.endpoint,
		MachineType:       pulumi.String(pool.Role),
		MachineSecrets:    c.secrets.machine,
		TalosVersion:      c.secrets.contract,
		KubernetesVersion: pulumi.String(strings.TrimPrefix(c.plan.Kubernetes, "v")),
		ConfigPatches:     patches,
		Docs:              pulumi.Bool(false),
		Examples:          pulumi.Bool(false),
	}, c.invoke)

	return pulumi.ToSecret(found.MachineConfiguration()).(pulumi.StringOutput)
}

// secretPatches are those of a pool that hold secrets, but for logins of registries.
func (c *talosConfiguration) secretPatches(pool plan.PlannedPool) pulumi.StringArray {
	var patches pulumi.StringArray

	if pool.Tailnet {
		patches = append(patches, pulumi.ToSecret(c.tailscaleKey).(pulumi.StringOutput).ApplyT(
			func(key string) (string, error) { return machineconfig.Tailscale(c.plan, pool, key) }).(pulumi.StringOutput))
	}

	if pool.Role != spec.RoleControlPlane {
		return patches
	}

	patches = append(patches, etcdEncryption(c.secrets.machine))

	if c.manifests != nil {
		patches = append(patches, pulumi.ToSecret(c.manifests).(pulumi.StringOutput).ApplyT(
			func(text string) (string, error) { return machineconfig.SecretManifests(pool, text) }).(pulumi.StringOutput))
	}

	return patches
}

// registryLogins are the patches that log in to registries.
func (c *talosConfiguration) registryLogins() pulumi.StringArrayOutput {
	if c.logins == nil {
		return pulumi.StringArray{}.ToStringArrayOutput()
	}

	return pulumi.All(c.secrets.contract, pulumi.ToSecret(c.logins)).ApplyT(func(all []any) ([]string, error) {
		return machineconfig.RegistryLogins(c.plan.WithContract(all[0].(string)), all[1].(string))
	}).(pulumi.StringArrayOutput)
}

// ofNode are the patches with what is particular to a node.
func (c *talosConfiguration) ofNode(n plan.Node) pulumi.StringArrayOutput {
	return c.rendered(func(p *plan.Plan) ([]string, error) { return machineconfig.NodePatches(p, n) })
}

// rendered are patches, written with the defaults of the version that the cluster was made with.
func (c *talosConfiguration) rendered(render func(*plan.Plan) ([]string, error)) pulumi.StringArrayOutput {
	return c.secrets.contract.ApplyT(func(contract string) ([]string, error) {
		return render(c.plan.WithContract(contract))
	}).(pulumi.StringArrayOutput)
}
