package preflight

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/preflight/preflighttest"
	"talos-proxmox/components/proxmoxapi"
)

type countingLists struct {
	preflighttest.Healthy
	asked int
	err   error
}

func (c *countingLists) VMs(context.Context) ([]proxmoxapi.VM, error) {
	c.asked++

	return nil, c.err
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

// brokenFiles is a Proxmox VE whose datastores cannot be read, and a host of which is off.
type brokenFiles struct{ preflighttest.ManyHosts }

func (*brokenFiles) Hosts(context.Context) ([]proxmoxapi.Host, error) {
	return []proxmoxapi.Host{{Name: "a", Online: true}, {Name: "b"}}, nil
}

func (*brokenFiles) Files(context.Context, string, string) (map[string]int64, error) {
	return nil, errors.New("500 no such file or directory")
}

// TestKeepProblems: what was found before a check fails is said with its error.
func TestKeepProblems(t *testing.T) {
	_, err := check(t, plantest.ISO(t), &brokenFiles{})
	require.EqualError(t, err, `500 no such file or directory
the configuration has 1 problem:
  - proxmox.hosts: is offline, but new nodes are planned on it (given: b); start it, or take it out`)

	for _, dry := range []bool{true, false} {
		err := pulumi.RunErr(func(ctx *pulumi.Context) error {
			_, err := Run(ctx, plantest.New(t, plantest.Spec()), &countingLists{err: proxmoxapi.ErrUnreachable}, quietNetwork{})

			return err
		}, pulumi.WithMocks("p", "s", mocks{}), func(i *pulumi.RunInfo) { i.DryRun = dry })
		if dry {
			require.NoError(t, err, "a preview continues")
		} else {
			require.ErrorContains(t, err, "proxmox.endpoint: ")
		}
	}
}

// unknownHost is a Proxmox VE that has a host of another name, and knows nothing of the one of the plan.
type unknownHost struct{ cloudHost }

func (unknownHost) Hosts(context.Context) ([]proxmoxapi.Host, error) {
	return []proxmoxapi.Host{{Name: "PVE", Online: true}}, nil
}

func (unknownHost) Stores(context.Context, string) (map[string]proxmoxapi.Store, error) {
	return nil, errors.New("500 no such cluster node")
}

// TestUnknownHost: of a host that does not exist, nothing is asked, and nothing else is said.
func TestUnknownHost(t *testing.T) {
	p := plantest.K3s(t)
	template := proxmoxapi.VM{ID: 9000, Name: "ubuntu", Host: "PVE", Template: true}

	_, err := check(t, p, unknownHost{cloudHost{FixedVMs: preflighttest.FixedVMs{Listed: []proxmoxapi.VM{template}}}})
	require.EqualError(t, err, "the configuration has 1 problem:\n  - proxmox.hosts: not found in this Proxmox VE, "+
		"which has the hosts PVE (given: "+p.Nodes()[0].Host+"); correct the name; case matters")
}

// quietNetwork is a network in which no machine answers.
type quietNetwork struct{}

func (quietNetwork) Listening(context.Context, netip.Addr) int { return 0 }

func (quietNetwork) Resolves(context.Context, string) bool { return true }

func (quietNetwork) Source(context.Context, netip.Addr) netip.Addr { return netip.Addr{} }

// Extensions are all that tests name.
func (quietNetwork) Extensions(context.Context, string, string) ([]string, error) {
	return []string{
		"siderolabs/qemu-guest-agent", "siderolabs/tailscale", "siderolabs/iscsi-tools", "siderolabs/util-linux-tools",
		"siderolabs/nvidia-container-toolkit-lts", "siderolabs/nonfree-kmod-nvidia-lts",
	}, nil
}

// problems runs all checks, and returns what they find and why they ended early.
func (c *checker) problems(ctx context.Context) error {
	stopped := c.run(ctx)

	return join(c.Problems.Unique().Err(), stopped)
}

// check runs all checks of a Proxmox VE for a plan.
func check(t *testing.T, p *plan.Plan, proxmox checks.Proxmox) (*Report, error) {
	t.Helper()

	s := newChecker(p, proxmox, quietNetwork{})
	err := s.problems(t.Context())

	return s.report(), err
}
