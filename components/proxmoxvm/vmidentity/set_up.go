package vmidentity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/wait"
)

// ErrOtherVM is what CheckSetUp reports.
var ErrOtherVM = errors.New("was set up on another VM than the state has now")

// CheckSetUp reports a VM that is neither the one that a node was set up on, nor one that the program has created
// since. A refresh takes whatever VM has the VMID into the state.
func CheckSetUp(node string, found Found, owner []string) error {
	if found.Described() {
		return nil
	}

	if found.VM.Stopped && found.Bare(node, owner) {
		return fmt.Errorf("%s %w: VMID %d is a copy of a template without its settings. %s", node, ErrOtherVM, found.VM.ID,
			deleteUnused(found.VM))
	}

	return fmt.Errorf("%s %w: nothing on VMID %d (UUID %s, host %s) says that it was made for %s, so a refresh has "+
		"probably taken it into the state. Give that VM another VMID and run 'pulumi up --refresh'; or, if it may be "+
		"deleted, name the node in lifecycle.replace",
		node, ErrOtherVM, found.VM.ID, found.Config.UUID, found.VM.Host, node)
}

// checkSetUp checks that a VM of the state is the one that its node was set up on. Its notes say so, unless it was
// imported, or a person has changed them, or a refresh has taken another VM into the state: then the state tells, or
// what runs.
func (i *Identities) checkSetUp(ctx context.Context, f Found) error {
	_, n, planned := NodeByVMID(i.plan, f.VM.ID)
	if i.SetUpOn == nil || original(f) != "" {
		return nil
	}

	i.readOnce()

	if planned && i.plan.Replaces(n.Name) && !i.wasReplaced(f.VM.ID) {
		return nil
	}

	uuid, certain := i.stateSetUp(f.VM.ID)
	if certain || uuid == "" && !planned {
		// What a node that has left the plan ran on was looked at when it left the cluster.
		return nil
	}

	if uuid == "" {
		if i.ctx.DryRun() {
			short, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
			defer cancel()

			ctx = short
		}

		var err error
		if uuid, err = i.SetUpOn(ctx, n); err == nil && uuid == "" {
			err = errors.New("it shows no UUID")
		}

		if err != nil {
			return i.unknownSetUp(n, f, err)
		}
	}

	if !strings.EqualFold(uuid, f.Config.UUID) {
		err := CheckSetUp(cmp.Or(n.Name, f.VM.Name), f, OwnerTags(i.plan))
		i.refuse(f.VM.ID, err)

		return err
	}

	i.mu.Lock()
	defer i.mu.Unlock()

	i.shown[f.VM.ID] = true

	return nil
}

// wasReplaced says that the VM of the state with a VMID was made for the entry of lifecycle.replace that is there
// still: the entry does not say that another VM may be deleted.
func (i *Identities) wasReplaced(vmid int) bool {
	i.mu.Lock()
	defer i.mu.Unlock()

	m, _ := i.byVMID(vmid)

	return m.replaced
}

// stateSetUp is the UUID of the machine that was set up with a VMID, as the state has it; empty: the state does not
// tell. certain says that nothing was set up, or that the VM was compared before. Where the whole cluster goes, the
// state may have forgotten what was.
func (i *Identities) stateSetUp(vmid int) (uuid string, certain bool) {
	i.mu.Lock()
	defer i.mu.Unlock()

	m, _ := i.byVMID(vmid)
	setUp := m.setUp || i.unread != nil || i.plan.Teardown

	return m.setUpOn, !setUp || i.creating[vmid] || i.shown[vmid] || i.ctx.DryRun() && i.warned[vmid]
}

// unknownSetUp says what to do about a VM of which it is not known whether a node was set up on it. In a preview, it is
// a warning.
func (i *Identities) unknownSetUp(n plan.Node, f Found, why error) error {
	unknown := fmt.Sprintf("could not determine whether %s was set up on VM %d (host %s): "+
		"the notes of the VM do not state its UUID, and the node could not be queried: %v",
		n.Name, f.VM.ID, f.VM.Host, why)

	if i.ctx.DryRun() {
		if i.firstWarning(f.VM.ID) {
			_ = i.ctx.Log.Warn(unknown+". An update would not change the VM", nil)
		}

		return nil
	}

	line := notesUUID + f.Config.UUID

	return fmt.Errorf("%s. Nothing is done to the VM. If it is the VM of the node, start it, or add the line '%s' "+
		"to its notes (if it has none: 'qm set %d --description \"%s\"' on host %s), then run the command again. "+
		"If it is not, "+
		"give it another VMID and run the command again with --refresh", unknown, line, f.VM.ID, line, f.VM.Host)
}

// CheckSetUp is CheckSetUp of the VM that Proxmox VE had for a node when the run began.
func (i *Identities) CheckSetUp(n plan.Node) error {
	if i == nil {
		return nil
	}

	if found, there := i.found(n.VMID); there {
		return CheckSetUp(n.Name, found, OwnerTags(i.plan))
	}

	return nil
}
