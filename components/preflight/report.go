package preflight

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/proxmoxvm/harules"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/spec"
)

// Report is what the checks read from Proxmox VE. Its methods can be called on nil, which means that Proxmox VE did not
// answer.
type Report struct {
	// major is the first number of Proxmox VE's version.
	major int
	// templates are the VMIDs of the templates to clone, by node name. A node is left out when its VM exists and the
	// template is gone.
	templates map[string]int
	// devices are the GPUs to pass through, by node name; left out likewise, and when the host of a node that exists is
	// unreachable.
	devices map[string]proxmoxapi.PCIDevice
	// incomplete are the names of nodes whose VM was only partially created.
	incomplete []string
	// sharedImages says that all hosts see what one of them downloads.
	sharedImages bool
	// absent are the VMIDs of nodes whose VM is not there.
	absent map[int]bool
	// vms are the VMs that have VMIDs of the plan, as far as Proxmox VE tells which they are.
	vms map[int]vmidentity.Found
	// missingPrivileges are those that the credentials lack, by the name of a node that is there.
	missingPrivileges map[string][]missingPrivilege
	// states are those of the VMs that are there, by node name.
	states map[string]proxmoxvm.State
	// haMarks are those in the comments of HA resources, by node name.
	haMarks map[string]int
}

// HARules says that Proxmox VE is known to have rules of high availability in place of groups.
func (r *Report) HARules() bool { return r != nil && r.major >= harules.RulesMajor }

// HAMark is the mark that the HA resource of a node has, or is to have where its rules are not as they were set.
func (r *Report) HAMark(n plan.Node) int {
	if r == nil {
		return 0
	}

	return r.haMarks[n.Name]
}

// Template is the VMID of the template to clone for a node; 0 when it is not known.
func (r *Report) Template(n plan.Node) int {
	if r == nil {
		return 0
	}

	return r.templates[n.Name]
}

// Device is the GPU of a node; nil when it is not known.
func (r *Report) Device(n plan.Node) *proxmoxapi.PCIDevice {
	if r == nil {
		return nil
	}

	if d, there := r.devices[n.Name]; there {
		return &d
	}

	return nil
}

// AbsentVMIDs are the VMIDs of nodes whose VM is not there.
func (r *Report) AbsentVMIDs() map[int]bool {
	if r == nil {
		return nil
	}

	return r.absent
}

// VM is the VM that has a VMID of the plan.
func (r *Report) VM(vmid int) (vmidentity.Found, bool) {
	if r == nil {
		return vmidentity.Found{}, false
	}

	found, there := r.vms[vmid]

	return found, there
}

// Exists says that the VM of a node is known to exist.
func (r *Report) Exists(n plan.Node) bool { return r != nil && !r.absent[n.VMID] }

// SharedImages says that an image that one host downloads can be used by all.
func (r *Report) SharedImages() bool { return r != nil && r.sharedImages }

// Incomplete says that the VM of a node was only partially created.
func (r *Report) Incomplete(n plan.Node) bool {
	return r != nil && slices.Contains(r.incomplete, n.Name)
}

// VMState is what is known of the VM of a node.
func (r *Report) VMState(n plan.Node) proxmoxvm.State {
	if r == nil {
		return proxmoxvm.State{}
	}

	return r.states[n.Name]
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
		Value: strings.Join(kept, "; "), Remedy: "run 'go run ./stacks/ops run up' first, which ends their protection",
	}}
}

// CheckPermissions checks that the credentials may change these properties of the VM of a node.
func (r *Report) CheckPermissions(n plan.Node, changes []string) error {
	if r == nil {
		return nil
	}

	var problems spec.Problems

	for _, m := range r.missingPrivileges[n.Name] {
		if len(changes) > 0 && slices.ContainsFunc(m.Changes, func(c string) bool {
			return c == AnyChange ||
				slices.Contains(changes, c)
		}) {
			problem := m.problem(r.major)
			problem.Rule += fmt.Sprintf(", which the change of %s needs (%s)", n.Name, strings.Join(changes, ", "))
			problems = append(problems, problem)
		}
	}

	return problems.Err()
}

// missingPrivilege is a privilege that the credentials lack.
type missingPrivilege struct {
	Privilege

	// paths where they lack it.
	paths []string
}

// problem names a privilege that is missing, as this version of Proxmox VE calls it.
func (m missingPrivilege) problem(major int) spec.Problem {
	names := m.On(major)

	return spec.Problem{
		Path: "proxmox", Rule: fmt.Sprintf("the credentials lack %s on %s, %s", strings.Join(names, " or "),
			upTo(m.paths, 3), m.For),
		Remedy: fmt.Sprintf("run 'pveum role modify TalosProxmox -append -privs %s', with the name of the role, and see "+
			"that they have it on that path", names[0]),
	}
}

// upTo names the first of a list, and how many more there are.
func upTo(names []string, count int) string {
	if len(names) <= count {
		return strings.Join(names, ", ")
	}

	return fmt.Sprintf("%s and %d more", strings.Join(names[:count], ", "), len(names)-count)
}
