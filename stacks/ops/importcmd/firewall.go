package importcmd

import (
	"context"
	"fmt"
	"hash/crc32"

	"talos-proxmox/components/proxmoxapi"
)

// firewallRules finds the rules of a VM: they are one list, and to make it again would add to it, or be refused.
func (f *finder) firewallRules(ctx context.Context, p planned) (outcome, error) {
	v, there, err := f.behind(ctx, p)
	if err != nil || !there {
		return v.absent(), err
	}

	held, err := f.proxmox.FirewallRules(ctx, v.VM)
	if err != nil || len(held) == 0 {
		return outcome{verdict: absent, remark: fmt.Sprintf("VM %d has no firewall rules", v.ID)}, err
	}

	// A preview does not know the positions, by which the provider reads the rules.
	rules, _ := p.outputs["rules"].([]any) // without rules, there is nothing to number
	for i, rule := range rules {
		if rule, ok := rule.(map[string]any); ok {
			rule["pos"] = i
		}
	}

	return f.exists(firewallID("rule", v.VM, "rules"), fmt.Sprintf("firewall rules of VM %d", v.ID), p)
}

// firewallOptions are there as soon as the VM is.
func (f *finder) firewallOptions(ctx context.Context, p planned) (outcome, error) {
	v, there, err := f.behind(ctx, p)
	if err != nil || !there {
		return v.absent(), err
	}

	return f.exists(firewallID("options", v.VM, "options"), fmt.Sprintf("firewall options of VM %d", v.ID), p)
}

// guarded is the VM that a firewall is in front of.
type guarded struct{ proxmoxapi.VM }

func (g guarded) absent() outcome {
	return outcome{verdict: absent, remark: fmt.Sprintf("no VM has VMID %d", g.ID)}
}

// behind finds the VM, on the host where it is.
func (f *finder) behind(ctx context.Context, p planned) (guarded, bool, error) {
	vmid := int(number(p.inputs, "vmId"))

	v, there, err := f.proxmox.Find(ctx, vmid)
	if err != nil || !there {
		return guarded{proxmoxapi.VM{ID: vmid}}, false, err
	}

	p.inputs["nodeName"], p.outputs["nodeName"] = v.Host, v.Host

	return guarded{v}, true, nil
}

// firewallID is what the provider calls a part of a VM's firewall (proxmox/firewall/rules.go and options.go of bpg
// v0.69.1): a checksum of where it is.
func firewallID(kind string, v proxmoxapi.VM, part string) string {
	path := fmt.Sprintf("nodes/%s/qemu/%d/firewall/%s", v.Host, v.ID, part)

	return fmt.Sprintf("%s-%d", kind, crc32.ChecksumIEEE([]byte(path)))
}
