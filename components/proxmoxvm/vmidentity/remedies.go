package vmidentity

import (
	"fmt"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// forget is what to do about a VM that another has taken the VMID of.
func forget(urn pulumi.URN) string {
	return fmt.Sprintf("Give that VM another VMID and run 'pulumi up --refresh'; or remove the node's VM from the "+
		"state ('pulumi "+
		"state delete "+
		"--target-dependents '%s'', see recovery.md) and choose other VMIDs", urn)
}

// deleteUnused is what to do about a VM that is off and has never run.
func deleteUnused(v proxmoxapi.VM) string {
	return fmt.Sprintf("A run was interrupted while it created the VM, and the VM holds no data: delete it ('qm "+
		"destroy %d --purge' on "+
		"host %s), then run 'pulumi up --refresh'", v.ID, v.Host)
}

// deleteSuccessor is what to do about a VM that a run has made in the place of the one that the state has, and did not
// come to note.
func deleteSuccessor(p *plan.Plan, f Found) string {
	if untouched(p, f) {
		return deleteUnused(f.VM)
	}

	return fmt.Sprintf("It was created for this node after the state was written: by a run that was interrupted, "+
		"with another copy of the state, or before the state was restored. Run 'pulumi up --refresh', which adds "+
		"it to the state. If that fails with the same message, and the VM is not a node of the cluster ('kubectl "+
		"get nodes'), delete it ('qm stop %d', 'qm destroy %d "+
		"--purge' on host %s), then run 'pulumi up --refresh' again", f.VM.ID, f.VM.ID, f.VM.Host)
}

// deadNode is what to do about a dead node whose VM is deleted without the hooks that take it out of its cluster, and
// why they do not.
func deadNode(label, why, name string) string {
	return fmt.Sprintf("%s is deleted, and the state %s: if Kubernetes lists it, delete it there ('kubectl delete node "+
		"%s'), and, if it was a control plane of Talos, its etcd member ('talosctl etcd members', 'talosctl etcd "+
		"remove-member')", label, why, name)
}

// neverBack is what to do about the VM of a node where its host is lost for good.
func neverBack(node string, vms []proxmoxapi.VM) string {
	return fmt.Sprintf("if it never comes back, %s, remove the host from proxmox.hosts, then run 'pulumi up --refresh'",
		removeByHand(node, vms))
}

// removeByHand is how the VM of a node, one of vms, is removed without its host.
func removeByHand(node string, vms []proxmoxapi.VM) string {
	var files []string
	for _, v := range vms {
		files = append(files, fmt.Sprintf("/etc/pve/nodes/%s/qemu-server/%d.conf", v.Host, v.ID))
	}

	if len(files) == 1 {
		return fmt.Sprintf("run 'rm %s' on another host", files[0])
	}

	return fmt.Sprintf("remove, on another host, the one of these files that has its name "+
		"('grep -l \"^name: %s$\" %s')", node, strings.Join(files, " "))
}
