package preflight

import (
	"context"
	"net/netip"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/preflight/preflighttest"
	"talos-proxmox/components/proxmoxapi"
)

type countingLists struct {
	preflighttest.Healthy
	asked int
}

func (c *countingLists) VMs(context.Context) ([]proxmoxapi.VM, error) {
	c.asked++

	return nil, nil
}

// mocks are an engine that takes everything.
type mocks struct{}

func (mocks) NewResource(args pulumi.MockResourceArgs) (string, resource.PropertyMap, error) {
	return args.Name, args.Inputs, nil
}

func (mocks) Call(pulumi.MockCallArgs) (resource.PropertyMap, error) { return nil, nil }

// TestAskOnce: the machines are listed once in a run, whatever they are looked through for.
func TestAskOnce(t *testing.T) {
	c := &countingLists{}

	if err := pulumi.RunErr(func(ctx *pulumi.Context) error {
		_, err := Run(ctx, plantest.New(t, plantest.Spec()), c, quietNetwork{})

		return err
	}, pulumi.WithMocks("p", "s", mocks{})); err == nil {
		t.Fatal("there is no template")
	}

	if c.asked != 1 {
		t.Errorf("asked %d times", c.asked)
	}
}

// quietNetwork is a network in which no machine answers.
type quietNetwork struct{}

func (quietNetwork) Listening(context.Context, netip.Addr) int { return 0 }

// Extensions are all that tests name.
func (quietNetwork) Extensions(context.Context, string, string) ([]string, error) {
	return []string{
		"siderolabs/qemu-guest-agent", "siderolabs/tailscale", "siderolabs/iscsi-tools", "siderolabs/util-linux-tools",
		"siderolabs/nvidia-container-toolkit-lts", "siderolabs/nonfree-kmod-nvidia-lts",
	}, nil
}

// check runs all checks of a Proxmox VE for a plan.
func check(t *testing.T, p *plan.Plan, proxmox checks.Proxmox) (*Report, error) {
	t.Helper()

	s := newChecker(p, proxmox, quietNetwork{})
	err := s.run(t.Context())

	return s.report(), err
}
