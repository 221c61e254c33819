package components

import (
	"reflect"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/preflight"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// TestArguments holds the message of each argument that a constructor checks. Nothing is registered then.
func TestArguments(t *testing.T) {
	p := plantest.New(t, plantest.Spec())
	api, report := &proxmoxapi.Client{}, &preflight.Report{}
	tailnet, adopting, k3s, withToken := *p, *p, *p, *p
	tailnet.Tailscale, adopting.ImportSecrets = &spec.Tailscale{}, true
	k3s.K3s, withToken.K3s = &plan.PlannedK3s{}, &plan.PlannedK3s{TokenProvided: true}
	withIdentity := *p
	withIdentity.K3s = &plan.PlannedK3s{IdentityProvided: true}
	n := p.Nodes()[0]
	image, gpu := n, n
	image.Template = ""
	gpu.GPU = &plan.GPU{BDF: "0000:01:00.0"}

	talos := func(args *TalosClusterArgs) func(*pulumi.Context) error {
		return func(ctx *pulumi.Context) error { return second(NewTalosCluster(ctx, "c", args)) }
	}
	k3sCluster := func(args *K3sClusterArgs) func(*pulumi.Context) error {
		return func(ctx *pulumi.Context) error { return second(NewK3sCluster(ctx, "c", args)) }
	}
	node := func(args *TalosNodeArgs) func(*pulumi.Context) error {
		return func(ctx *pulumi.Context) error { return second(NewTalosNode(ctx, "n", args)) }
	}
	pool := func(args *GPUWorkerPoolArgs) func(*pulumi.Context) error {
		return func(ctx *pulumi.Context) error { return second(NewGPUWorkerPool(ctx, "g", args)) }
	}
	worker := func(w GPUWorker) func(*pulumi.Context) error {
		return pool(&GPUWorkerPoolArgs{Pool: "gpu", Nodes: []GPUWorker{w}})
	}

	for _, c := range []struct {
		want      string
		construct func(*pulumi.Context) error
	}{
		{"TalosCluster c: a plan and access to Proxmox VE are required", talos(nil)},
		{"TalosCluster c: a plan and access to Proxmox VE are required", talos(&TalosClusterArgs{Proxmox: api})},
		{"TalosCluster c: a plan and access to Proxmox VE are required", talos(&TalosClusterArgs{Plan: p})},
		{
			"TalosCluster c: Preflight is nil, and an update needs the report of preflight.Run for the plan",
			talos(&TalosClusterArgs{Plan: p, Proxmox: api}),
		},
		{
			"TalosCluster c: the plan has a tailnet, so TailscaleAuthKey is required",
			talos(&TalosClusterArgs{Plan: &tailnet, Preflight: report, Proxmox: api}),
		},
		{
			"TalosCluster c: MachineSecrets are required if, and only if, the plan imports existing ones",
			talos(&TalosClusterArgs{Plan: &adopting, Preflight: report, Proxmox: api}),
		},
		{
			"TalosCluster c: MachineSecrets are required if, and only if, the plan imports existing ones",
			talos(&TalosClusterArgs{Plan: p, Preflight: report, Proxmox: api, MachineSecrets: pulumi.String("x")}),
		},
		{"K3sCluster c: a plan and access to Proxmox VE are required", k3sCluster(nil)},
		{
			"K3sCluster c: Preflight is nil, and an update needs the report of preflight.Run for the plan",
			k3sCluster(&K3sClusterArgs{Plan: &k3s, Proxmox: api}),
		},
		{
			"K3sCluster c: the plan is not for K3s",
			k3sCluster(&K3sClusterArgs{Plan: p, Preflight: report, Proxmox: api}),
		},
		{
			"K3sCluster c: Token is required if, and only if, the plan has one given",
			k3sCluster(&K3sClusterArgs{Plan: &withToken, Preflight: report, Proxmox: api}),
		},
		{
			"K3sCluster c: Identity is required if, and only if, the plan has one given",
			k3sCluster(&K3sClusterArgs{Plan: &withIdentity, Preflight: report, Proxmox: api}),
		},
		{"TalosNode n: args are required", node(nil)},
		{"TalosNode n: Proxmox is required; set it to a *proxmoxapi.Client", node(&TalosNodeArgs{Node: n})},
		{
			"TalosNode n: Node needs a name, a host, a VMID, a disk and a network interface; make it with planner.NewNode",
			node(&TalosNodeArgs{Proxmox: api}),
		},
		{
			"TalosNode n: the VMID of the template goes with the name of one",
			node(&TalosNodeArgs{Proxmox: api, Node: n}),
		},
		{
			"TalosNode n: Image is required, for the node has no template",
			node(&TalosNodeArgs{Proxmox: api, Node: image}),
		},
		{
			"TalosNode n: a configuration cannot be applied without an address",
			node(&TalosNodeArgs{
				Proxmox: api, Node: withoutAddress(n), Template: pulumi.Int(9000), Configuration: &NodeConfiguration{},
			}),
		},
		{
			"TalosNode n: Configuration needs Client and Machine",
			node(&TalosNodeArgs{Proxmox: api, Node: n, Template: pulumi.Int(9000), Configuration: &NodeConfiguration{}}),
		},
		{"GPUWorkerPool g: the name of the pool is required", pool(nil)},
		{"GPUWorkerPool g: the name of the pool is required", pool(&GPUWorkerPoolArgs{})},
		{"GPUWorkerPool g: each node needs a name and a GPU", worker(GPUWorker{Name: "g-1"})},
		{
			"GPUWorkerPool g: each node needs a name and a GPU",
			worker(GPUWorker{Name: "g-1", Args: &TalosNodeArgs{Proxmox: api, Node: n}}),
		},
		{
			"GPUWorkerPool g: Device of g-1 is nil, but the resource mapping of its GPU is created from it; set it " +
				"to the device that proxmoxapi.Client.PCIDevices returns for 0000:01:00.0, or set Exists if an " +
				"earlier update created the mapping",
			worker(GPUWorker{Name: "g-1", Args: &TalosNodeArgs{Proxmox: api, Node: gpu}}),
		},
		{
			"GPUWorkerPool g: TalosNode g-1: Proxmox is required; set it to a *proxmoxapi.Client",
			worker(GPUWorker{Name: "g-1", Args: &TalosNodeArgs{Node: gpu}, Exists: true}),
		},
		{
			"GPUWorkerPool g: g-1 and g-2 have the same name ",
			pool(&GPUWorkerPoolArgs{Pool: "gpu", Nodes: []GPUWorker{
				{Name: "g-1", Args: &TalosNodeArgs{Proxmox: api, Node: gpu, Template: pulumi.Int(9000)}, Exists: true},
				{Name: "g-2", Args: &TalosNodeArgs{Proxmox: api, Node: gpu, Template: pulumi.Int(9000)}, Exists: true},
			}}),
		},
	} {
		t.Run(c.want, func(t *testing.T) {
			err := pulumi.RunErr(c.construct, pulumi.WithMocks("p", "s", refusing{t}))

			require.ErrorContains(t, err, c.want)
		})
	}
}

func second(_ any, err error) error { return err }

func withoutAddress(n plan.Node) plan.Node {
	n.Address = plan.Node{}.Address

	return n
}

// refusing is a Pulumi mock that takes nothing.
type refusing struct{ *testing.T }

func (m refusing) NewResource(args pulumi.MockResourceArgs) (string, resource.PropertyMap, error) {
	m.Errorf("%s was registered", args.Name)

	return "", nil, nil
}

func (m refusing) Call(args pulumi.MockCallArgs) (resource.PropertyMap, error) {
	m.Errorf("%s was called", args.Token)

	return nil, nil
}

// TestOutputFields: each output of a component has the name that it is registered with, and no two have the same.
func TestOutputFields(t *testing.T) {
	for _, component := range []any{TalosCluster{}, TalosNode{}, GPUWorkerPool{}, K3sCluster{}, K3sNode{}} {
		kind := reflect.TypeOf(component)
		names := map[string]bool{}

		for _, field := range reflect.VisibleFields(kind) {
			if !field.IsExported() || len(field.Index) > 1 || !field.Type.Implements(reflect.TypeFor[pulumi.Output]()) {
				continue
			}

			name := field.Tag.Get("pulumi")
			assert.NotEmpty(t, name, "%s.%s has no tag", kind.Name(), field.Name)
			assert.False(t, names[name], "%s has two outputs %q", kind.Name(), name)

			names[name] = true
		}

		assert.NotEmpty(t, names, "%s has no outputs", kind.Name())
	}
}
