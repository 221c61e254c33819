package importcmd

import "context"

// verdict says what becomes of a resource.
type verdict string

const (
	found  verdict = "found"
	absent verdict = "absent" // the next update makes it
	again  verdict = "again"  // the next update makes it again, which changes nothing
)

// outcome is what was found out about one resource.
type outcome struct {
	verdict verdict
	name    string
	remark  string
	// id and state go into the file, where the resource was found. Without a state, the provider reads it.
	id    string
	state *planned
}

// finder looks for resources.
type finder struct {
	proxmox Proxmox
	// secrets returns the file of the cluster's secrets; none where there is no cluster yet.
	secrets func(ctx context.Context) (string, error)
	// identity is the name of what a cluster of K3s is known by; empty with Talos.
	identity string
	// given says that the configuration has it (k3sIdentity).
	given bool
	// owner are the tags that all VMs of the cluster have.
	owner []string
	// anything says that something was found on Proxmox VE.
	anything bool
}

// exists is a resource that is on Proxmox VE.
func (f *finder) exists(id, remark string, state planned) (outcome, error) {
	f.anything = true
	// A preview does not know it, and the provider looks for it there.
	state.outputs["id"] = id

	return outcome{verdict: found, id: id, remark: remark, state: &state}, nil
}
