package components

import (
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"google.golang.org/protobuf/proto"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/proxmoxapi"
)

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
	n := plantest.New(t, plantest.Spec()).Nodes()[0]

	always := []string{
		"bios", "bootOrders", "clone", "cpu.units", "description", "disks[0].aio", "disks[0].backup", "disks[0].cache",
		"disks[0].discard",
		"disks[0].fileFormat",
		"disks[0].iothread", "disks[0].replicate", "disks[0].speed", "disks[0].ssd", "efiDisk", "initialization", "machine",
		"nodeName", "scsiHardware",
		"smbios", "timeoutMigrate", "tpmState",
	}
	rebalanced := slices.DeleteFunc(slices.Clone(always), func(path string) bool { return path == "nodeName" })

	for rebalance, want := range map[bool][]string{false: always, true: rebalanced} {
		var m ignoredOf

		err := pulumi.RunErr(func(ctx *pulumi.Context) error {
			_, err := NewTalosNode(ctx, "n", &TalosNodeArgs{
				Node: n, Proxmox: &proxmoxapi.Client{}, Template: pulumi.Int(9000), Rebalance: rebalance,
			})

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
