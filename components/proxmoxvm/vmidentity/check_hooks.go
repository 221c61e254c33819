package vmidentity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// Announce is a hook that runs before a VM is created, and in previews. It refuses one whose VMID the state has under
// another name: the pool was renamed, and what has the former name would be deleted, with the VM.
func (i *Identities) Announce(_ context.Context, args *pulumi.ResourceHookArgs) error {
	vmid := int(hookutil.Number(args.NewInputs, "vmId"))

	// The engine reads no state that is empty.
	if _, there := i.found(vmid); there {
		i.readOnce()

		if names := i.resources(vmid); len(names) > 0 && !slices.Contains(names, args.Name) {
			return spec.Problem{
				Path: "pools", Value: args.Name,
				Rule: fmt.Sprintf("VMID %d is that of %s in the state: a pool that is renamed keeps no nodes, because the names "+
					"of their resources have the name of the pool in them", vmid, strings.Join(names, " and ")),
				Remedy: "give the pool its former name; or, to replace its nodes, give the new pool other VMIDs and other names",
			}
		}
	}

	i.mu.Lock()
	defer i.mu.Unlock()

	i.creating[vmid] = true

	return nil
}

// CheckCreated is a hook that runs after a VM was created. Without a template, the provider takes over a VM that got
// the VMID since it was last looked at.
func (i *Identities) CheckCreated(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	m := machineOf(args.NewInputs)
	c := m.Compare(ctx, i.proxmox, OwnerTags(i.plan))

	if c.Verdict != VerdictForeign {
		i.Record(m)

		return nil
	}

	err := fmt.Errorf("%s: another VM took the VMID while this run was about to create %s, and the provider "+
		"treated that VM as its own. Nothing else is done to that VM. %s", c.Why, m.Name, forget(args.URN))
	if c.Bare.ID != 0 {
		err = fmt.Errorf("%s; %s", c.Why, DeleteBare(c.Bare))
	}

	i.refuse(m.VMID, err)

	return err
}

// Check is a hook that runs before a VM is changed or deleted, and in previews.
func (i *Identities) Check(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	ctx = hookutil.Deleting(ctx)
	m := machineOf(args.OldInputs)

	has := machineOf(args.OldOutputs)
	m.UUID, m.Disks = cmp.Or(m.UUID, has.UUID), append(m.Disks, has.Disks...)

	if len(args.NewInputs) > 0 {
		if v, there, err := i.proxmox.Find(ctx, m.VMID); err == nil && there && v.Unreachable {
			return CheckReachable(v, m.Name)
		}
	}

	c, err := i.check(ctx, m, args.URN)
	if err != nil {
		return err
	}

	i.Record(m)

	if len(args.NewInputs) > 0 {
		return i.checkNoCopy(ctx, c.Found)
	}

	err = errors.Join(i.checkDeletable(m, c.Found), i.checkOnce(m.VMID))
	if err == nil && c.Verdict == VerdictOwn {
		err = i.checkUnrecorded(ctx, c.Found)
	}

	if err != nil || i.ctx.DryRun() {
		return err
	}

	return checkHost(m, c.Found.VM.Host, hookutil.String(args.OldOutputs, "nodeName"))
}

// checkDeletable refuses to delete a VM that is protected, or that has disks that the state does not have: the program
// detaches none, and Proxmox VE deletes those with the VM, whether they are attached or not.
func (i *Identities) checkDeletable(m Machine, f Found) error {
	if i.importFailed(m, f) {
		return nil
	}

	if f.Config.Protection {
		return fmt.Errorf("%s is protected in Proxmox VE, and is not deleted. If it may be, set protection to false for its "+
			"pool and run 'pulumi up' first; or, where it was protected by hand, run 'qm set %d --protection 0' on host %s",
			f.VM.Label(), f.VM.ID, f.VM.Host)
	}

	for _, key := range slices.Sorted(maps.Keys(f.Config.Settings)) {
		detached := strings.HasPrefix(key, "unused")
		_, attached := f.Config.Disks[key]

		// Volumes of others, such as those of a CSI driver, and disks of the host stay.
		attached = attached && len(m.Disks) > 0 && !slices.Contains(m.Disks, key) &&
			proxmoxapi.OwnsVolume(f.VM.ID, f.Config.Settings[key])

		what, first, unused := "has a detached disk", "", key

		switch {
		case attached:
			what, unused = "has a disk that the stack did not create", "unused<N>"
			first = fmt.Sprintf("detach it ('qm set %d --delete %s'), then ", f.VM.ID, key)
		case !detached:
			continue
		}

		return fmt.Errorf("%s %s (%s: %s), which would be deleted with the VM. Nothing is done: on host "+
			"%s, %sgive the disk to another VM ('qm disk move %d %s --target-vmid <VMID>') or delete it ('qm disk unlink %d "+
			"--idlist %s --force'), then run the same command again", f.VM.Label(), what, key, f.Config.Settings[key],
			f.VM.Host, first, f.VM.ID, unused, f.VM.ID, unused)
	}

	return nil
}

// importFailed says that a VM was never finished: its image was imported, and the volume not attached. Nothing was set
// up on it, and it has no disk but that one, which is of this stack.
func (i *Identities) importFailed(m Machine, f Found) bool {
	i.mu.Lock()
	known, there := i.byVMID(m.VMID)
	unread := i.unread
	i.mu.Unlock()

	// Of a VM that was imported, or that others set up, the state does not tell what is on it.
	unclear := unread != nil || known.imported || i.plan.Bootstrap == spec.BootstrapExternal
	if !there || unclear || known.setUp || f.Config.Protection {
		return false
	}

	var unused []string

	for key, volume := range f.Config.Settings {
		if strings.HasPrefix(key, "unused") {
			unused = append(unused, volume)
		}
	}

	return len(f.Config.Disks) == 0 && len(unused) == 1 && proxmoxapi.OwnsVolume(m.VMID, unused[0])
}

// checkOnce refuses to delete a VM that the state has twice: the other resource may be that of a node that stays.
func (i *Identities) checkOnce(vmid int) error {
	names := i.resources(vmid)
	if len(names) < 2 {
		return nil
	}

	return fmt.Errorf("VM %d is in the state twice, as %s, and is not deleted: it was imported although the state had "+
		"it. Remove the one whose name no node of the configuration has from the state ('pulumi state delete <URN>'; "+
		"'pulumi stack --show-urns' lists them)", vmid, strings.Join(names, " and "))
}

// checkHost refuses to delete a VM that was moved since it was read last: the provider looks for it on the host of the
// state only. A host that is not known is empty.
func checkHost(m Machine, is, was string) error {
	if is == "" || was == "" || is == was {
		return nil
	}

	return fmt.Errorf("VM %d (%s) is on host %s, but the state has it on %s: it was migrated since. It is not "+
		"deleted: run the same command again with --refresh", m.VMID, m.Name, is, was)
}

// check asks Proxmox VE about a VM of the state, and says why it is left alone.
func (i *Identities) check(ctx context.Context, m Machine, urn pulumi.URN) (Comparison, error) {
	c := m.Compare(ctx, i.proxmox, OwnerTags(i.plan))

	err := i.evaluate(m, c, urn)
	if err == nil && c.Verdict == VerdictOwn {
		err = i.checkSetUp(ctx, c.Found)
	}

	return c, err
}

// evaluate says why a VM is left alone. In a preview, what is not known is a warning.
func (i *Identities) evaluate(m Machine, c Comparison, urn pulumi.URN) error {
	switch {
	case c.Verdict == VerdictForeign:
		remedy := forget(urn)

		if _, n, planned := NodeByVMID(i.plan, m.VMID); planned && c.Untagged.Name == n.Name {
			remedy = fmt.Sprintf("If it is the VM of %s and lost its tags, run 'qm set %d --tags %s' on host %s, then "+
				"'pulumi up --refresh'. If it is not: %s", n.Name, m.VMID, strings.Join(OwnerTags(i.plan), ","), c.Untagged.Host,
				remedy)
		}

		if c.Successor != nil {
			remedy = deleteSuccessor(i.plan, *c.Successor)
		}

		err := fmt.Errorf("%s. It is not touched. %s", c.Why, remedy)
		if c.Bare.ID != 0 {
			err = fmt.Errorf("%s; %s", c.Why, DeleteBare(c.Bare))
		}

		i.refuse(m.VMID, err)

		return err
	case c.Verdict == VerdictUnknown && i.ctx.DryRun():
		// Where the program has ended already, no warning is shown: what leaves is deleted after it.
		if i.firstWarning(m.VMID) {
			_ = i.ctx.Log.Warn(fmt.Sprintf("could not determine whether VMID %d is still %s: %s", m.VMID, m.Name,
				c.Why), nil)
		}

		return nil
	case c.Verdict == VerdictUnknown:
		return fmt.Errorf("could not determine whether VMID %d is still %s, so nothing is done to it: %s; run the "+
			"command again "+
			"once its host answers", m.VMID, m.Name, c.Why)
	default:
		return nil
	}
}

// CheckNow says why a planned node's VM may not be touched now. It asks Proxmox VE again.
func (i *Identities) CheckNow(ctx context.Context, n plan.Node) error {
	i.mu.Lock()
	m, known := i.known[n.VMID]
	refused := i.foreign[n.VMID]
	i.mu.Unlock()

	if refused != nil {
		return refused
	}

	if !known {
		return fmt.Errorf("this run could not determine which VM %s is", n.Name)
	}

	switch c := m.Compare(ctx, i.proxmox, OwnerTags(i.plan)); c.Verdict {
	case VerdictOwn:
		return i.checkNoCopy(ctx, c.Found)
	case VerdictGone:
		return fmt.Errorf("the VM of %s (VMID %d) is gone", n.Name, n.VMID)
	default:
		return errors.New(c.Why)
	}
}

// Of are the VMID of a node's VM and its UUID. What depends on them does not go on with another VM.
func (i *Identities) Of(n plan.Node, machineVM *vm.VirtualMachine) (pulumi.IntOutput, pulumi.StringPtrOutput) {
	if i == nil {
		return machineVM.VmId, machineVM.Smbios.Uuid()
	}

	compared := pulumi.All(machineVM.VmId, machineVM.Smbios.Uuid(), machineVM.Tags, machineVM.URN()).
		ApplyT(func(all []any) (Machine, error) {
			m := Machine{VMID: all[0].(int), Name: n.Name}
			m.Tags, _ = all[2].([]string)

			if uuid, _ := all[1].(*string); uuid != nil {
				m.UUID = *uuid
			}

			return m, i.compareFound(m, all[3].(pulumi.URN))
		})

	return compared.ApplyT(func(m any) int { return m.(Machine).VMID }).(pulumi.IntOutput),
		compared.ApplyT(func(m any) *string { return new(m.(Machine).UUID) }).(pulumi.StringPtrOutput)
}

// compareFound compares a VM of the state with what was found when the run began. One that this run makes is compared
// when it is made.
func (i *Identities) compareFound(m Machine, urn pulumi.URN) error {
	i.mu.Lock()
	refused, made := i.foreign[m.VMID], i.creating[m.VMID]
	i.mu.Unlock()

	if refused != nil || made {
		return refused
	}

	if f, there := i.found(m.VMID); there {
		if err := i.evaluate(m, m.Evaluate(f, OwnerTags(i.plan)), urn); err != nil {
			return err
		}
	}

	i.Record(m)

	return nil
}

// CheckReachable is why a VM cannot be changed whose host does not answer; nil: its host does.
func CheckReachable(v proxmoxapi.VM, name string) error {
	if !v.Unreachable {
		return nil
	}

	return fmt.Errorf("the VM of %s (VMID %d) is to be changed, and its host %s does not answer: start the host, "+
		"or revert the change; %s (%w)", name, v.ID, v.Host, neverBack(name, []proxmoxapi.VM{v}),
		proxmoxapi.ErrHostUnreachable)
}
