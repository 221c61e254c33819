package vmidentity

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
)

// CheckCompanion is a hook that runs before a companion of a VM (its firewall, its high availability) is made, changed
// or deleted. These go before the VM does.
func (i *Identities) CheckCompanion(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	ctx = hookutil.Deleting(ctx)

	inputs := hookutil.Inputs(args)
	vmid := int(hookutil.Number(inputs, "vmId"))
	if id, ok := strings.CutPrefix(hookutil.String(inputs, "resourceId"), "vm:"); ok {
		vmid, _ = strconv.Atoi(id)
	}

	i.mu.Lock()
	m, known := i.known[vmid]
	refused := i.foreign[vmid]
	i.mu.Unlock()

	if refused != nil {
		return refused
	}

	if len(args.OldInputs) == 0 && !known {
		// Its VM was compared with the state before.
		if f, there := i.found(vmid); there {
			return i.checkSetUp(ctx, f)
		}

		return nil
	}

	if !known && i.ctx.DryRun() {
		// Its VM comes after this, and says more.
		return nil
	}

	if !known {
		// A node that left the plan, or is replaced: its VM comes after this.
		was, found, err := i.stateMachine(ctx, vmid)

		switch {
		case err != nil:
			return i.evaluate(Machine{VMID: vmid, Name: args.Name}, Comparison{Verdict: VerdictUnknown, Why: err.Error()}, "")
		case found:
			_, err = i.check(ctx, was.Machine, was.urn)

			return err
		}

		// The state has no such VM any more: only the tags are known here.
		v, there, err := i.proxmox.Find(ctx, vmid)

		switch {
		case err != nil:
			return i.evaluate(Machine{VMID: vmid, Name: args.Name}, Comparison{Verdict: VerdictUnknown, Why: err.Error()}, "")
		case !there:
			return nil
		}

		if Tagged(v.Tags, OwnerTags(i.plan)) {
			return nil
		}

		return fmt.Errorf("VMID %d is %q on host %s, without the tags %s of this cluster: it is another VM, and what "+
			"belongs to it is not touched. 'pulumi preview' says what to do",
			vmid, v.Name, v.Host, strings.Join(OwnerTags(i.plan), " and "))
	}

	_, err := i.check(ctx, m, args.URN)

	return err
}
