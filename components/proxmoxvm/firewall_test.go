package proxmoxvm

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/luthermonson/go-proxmox"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// ruled is a Proxmox VE with a VM that has firewall rules.
type ruled struct {
	Proxmox

	rules []proxmox.FirewallRule
	err   error
}

func (r ruled) Find(_ context.Context, vmid int) (proxmoxapi.VM, bool, error) {
	return proxmoxapi.VM{ID: vmid, Name: "a", Host: "pve"}, vmid == 401, r.err
}

func (r ruled) FirewallRules(context.Context, proxmoxapi.VM) ([]proxmox.FirewallRule, error) {
	return r.rules, nil
}

// TestCheckRules: rules of others are left alone where the provider would write by position, and nowhere else.
func TestCheckRules(t *testing.T) {
	p := &plan.Plan{Pools: []plan.PlannedPool{{
		Nodes: []plan.Node{{Name: "a", VMID: 401}},
		Ingress: []plan.Ingress{{
			Name: "apid", Protocol: spec.ProtocolTCP, Ports: []plan.Ports{{First: 50000, Last: 50000}},
			From: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")},
		}},
	}}}
	own := proxmox.FirewallRule{Type: "in", Action: "ACCEPT", Proto: "tcp", Dport: "50000", Comment: "apid", Pos: 1}
	theirs := proxmox.FirewallRule{Type: "in", Action: "DROP", Proto: "tcp", Dport: "22", Comment: "mine"}
	inputs := func(vmid int, port string) resource.PropertyMap {
		return resource.NewPropertyMapFromMap(map[string]any{"vmId": vmid, "rules": []any{map[string]any{
			"comment": "apid", "proto": "tcp", "source": "10.0.0.0/24", "dport": port, "type": "in", "action": "ACCEPT",
		}}})
	}
	planned, former := inputs(401, "50000"), inputs(401, "443")
	both := []proxmox.FirewallRule{theirs, own}

	const refused = `has a firewall rule that this program has not written, at position 0 (in DROP tcp 22 "mine")`

	for name, c := range map[string]struct {
		old, now resource.PropertyMap
		found    ruled
		dry      bool
		replace  []string
		want     string
	}{
		"changed":               {old: planned, now: planned, found: ruled{rules: both}, want: refused},
		"changed, of ours only": {old: planned, now: planned, found: ruled{rules: both[1:]}},
		"replaced":              {old: former, found: ruled{rules: both}, want: refused},
		"made":                  {now: planned, found: ruled{rules: both}, want: refused},
		"made, of no VM yet":    {now: inputs(0, "50000"), found: ruled{rules: both}},
		"deleted with the VM":   {old: planned, found: ruled{rules: both}},
		"recreated":             {old: former, found: ruled{rules: both}, replace: []string{"a"}},
		"not in the plan":       {old: inputs(402, "443"), found: ruled{rules: both}},
		"no answer":             {old: former, found: ruled{err: errors.New("broken")}, want: "firewall rules of a: broken"},
		"no answer, a preview":  {old: former, found: ruled{err: errors.New("broken")}, dry: true},
	} {
		t.Run(name, func(t *testing.T) {
			p.Replace = c.replace

			err := CheckRules(t.Context(), p, c.found, c.dry, &pulumi.ResourceHookArgs{OldInputs: c.old, NewInputs: c.now})
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}
