package components

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"google.golang.org/protobuf/proto"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// TestElsewhere: a VM that is not where the plan would make it now is spoken of, and left alone.
func TestElsewhere(t *testing.T) {
	s := builtSpec()
	s.Pools["worker"] = plan.Pool{Role: plan.Worker, Count: new(3), Addresses: "10.0.0.21-29"}
	p := planOf(t, s)

	vms := []proxmoxapi.VM{
		{ID: 401, Name: "c-control-1", Host: "a"},
		{ID: 501, Name: "c-worker-1", Host: "b"}, // planned on a
		{ID: 502, Name: "stranger", Host: "a"},   // not ours: reported elsewhere
	}

	want := []plan.Problem{{
		Path: "placement", Rule: "c-worker-1 is on host b, the plan would make it on a", Value: "rebalance: false",
		Remedy: "it stays there; set placement.rebalance to move it by migration",
	}}
	if diff := cmp.Diff(want, elsewhere(vms, p)); diff != "" {
		t.Error(diff)
	}

	p.Rebalance = true

	if moved := elsewhere(vms, p); moved != nil {
		t.Errorf("%v is spoken of and moved", moved)
	}
}

type counting struct {
	roomy
	asked int
}

func (c *counting) VMs(context.Context) ([]proxmoxapi.VM, error) {
	c.asked++

	return nil, nil
}

// TestAskOnce: the machines are listed once in a run, whatever they are looked through for.
func TestAskOnce(t *testing.T) {
	c := &counting{}

	if err := pulumi.RunErr(func(ctx *pulumi.Context) error {
		_, err := Preflight(ctx, planOf(t, builtSpec()), c, nobody{})

		return err
	}, pulumi.WithMocks("p", "s", &ignoredOf{})); err == nil {
		t.Fatal("there is no template")
	}

	if c.asked != 1 {
		t.Errorf("asked %d times", c.asked)
	}
}

// ignoredOf records what changes the VM's registration ignores, and whether it may migrate.
type ignoredOf struct {
	mu      sync.Mutex
	ignored []string
	migrate resource.PropertyValue
}

func (m *ignoredOf) NewResource(args pulumi.MockResourceArgs) (string, resource.PropertyMap, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if args.TypeToken == "proxmoxve:VM/virtualMachine:VirtualMachine" {
		m.ignored = proto.CloneOf(args.RegisterRPC).GetIgnoreChanges()
		m.migrate = args.Inputs["migrate"]
	}

	return args.Name, args.Inputs, nil
}

func (m *ignoredOf) Call(pulumi.MockCallArgs) (resource.PropertyMap, error) { return nil, nil }

// TestRebalance: the host is used when a VM is made and ignored afterwards; only a rebalance moves it, by migration.
func TestRebalance(t *testing.T) {
	n := planOf(t, builtSpec()).Nodes()[0]

	always := []string{
		"bios", "bootOrders", "clone", "description", "disks[0].aio", "disks[0].backup", "disks[0].cache", "disks[0].discard", "disks[0].fileFormat",
		"disks[0].iothread", "disks[0].replicate", "disks[0].speed", "disks[0].ssd", "efiDisk", "initialization", "machine", "nodeName", "scsiHardware",
		"smbios", "timeoutMigrate", "tpmState",
	}
	rebalanced := slices.DeleteFunc(slices.Clone(always), func(path string) bool { return path == "nodeName" })

	for rebalance, want := range map[bool][]string{false: always, true: rebalanced} {
		var m ignoredOf

		err := pulumi.RunErr(func(ctx *pulumi.Context) error {
			_, err := NewTalosNode(ctx, "n", &TalosNodeArgs{Node: n, Template: pulumi.Int(9000), Rebalance: rebalance})

			return err
		}, pulumi.WithMocks("p", "s", &m))
		if err != nil {
			t.Fatal(err)
		}

		if diff := cmp.Diff(want, m.ignored); diff != "" {
			t.Errorf("rebalance %v: %s", rebalance, diff)
		}

		if !m.migrate.IsBool() || m.migrate.BoolValue() != rebalance {
			t.Errorf("rebalance %v, migrate %v", rebalance, m.migrate)
		}
	}
}
