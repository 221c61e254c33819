package vmidentity

import (
	"context"
	"fmt"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
)

// CheckVMIDFree is a hook that runs before a VM is created, and checks that no VM has its VMID. A refresh only looks
// for what the state has.
func CheckVMIDFree(ctx context.Context, p *plan.Plan, proxmox Proxmox, stack string,
	args *pulumi.ResourceHookArgs,
) error {
	vmid := int(hookutil.Number(args.NewInputs, "vmId"))
	name := hookutil.String(args.NewInputs, "name")

	v, there, err := proxmox.Find(ctx, vmid)

	if err != nil || !there {
		return err
	}

	if v.Unreachable {
		return fmt.Errorf("VMID %d, meant for %q, is already used by a VM on host %s, which does not answer: "+
			"its owner is unknown. Start the host, or choose another range", vmid, name, v.Host)
	}

	found, ours := Found{VM: v}, OfCluster(v, p)

	if v.Stopped {
		if found.Config, err = proxmox.Config(ctx, v); err != nil {
			return err
		}
	}

	begun := untouched(p, found)

	switch {
	case v.Name == name && begun:
		return fmt.Errorf("VMID %d is %q on host %s already, but not in this stack's state: "+
			"a run was interrupted while it created the VM, and the VM holds no data. Delete it ('qm destroy %d "+
			"--purge' there), then run 'pulumi up' again", vmid, v.Name, v.Host, vmid)
	case v.Name == name && ours:
		return fmt.Errorf("VMID %d is %q on host %s already, but not in this stack's state: a run was interrupted "+
			"before it could record the VM, or the state is an older copy. To add it to the state, run 'go run ./stacks/ops "+
			"-s %s import' and what that prints. Delete it only if it is not a node of the cluster ('kubectl get nodes'): then "+
			"'pulumi up' recreates it", vmid, v.Name, v.Host, stack)
	case v.Name == name:
		return fmt.Errorf("VMID %d is %q on host %s already, but not in this stack's state, and without the tags "+
			"%s of this cluster: it is unknown who created it, and it may hold data. Inspect it ('qm config %d' "+
			"there) before you remove it; "+
			"or choose another range", vmid, v.Name, v.Host, strings.Join(OwnerTags(p), " and "), vmid)
	default:
		return fmt.Errorf("VMID %d, meant for %q, is taken by %q on host %s: it was created during this run. "+
			"Remove it, or choose another range", vmid, name, v.Name, v.Host)
	}
}

// untouched tells whether nothing has ever run in a VM that is off: it is a copy of ours without its settings, or has
// no disk yet, or is ours and the ISO file is in its drive that is taken out before a node is configured.
func untouched(p *plan.Plan, f Found) bool {
	pool, n, planned := NodeByVMID(p, f.VM.ID)
	if !f.VM.Stopped || !planned {
		return false
	}

	loaded := OfCluster(f.VM, p) && pool.Image.Detach && bootsFrom(p, pool.Image, f.Config.CDROMs[n.CDROM])

	return len(f.Config.Disks) == 0 || loaded || f.Bare(n.Name, OwnerTags(p))
}

// bootsFrom says that a medium is an ISO file that nodes boot from: the one of the configuration, or one that this
// program has named after the cluster. Others, such as a rescue system, an operator has put into the drive.
func bootsFrom(p *plan.Plan, image plan.BootImage, medium string) bool {
	_, file, _ := strings.Cut(medium, ":iso/")

	return medium != "" && medium == image.Volume || strings.HasPrefix(file, p.Cluster+"-")
}
