package components

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/client"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/cluster"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
)

// TalosClusterArgs describe one cluster.
type TalosClusterArgs struct {
	// Plan is every decision; see plan.New.
	Plan *plan.Plan
	// Templates are what Preflight found for the plan.
	Templates Templates
}

// TalosCluster is a Kubernetes cluster of Talos machines.
type TalosCluster struct {
	pulumi.ResourceState

	// Endpoint of the Kubernetes API.
	Endpoint pulumi.StringOutput `pulumi:"endpoint"`
	// Kubeconfig of an administrator, secret. It is there when the API answers.
	Kubeconfig pulumi.StringOutput `pulumi:"kubeconfig"`
	// Talosconfig of an administrator, secret.
	Talosconfig pulumi.StringOutput `pulumi:"talosconfig"`

	// Nodes in plan order, beside the plan's nodes.
	Nodes []*TalosNode
	// Plan that was carried out.
	Plan *plan.Plan
}

// NewTalosCluster makes a cluster: machines, their configuration, the bootstrap, and the credentials to use it. It needs
// a proxmoxve and a talos provider, which come with the options or from the parent.
func NewTalosCluster(ctx *pulumi.Context, name string, args *TalosClusterArgs, opts ...pulumi.ResourceOption) (*TalosCluster, error) {
	if args == nil || args.Plan == nil {
		return nil, errors.New("TalosCluster " + name + ": a plan is required")
	}

	p := args.Plan
	c := &TalosCluster{Plan: p}
	if err := ctx.RegisterComponentResourceV2(ClusterType, name, pulumi.Map{
		"cluster": pulumi.String(p.Cluster), "endpoint": pulumi.String(p.Endpoint),
		"talosVersion": pulumi.String(p.Talos), "kubernetesVersion": pulumi.String(p.Kubernetes),
	}, c, opts...); err != nil {
		return nil, err
	}

	if err := c.build(ctx, name, args.Templates); err != nil {
		return nil, err
	}

	return c, ctx.RegisterResourceOutputs(c, pulumi.Map{
		"endpoint": c.Endpoint, "kubeconfig": c.Kubeconfig, "talosconfig": c.Talosconfig,
	})
}

func (c *TalosCluster) build(ctx *pulumi.Context, name string, templates Templates) error {
	p := c.Plan
	child := pulumi.Parent(c)

	hooks, err := registerGates(ctx, name, p)
	if err != nil {
		return err
	}

	secrets, err := machine.NewSecrets(ctx, name+"-secrets", &machine.SecretsArgs{TalosVersion: pulumi.String(p.Talos)}, child,
		pulumi.AdditionalSecretOutputs([]string{"machineSecrets", "clientConfiguration"}),
		// An older version here would replace the identity of the cluster, a newer one change its contract.
		pulumi.IgnoreChanges([]string{"talosVersion"}))
	if err != nil {
		return err
	}

	credentials := secretClient(secrets.ClientConfiguration)

	var configured []pulumi.Resource // control planes

	for _, pool := range p.Pools {
		configuration, err := poolConfiguration(ctx, p, pool, secrets, child)
		if err != nil {
			return err
		}

		var after []pulumi.Resource
		if pool.Role == plan.Worker {
			after = configured
		}

		for _, n := range pool.Nodes {
			patches, err := machineconfig.NodePatches(p, n)
			if err != nil {
				return err
			}

			node, err := NewTalosNode(ctx, childName(name, n), &TalosNodeArgs{
				Node:      n,
				Template:  templates.of(n),
				Rebalance: p.Rebalance,
				Configuration: &NodeConfiguration{
					Client: credentials, Machine: configuration, Patches: patches, After: after,
					Hooks: []*pulumi.ResourceHook{hooks.answering},
				},
			}, child)
			if err != nil {
				return err
			}

			c.Nodes = append(c.Nodes, node)

			if n.Role == plan.ControlPlane {
				configured = append(configured, node.Applied)
			}
		}
	}

	c.Endpoint = pulumi.String(p.Endpoint).ToStringOutput()
	c.Talosconfig = talosconfig(ctx, p, credentials, child)

	return c.start(ctx, name, credentials, configured, hooks, child)
}

// childName is the name of a node's resources: its place in the cluster, not what the machine is called.
func childName(cluster string, n plan.Node) string {
	return cluster + "-" + n.Pool + "-" + strconv.Itoa(n.Ordinal)
}

// poolConfiguration is the machine configuration that the nodes of a pool share, secret.
func poolConfiguration(ctx *pulumi.Context, p *plan.Plan, pool plan.PlannedPool, secrets *machine.Secrets, opts ...pulumi.InvokeOption,
) (pulumi.StringOutput, error) {
	patches, err := machineconfig.Patches(p, pool)
	if err != nil {
		return pulumi.StringOutput{}, err
	}

	found := machine.GetConfigurationOutput(ctx, machine.GetConfigurationOutputArgs{
		ClusterName:       pulumi.String(p.Cluster),
		ClusterEndpoint:   pulumi.String(p.Endpoint),
		MachineType:       pulumi.String(pool.Role),
		MachineSecrets:    pulumi.ToSecret(secrets.MachineSecrets).(machine.MachineSecretsOutput),
		TalosVersion:      pulumi.String(p.Talos),
		KubernetesVersion: pulumi.String(strings.TrimPrefix(p.Kubernetes, "v")),
		ConfigPatches:     pulumi.ToStringArray(patches),
		Docs:              pulumi.Bool(false),
		Examples:          pulumi.Bool(false),
	}, opts...)

	return pulumi.ToSecret(found.MachineConfiguration()).(pulumi.StringOutput), nil
}

// talosconfig has the control planes as endpoints, never the cluster's: the Talos API must be there when Kubernetes is not.
func talosconfig(ctx *pulumi.Context, p *plan.Plan, c machine.ClientConfigurationOutput, opts ...pulumi.InvokeOption) pulumi.StringOutput {
	found := client.GetConfigurationOutput(ctx, client.GetConfigurationOutputArgs{
		ClusterName: pulumi.String(p.Cluster),
		ClientConfiguration: client.GetConfigurationClientConfigurationArgs{
			CaCertificate: c.CaCertificate(), ClientCertificate: c.ClientCertificate(), ClientKey: c.ClientKey(),
		},
		Endpoints: addresses(p.ControlPlanes()),
		Nodes:     addresses(p.Nodes()),
	}, opts...)

	return pulumi.ToSecret(found.TalosConfig()).(pulumi.StringOutput)
}

func addresses(nodes []plan.Node) pulumi.StringArray {
	known := pulumi.StringArray{}

	for _, n := range nodes {
		if n.Address.IsValid() {
			known = append(known, pulumi.String(n.Address.String()))
		}
	}

	return known
}

// start fetches the kubeconfig, once the cluster has been bootstrapped and its control plane is up. It waits for control
// planes only: a worker that does not come up must not keep the cluster from starting.
func (c *TalosCluster) start(ctx *pulumi.Context, name string, credentials machine.ClientConfigurationOutput,
	configured []pulumi.Resource, hooks gates, child pulumi.ResourceOption,
) error {
	first := c.Plan.ControlPlanes()[0]
	if !first.Address.IsValid() {
		return fmt.Errorf("the first control plane %s has no address to bootstrap it at", first.Name)
	}

	address := pulumi.String(first.Address.String())

	kubeconfig, err := cluster.NewKubeconfig(ctx, name+"-kubeconfig", &cluster.KubeconfigArgs{
		ClientConfiguration: cluster.KubeconfigClientConfigurationArgs{
			CaCertificate:     credentials.CaCertificate(),
			ClientCertificate: credentials.ClientCertificate(),
			ClientKey:         credentials.ClientKey(),
		},
		Node: address, Endpoint: address,
	}, child,
		pulumi.DependsOn(configured),
		// Control planes that are made again may be all there were: the gates then start the cluster anew.
		pulumi.ReplaceWith(configured),
		pulumi.AdditionalSecretOutputs([]string{"kubeconfigRaw", "kubernetesClientConfiguration", "clientConfiguration"}),
		pulumi.ResourceHooks(&pulumi.ResourceHookBinding{
			BeforeCreate: []*pulumi.ResourceHook{hooks.bootstrapped, hooks.ready},
		}))
	if err != nil {
		return err
	}

	c.Kubeconfig = pulumi.ToSecret(kubeconfig.KubeconfigRaw).(pulumi.StringOutput)

	return nil
}
