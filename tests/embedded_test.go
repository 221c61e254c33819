package tests

import (
	"regexp"
	"strings"
	"testing"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve"
	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	talosmachine "github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components"
	"talos-proxmox/components/planner"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/talos"
	"talos-proxmox/tests/rehearsal"
)

// TestIncompleteArgs: a constructor that lacks what an update needs refuses it before it registers anything.
func TestIncompleteArgs(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	before := r.Lab.World().Snapshot()

	var gpu components.TalosNodeArgs

	for _, n := range r.Plan.Nodes() {
		if n.GPU != nil {
			gpu = components.TalosNodeArgs{Node: n, Origin: "a test", Template: pulumi.Int(9000)}
		}
	}

	require.NotNil(t, gpu.Node.GPU)

	for _, c := range []struct {
		name, want string
		construct  func(ctx *pulumi.Context, by pulumi.ResourceOption) error
	}{
		{
			"pool", "GPUWorkerPool gpus: Device of gpu-1 is nil, but the resource mapping of its GPU is created " +
				"from it; set it to the device that proxmoxapi.Client.PCIDevices returns for 0000:01:00.0, or set " +
				"Exists if an earlier update created the mapping",
			func(ctx *pulumi.Context, by pulumi.ResourceOption) error {
				_, err := components.NewGPUWorkerPool(ctx, "gpus", &components.GPUWorkerPoolArgs{
					Pool: "gpu", Nodes: []components.GPUWorker{{Name: "gpu-1", Args: &gpu}},
				}, by)

				return err
			},
		},
		{
			"cluster", "TalosCluster dev: Preflight is nil, and an update needs the report of preflight.Run for the plan",
			func(ctx *pulumi.Context, by pulumi.ResourceOption) error {
				api, err := proxmoxapi.New(proxmoxapi.Access{Endpoint: r.Lab.Endpoint(), Insecure: true})
				if err != nil {
					return err
				}

				_, err = components.NewTalosCluster(ctx, "dev", &components.TalosClusterArgs{Plan: r.Plan, Proxmox: api}, by)

				return err
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := embedding(t, r, c.name, c.construct)

			assert.Contains(t, failUp(t, s), c.want)
			assert.Equal(t, before, r.Lab.World().Snapshot())

			for _, one := range state(t, s).Resources {
				assert.NotContains(t, string(one.Type), "talos-proxmox:", "%s was registered", one.URN)
			}
		})
	}
}

// TestNodeAlone: a node of its own values is created, seen again without a change, and deleted. A VM that is not the
// node's own is touched neither when the node is created nor when it is deleted.
func TestNodeAlone(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, reservedAddress))
	memory := 2048
	like := r.Plan.Nodes()[0]
	s := embedding(t, r, "alone", func(ctx *pulumi.Context, by pulumi.ResourceOption) error {
		n, err := planner.NewNode(planner.NodeArgs{
			Name: "edge-1", Host: like.Host, VMID: 770, Template: spec.TemplateRef(like.Template),
			Datastore: like.Disks[0].Datastore, MAC: like.MAC, Address: like.Address.String(),
			VM: spec.VMSpec{MemoryMiB: &memory},
		})
		if err != nil {
			return err
		}

		api, err := proxmoxapi.New(proxmoxapi.Access{
			Endpoint: r.Lab.Endpoint(), Insecure: true,
			TokenID: r.Lab.Credentials().TokenID, TokenSecret: r.Lab.Credentials().TokenSecret,
		})
		if err != nil {
			return err
		}

		secrets, err := talosmachine.NewSecrets(ctx, "edge", &talosmachine.SecretsArgs{TalosVersion: pulumi.String(r.Plan.Talos)})
		if err != nil {
			return err
		}

		_, err = components.NewTalosNode(ctx, "edge-1", &components.TalosNodeArgs{
			Node: n, Proxmox: api, Origin: "a test", Template: pulumi.Int(9000),
			Configuration: &components.NodeConfiguration{
				Client: secrets.ClientConfiguration, Patches: pulumi.StringArray{},
				Machine: talosmachine.GetConfigurationOutput(ctx, talosmachine.GetConfigurationOutputArgs{
					ClusterName: pulumi.String("edge"), ClusterEndpoint: pulumi.String("https://" + like.Address.String() + ":6443"),
					MachineType: pulumi.String("worker"), MachineSecrets: secrets.MachineSecrets,
					TalosVersion: secrets.TalosVersion, KubernetesVersion: pulumi.String("v1.34.2"),
				}).MachineConfiguration(),
			},
		}, by)

		return err
	})

	madeForeign(t, r, 770, map[string]string{"name": "payroll-db", "memory": "1024"})
	assert.Contains(t, failUp(t, s), `VMID 770, meant for "edge-1", is taken by "payroll-db"`)
	remove(t, r, 770)

	// The keys of the cluster go to no other machine that has the node's address.
	var impostor *talos.Impostor

	r.Lab.Journal().Plant(journal.Fault{
		Face: journal.Proxmox, Call: regexp.MustCompile(`^POST /nodes/[^/]+/qemu/770/status/start$`),
		Kind: journal.Interfere, Before: func(journal.Entry) { impostor = impostorAt(t, r, like.Name) },
	})
	assert.Contains(t, failUp(t, s), `it shows SMBIOS UUID "`+impostorUUID+`", and the VM of edge-1 has`)
	assert.False(t, impostor.Configured())
	assert.NotEmpty(t, impostor.Calls(), "it was never reached")
	impostor.Close()

	up(t, s)
	requireSettled(t, s)

	memory = 3072

	up(t, s)
	assert.Equal(t, "3072", vmConfig(t, r, "edge-1")["memory"])

	foreign(t, r, 770, map[string]string{"name": "payroll-db", "memory": "1024"})
	untouched(t, r, 770)

	out := &strings.Builder{}
	_, err := s.Destroy(t.Context(), optdestroy.RunProgram(true), optdestroy.ProgressStreams(out))
	require.Error(t, err)
	assert.Contains(t, out.String(), `VMID 770 is "payroll-db" on host pve`)
}

// embedding is a stack whose program constructs something with a provider for the lab.
func embedding(t *testing.T, r *rehearsal.Rehearsal, name string,
	construct func(*pulumi.Context, pulumi.ResourceOption) error,
) auto.Stack {
	t.Helper()

	s, err := r.Backend.InlineStack(t.Context(), "embedding", name, func(ctx *pulumi.Context) error {
		provider, err := proxmoxve.NewProvider(ctx, "proxmox", &proxmoxve.ProviderArgs{
			Endpoint: pulumi.String(r.Lab.Endpoint()), Insecure: pulumi.Bool(true),
			ApiToken: pulumi.String(r.Lab.Credentials().TokenID + "=" + r.Lab.Credentials().TokenSecret),
		})
		if err != nil {
			return err
		}

		return construct(ctx, pulumi.Providers(provider))
	}, nil)
	require.NoError(t, err)

	return s
}
