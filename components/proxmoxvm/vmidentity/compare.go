// Package vmidentity tells which VM is whose.
//
// Another VM may have the VMID of a node. Proxmox VE hands out a VMID again as soon as it is free, so only
// the SMBIOS UUID says which VM is ours: the program chooses it, the state keeps it, and no other VM has it.
package vmidentity

import (
	"context"
	"fmt"
	"strings"

	"talos-proxmox/components/proxmoxapi"
)

// Finder is what is asked of Proxmox VE to identify a VM. VM.Audit on the VM is enough.
type Finder interface {
	Find(ctx context.Context, vmid int) (proxmoxapi.VM, bool, error)
	Config(ctx context.Context, vm proxmoxapi.VM) (proxmoxapi.VMConfig, error)
}

// UUIDOf is the SMBIOS UUID that Proxmox VE gives the VM with a VMID.
func UUIDOf(ctx context.Context, proxmox Finder, vmid int) (string, error) {
	v, there, err := proxmox.Find(ctx, vmid)
	if err != nil {
		return "", err
	}

	if !there {
		return "", fmt.Errorf("there is no VM with VMID %d", vmid)
	}

	config, err := proxmox.Config(ctx, v)
	if err == nil && config.UUID == "" {
		err = fmt.Errorf("VM %d states no SMBIOS UUID, so no machine can show that it is this VM; give it one "+
			"('qm set %d --smbios1 uuid=$(uuidgen)' on its host), and stop and start it", vmid, vmid)
	}

	return config.UUID, err
}

// Proxmox is what is asked of Proxmox VE to find the VMs of a cluster.
type Proxmox interface {
	Finder

	VMs(ctx context.Context) ([]proxmoxapi.VM, error)
}

// Verdict says whose the VM with a VMID is.
type Verdict string

const (
	// VerdictOwn is the VM of the state.
	VerdictOwn Verdict = "ours"
	// VerdictForeign is another VM.
	VerdictForeign Verdict = "foreign"
	// VerdictGone says that no VM has the VMID.
	VerdictGone Verdict = "gone"
	// VerdictUnknown says that Proxmox VE does not tell.
	VerdictUnknown Verdict = "unknown"
)

// Comparison is what a comparison came to.
type Comparison struct {
	Verdict Verdict
	// Found is the VM, where Proxmox VE told its settings.
	Found Found
	// Why explains every verdict but Ours and Gone.
	Why string
	// Untagged is a Foreign VM with the UUID of the state. Without a refresh in between, it would be ours.
	Untagged proxmoxapi.VM
	// Bare is a Foreign VM that the program began, and that runs without its settings.
	Bare proxmoxapi.VM
	// Successor is a Foreign VM that the program has made for the same node, and the state does not know.
	Successor *Found
}

// Compare asks Proxmox VE which VM has the VMID now. The owner's tags are on every VM of the cluster.
func (m Machine) Compare(ctx context.Context, proxmox Finder, owner []string) Comparison {
	v, there, err := proxmox.Find(ctx, m.VMID)
	if err != nil {
		return Comparison{Verdict: VerdictUnknown, Why: err.Error()}
	}

	if !there {
		return Comparison{Verdict: VerdictGone}
	}

	if v.Container || v.Template {
		return m.Evaluate(Found{VM: v}, owner)
	}

	config, err := proxmox.Config(ctx, v)
	if err != nil {
		return Comparison{Verdict: VerdictUnknown, Why: err.Error()}
	}

	c := m.Evaluate(Found{v, config}, owner)
	c.Found = Found{v, config}

	return c
}

// Evaluate compares a VM of the state with one that was found.
func (m Machine) Evaluate(f Found, owner []string) Comparison {
	now := fmt.Sprintf("VMID %d is %q on host %s", m.VMID, f.VM.Name, f.VM.Host)

	switch {
	case f.VM.Container:
		return Comparison{Verdict: VerdictForeign, Why: now + ", a container"}
	case f.VM.Template:
		return Comparison{Verdict: VerdictForeign, Why: now + ", a template"}
	case m.UUID == "":
		return Comparison{Verdict: VerdictUnknown, Why: fmt.Sprintf("the state has no UUID of %s (VMID %d)", m.Name, m.VMID)}
	case copied(f, m, owner):
		return Comparison{Verdict: VerdictOwn}
	case f.Bare(m.Name, owner) && !f.VM.Stopped:
		return Comparison{Verdict: VerdictForeign, Bare: f.VM, Why: fmt.Sprintf("%s (UUID %s), but its notes state "+
			"UUID %s: it %s", now, f.Config.UUID, original(f), BareReason)}
	case strings.EqualFold(m.UUID, f.Config.UUID) && !Tagged(m.Tags, owner) && !Tagged(f.VM.Tags, owner):
		// A refresh reads whatever VM has the VMID, its UUID included. It cannot give a foreign VM our tags. An operator
		// can, who was told to where the VM is the node's; the state has them from the next update on.
		return Comparison{
			Verdict: VerdictForeign, Untagged: f.VM,
			Why: fmt.Sprintf("%s (UUID %s), without the tags %s of this cluster: a refresh "+
				"has taken it into the state", now, f.Config.UUID, strings.Join(owner, " and ")),
		}
	case strings.EqualFold(m.UUID, f.Config.UUID) && original(f) != "" && !f.Described():
		return Comparison{Verdict: VerdictForeign, Why: fmt.Sprintf(
			"%s (UUID %s), a copy of the VM with UUID %s by its notes: a refresh has "+
				"taken it into the state", now, f.Config.UUID, original(f))}
	case strings.EqualFold(m.UUID, f.Config.UUID):
		return Comparison{Verdict: VerdictOwn}
	default:
		c := Comparison{Verdict: VerdictForeign, Why: fmt.Sprintf("%s (UUID %s), and the state has %s there (UUID %s)", now,
			f.Config.UUID, m.Name, m.UUID)}

		if f.VM.Name == m.Name && f.Described() && Tagged(f.VM.Tags, owner) {
			c.Successor = &f
		}

		return c
	}
}
