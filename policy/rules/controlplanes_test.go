package rules

import (
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"talos-proxmox/components/tokens"
)

// applied configures a node that others have made.
func applied(name, node string, change func(*machine.ConfigurationApplyArgs)) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error { return apply(ctx, name, pulumi.String(node), change) }
}

func apply(ctx *pulumi.Context, name string, node pulumi.StringInput, change func(*machine.ConfigurationApplyArgs),
	opts ...pulumi.ResourceOption,
) error {
	args := &machine.ConfigurationApplyArgs{
		Node: node, MachineConfigurationInput: rendered("worker", "home"),
		ClientConfiguration: pulumi.ToSecret(machine.ClientConfigurationArgs{
			CaCertificate: pulumi.String("x"), ClientCertificate: pulumi.String("x"), ClientKey: pulumi.String("x"),
		}.ToClientConfigurationOutput()).(machine.ClientConfigurationOutput),
	}
	if change != nil {
		change(args)
	}

	_, err := machine.NewConfigurationApply(ctx, name, args, opts...)

	return err
}

// rendered is as much of a machine configuration as the rules read.
func rendered(kind, cluster string) pulumi.StringInput {
	return pulumi.ToSecret(pulumi.String("machine:\n  type: " + kind + "\ncluster:\n  clusterName: " + cluster +
		"\n  controlPlane: {endpoint: \"https://10.0.0.11:6443\"}\n---\nkind: X\n")).(pulumi.StringOutput)
}

// member of a cluster that is made without the components of this project.
type node struct {
	name, host, kind, cluster string
	tags                      []string
	// after is whether the configuration waits for the VM; from is where its address comes from.
	after bool
	from  func(*vm.VirtualMachine) pulumi.StringInput
	vm    []func(*vm.VirtualMachineArgs)
}

func nodes(of ...node) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error {
		for _, n := range of {
			if err := n.register(ctx); err != nil {
				return err
			}
		}

		return nil
	}
}

func (n node) register(ctx *pulumi.Context, opts ...pulumi.ResourceOption) error {
	m, err := newMachine(ctx, n.name, append(n.vm, tags(n.tags...), func(a *vm.VirtualMachineArgs) {
		a.NodeName = pulumi.String(n.host)
	}), opts...)
	if err != nil || n.kind == "" {
		return err
	}

	address := pulumi.StringInput(pulumi.String("10.0.0.11"))
	if n.from != nil {
		address = n.from(m)
	}

	if n.after {
		opts = append(opts, pulumi.DependsOn([]pulumi.Resource{m}))
	}

	return apply(ctx, n.name+"-config", address, func(a *machine.ConfigurationApplyArgs) {
		a.MachineConfigurationInput = rendered(n.kind, n.cluster)
	}, opts...)
}

// inComponents registers nodes as this project does: each in a component of its own, below the cluster's.
func inComponents(cluster string, of ...node) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error {
		var above pulumi.ResourceState
		if err := ctx.RegisterComponentResourceV2(tokens.TalosCluster, cluster, pulumi.Map{}, &above); err != nil {
			return err
		}

		for _, n := range of {
			var component pulumi.ResourceState
			if err := ctx.RegisterComponentResourceV2("talos-proxmox:index:TalosNode", n.name+"-node", pulumi.Map{}, &component,
				pulumi.Parent(&above)); err != nil {
				return err
			}

			if err := n.register(ctx, pulumi.Parent(&component)); err != nil {
				return err
			}
		}

		return nil
	}
}

// reported is an address that the guest agent reports.
func reported(m *vm.VirtualMachine) pulumi.StringInput {
	return m.Ipv4Addresses.Index(pulumi.Int(1)).Index(pulumi.Int(0))
}

// given is an address that the VM was given by its cloud-init drive.
func given(m *vm.VirtualMachine) pulumi.StringInput {
	return m.Name.ApplyT(func(string) string { return "10.0.0.11" }).(pulumi.StringOutput)
}

// at12 is another address than that of the endpoint.
func at12(m *vm.VirtualMachine) pulumi.StringInput {
	return m.Name.ApplyT(func(string) string { return "10.0.0.12" }).(pulumi.StringOutput)
}

func agent(a *vm.VirtualMachineArgs) {
	a.Agent = vm.VirtualMachineAgentArgs{Enabled: pulumi.Bool(true)}
}

var control = []string{"controlplane", "atlas"}

var controlPlaneCases = []ruleCase{
	{
		rule: "control-plane-protection", name: "protected, or no control plane",
		program: all(machineOf("cp"), machineOf("worker", tags("worker"),
			func(a *vm.VirtualMachineArgs) { a.Protection = nil })),
	},
	{
		rule: "control-plane-protection", name: "neither protected nor said not to be",
		program: all(
			machineOf("a", func(a *vm.VirtualMachineArgs) { a.Protection = nil }),
			machineOf("b", tags("Control-Plane"), func(a *vm.VirtualMachineArgs) { a.Protection = pulumi.Bool(false) }),
		),
		want: []string{
			"a.protection: must be true for a control plane (given: false); set it to true",
			"b.protection: must be true for a control plane (given: false); set it to true",
		},
	},
	{
		rule: "control-plane-protection", name: "tags of one's own", settings: `{"controlPlaneTags": ["server"]}`,
		program: machineOf("a", tags("server"), func(a *vm.VirtualMachineArgs) { a.Protection = nil }),
		want:    []string{"a.protection: must be true for a control plane (given: false); set it to true"},
	},
	{
		rule: "control-planes-apart", name: "on two hosts, one alone, or workers",
		program: all(
			inComponents("atlas", node{name: "a", host: "pve1", tags: control}, node{name: "b", host: "pve1", tags: control},
				node{name: "c", host: "pve2", tags: control}),
			inComponents("single", node{name: "d", host: "pve1", tags: control},
				node{name: "e", host: "pve1", tags: []string{"worker"}}),
		),
	},
	{
		rule: "control-planes-apart", name: "a majority on one host, where quorum is to be kept",
		settings: `{"keepQuorum": true}`,
		program: inComponents("atlas", node{name: "a", host: "pve1", tags: control},
			node{name: "b", host: "pve1", tags: control},
			node{name: "c", host: "pve2", tags: control}),
		want: []string{"control planes of atlas: must be on several hosts (given: a, b of 3 on pve1); place them on " +
			"different hosts"},
	},
	{
		rule: "control-planes-apart", name: "on one host: by tags, by components, by configuration",
		program: all(
			inComponents("atlas", node{name: "a", host: "pve1", tags: control}, node{name: "b", host: "pve1", tags: control}),
			nodes(
				node{name: "c", host: "pve2", tags: control}, node{name: "d", host: "pve2", tags: control},
				node{name: "e", host: "pve1", kind: "controlplane", cluster: "home", after: true},
				node{name: "f", host: "pve1", kind: "init", cluster: "home", from: reported},
			),
		),
		want: []string{
			"control planes: must be on several hosts (given: c, d of 2 on pve2); place them on different hosts",
			"control planes of home: must be on several hosts (given: e, f of 2 on pve1); place them on different hosts",
			"control planes of atlas: must be on several hosts (given: a, b of 2 on pve1); place them on different hosts",
		},
	},
	{
		rule: "odd-control-planes", name: "one and three, in two clusters of one stack",
		program: all(
			nodes(node{name: "a", host: "pve1", kind: "controlplane", cluster: "home", after: true}),
			inComponents("atlas", node{name: "b", host: "pve1", tags: control}, node{name: "c", host: "pve1", tags: control},
				node{name: "d", host: "pve2", tags: control, kind: "controlplane", cluster: "atlas", after: true}),
		),
	},
	{
		rule: "odd-control-planes", name: "two, and two machines that are no VMs of the stack",
		program: all(
			inComponents("atlas", node{name: "a", host: "pve1", tags: control}, node{name: "b", host: "pve2", tags: control},
				node{name: "w", host: "pve2", tags: []string{"worker"}, kind: "worker", cluster: "atlas", after: true}),
			applied("metal-1", "10.0.0.1", func(a *machine.ConfigurationApplyArgs) {
				a.MachineConfigurationInput = rendered("controlplane", "metal")
			}),
			applied("metal-2", "10.0.0.2", func(a *machine.ConfigurationApplyArgs) {
				a.MachineConfigurationInput = rendered("controlplane", "metal")
			}),
		),
		want: []string{
			"control planes of metal: must be odd in number (given: 2: metal-1, metal-2); add or remove one",
			"control planes of atlas: must be odd in number (given: 2: a, b); add or remove one",
		},
	},
	{
		rule: "control-plane-addresses", name: "set, or given to the VM, or a worker's",
		program: nodes(
			node{
				name: "a", host: "pve1", kind: "controlplane", cluster: "home", after: true,
				vm: []func(*vm.VirtualMachineArgs){agent},
			},
			node{
				name: "b", host: "pve1", kind: "controlplane", cluster: "home", from: given,
				vm: []func(*vm.VirtualMachineArgs){agent, addressed("10.0.0.11/16", "dhcp")},
			},
			node{name: "c", host: "pve1", kind: "controlplane", cluster: "home", from: given},
			node{
				name: "d", host: "pve1", kind: "worker", cluster: "home", from: reported,
				vm: []func(*vm.VirtualMachineArgs){agent},
			},
		),
	},
	{
		rule: "control-plane-addresses", name: "read from the guest agent",
		program: nodes(
			node{
				name: "a", host: "pve1", kind: "controlplane", cluster: "home", from: reported,
				vm: []func(*vm.VirtualMachineArgs){agent},
			},
			node{
				name: "b", host: "pve1", tags: control, kind: "controlplane", cluster: "home", from: reported,
				vm: []func(*vm.VirtualMachineArgs){agent, addressed("dhcp", "dhcp")},
			},
		),
		want: []string{
			"b-config.node: must be an address that is known without the guest agent (given: an output of b); use a static " +
				"address or a DHCP reservation",
			"a-config.node: must be an address that is known without the guest agent (given: an output of a); use a static " +
				"address or a DHCP reservation",
		},
	},
	{
		rule: "control-plane-endpoint", name: "an address of none, or of the only one",
		program: nodes(
			node{name: "a", host: "pve1", kind: "controlplane", cluster: "single", after: true},
			node{name: "b", host: "pve1", kind: "controlplane", cluster: "several", from: at12},
			node{name: "c", host: "pve2", kind: "controlplane", cluster: "several", from: reported},
		),
	},
	{
		rule: "control-plane-endpoint", name: "an address of one of several",
		program: inComponents("atlas",
			node{name: "a", host: "pve1", kind: "controlplane", cluster: "atlas", after: true},
			node{name: "b", host: "pve2", kind: "controlplane", cluster: "atlas", from: at12},
			node{name: "w", host: "pve2", kind: "worker", cluster: "atlas", after: true},
		),
		want: []string{
			"control planes of atlas: must have an endpoint that is not one of their own addresses (given: " +
				"https://10.0.0.11:6443, of a); " +
				"use a virtual address or a DNS name",
		},
	},
}
