package preflight

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/preflight/permissions"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/proxmoxvm/harules"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/spec"
)

// Report is what the checks read from Proxmox VE. Its methods can be called on nil, which means that Proxmox VE did not
// answer.
type Report struct {
	facts   checks.Facts
	missing permissions.Missing
}

// ProxmoxMajor is the first number of Proxmox VE's version; 0 when it is not known.
func (r *Report) ProxmoxMajor() int {
	if r == nil {
		return 0
	}

	return r.facts.Major
}

// HARules says that Proxmox VE is known to have rules of high availability instead of groups.
func (r *Report) HARules() bool { return r.ProxmoxMajor() >= harules.RulesMajor }

// HAMark is the mark that the HA resource of a node has, or is to have where its rules are not as they were set.
func (r *Report) HAMark(n plan.Node) int {
	if r == nil {
		return 0
	}

	return r.facts.HAMarks[n.Name]
}

// UserDataMissing says that a host is known to have had no such file of user data when the run began.
func (r *Report) UserDataMissing(host, volume string) bool {
	if r == nil {
		return false
	}

	files, known := r.facts.UserData[host]
	_, there := files[volume]

	return known && !there
}

// Template is the VMID of the template to clone for a node; 0 when it is not known.
func (r *Report) Template(n plan.Node) int {
	if r == nil {
		return 0
	}

	return r.facts.Templates[n.Name]
}

// Device is the GPU of a node; nil when it is not known.
func (r *Report) Device(n plan.Node) *proxmoxapi.PCIDevice {
	if r == nil {
		return nil
	}

	if d, there := r.facts.Devices[n.Name]; there {
		return &d
	}

	return nil
}

// AbsentVMIDs are the VMIDs of nodes whose VM is not there.
func (r *Report) AbsentVMIDs() map[int]bool {
	if r == nil {
		return nil
	}

	return r.facts.Absent
}

// VM is the VM that has a VMID of the plan.
func (r *Report) VM(vmid int) (vmidentity.Found, bool) {
	if r == nil {
		return vmidentity.Found{}, false
	}

	found, there := r.facts.Identified[vmid]

	return found, there
}

// Exists says that the VM of a node is known to exist.
func (r *Report) Exists(n plan.Node) bool { return r != nil && !r.facts.Absent[n.VMID] }

// SharedImages says that an image that one host downloads can be used by all.
func (r *Report) SharedImages() bool { return r != nil && r.facts.SharedImages }

// Incomplete says that the VM of a node was only partially created.
func (r *Report) Incomplete(n plan.Node) bool {
	return r != nil && slices.Contains(r.facts.Incomplete, n.Name)
}

// CheckReplacements checks that nodes in lifecycle.replace can have another VM. The error is a spec.Problems.
func (r *Report) CheckReplacements(nodes []plan.Node) error {
	if r == nil {
		return nil
	}

	var found spec.Problems

	names := map[spec.Problem][]string{}

	for _, n := range nodes {
		for _, problem := range r.facts.Replacements[n.Name] {
			found = append(found, problem)
			names[problem] = append(names[problem], n.Name)
		}
	}

	found = found.Unique()
	for i, problem := range found {
		found[i].Rule += ", and lifecycle.replace names " + checks.UpTo(names[problem], 3)
		found[i].Remedy += "; or take the names out of lifecycle.replace"
	}

	return found.Err()
}

// VMState is what is known of the VM of a node.
func (r *Report) VMState(n plan.Node) proxmoxvm.State {
	if r == nil {
		return proxmoxvm.State{}
	}

	return r.facts.States[n.Name]
}

// CheckUnprotected checks that Proxmox VE will delete the VMs of a cluster that goes as a whole. One that is protected
// there would be switched off, and stay when all else is gone.
func (r *Report) CheckUnprotected(p *plan.Plan) error {
	var kept []string

	for _, n := range p.Nodes() {
		if found, there := r.VM(n.VMID); there && found.Config.Protection {
			kept = append(kept, fmt.Sprintf("%s, VMID %d on host %s", n.Name, n.VMID, found.VM.Host))
		}
	}

	if len(kept) == 0 {
		return nil
	}

	return spec.Problems{{
		Path: "lifecycle.teardown", Rule: "does not delete VMs that are protected on Proxmox VE: nothing is destroyed",
		Value:  strings.Join(kept, "; "),
		Remedy: "run 'go run ./stacks/ops run up --refresh' first, which ends their protection",
	}}
}

// CheckPermissions checks that the credentials may change these properties of the VM of a node.
func (r *Report) CheckPermissions(n plan.Node, changes []string) error {
	if r == nil {
		return nil
	}

	return r.missing.Check(n, changes, r.facts.Major)
}
