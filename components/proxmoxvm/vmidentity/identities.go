package vmidentity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// Identities tell the VMs of a cluster from others that have their VMIDs. What changes, restarts or deletes a VM asks
// here first, immediately before it does.
type Identities struct {
	ctx     *pulumi.Context
	plan    *plan.Plan
	proxmox Proxmox
	// found are the VMs that Proxmox VE had when the run began, by VMID.
	found func(vmid int) (Found, bool)
	// SetUpOn tells the SMBIOS UUID of the machine that a node was set up on, where the state does not; nil: the program
	// sets up no node.
	SetUpOn func(ctx context.Context, n plan.Node) (uuid string, err error)
	// Joined tells the node of the cluster whose machine has an SMBIOS UUID; empty: there is none. It is nil where the
	// program sets up no node.
	Joined func(ctx context.Context, uuid string) (node string, err error)

	mu sync.Mutex
	// known are the VMs as the state has them, as far as this run has come to them.
	known map[int]Machine
	// creating are those that this run makes.
	creating map[int]bool
	// foreign are VMIDs that another VM has, and why.
	foreign map[int]error
	// warned are VMIDs of which it was said that whose they are is not known.
	warned map[int]bool
	// shown are VMIDs whose VM was found to be the one that its node was set up on.
	shown map[int]bool
	// state are the VMs of the state, by the names of their resources, once it was read.
	state map[string]stateMachine
	// released says that the last update has released the cluster.
	released bool
	// unread is why it could not be read.
	unread error
	read   chan struct{}
	once   sync.Once
	// reads says that this run reads it.
	reads bool
}

// NewIdentities returns the Identities of a plan. found is what preflight found with a VMID.
func NewIdentities(ctx *pulumi.Context, p *plan.Plan, proxmox Proxmox, found func(vmid int) (Found, bool)) *Identities {
	return &Identities{
		ctx: ctx, plan: p, proxmox: proxmox, found: found,
		known: map[int]Machine{}, creating: map[int]bool{}, foreign: map[int]error{}, warned: map[int]bool{},
		shown: map[int]bool{}, read: make(chan struct{}),
	}
}

// VMs are the VMs with the tags of the cluster.
func (i *Identities) VMs(ctx context.Context) ([]proxmoxapi.VM, error) {
	all, err := i.proxmox.VMs(ctx)

	return slices.DeleteFunc(all, func(v proxmoxapi.VM) bool { return !OfCluster(v, i.plan) }), err
}

// unplannedVMs are the VMs with the tags of the cluster that are of no node of the plan. Templates and containers never
// were nodes.
func (i *Identities) unplannedVMs(ctx context.Context) ([]proxmoxapi.VM, error) {
	all, err := i.VMs(ctx)

	return slices.DeleteFunc(all, func(v proxmoxapi.VM) bool {
		_, _, planned := NodeByVMID(i.plan, v.ID)

		return planned || v.Template || v.Container
	}), err
}

// LeavingControlPlanes are the VMs of control planes that have left the plan, without those that the operator has
// declared dead: the data of etcd may be on them. Of a VM on a host that is down for long, no name is known.
func (i *Identities) LeavingControlPlanes(ctx context.Context) ([]proxmoxapi.VM, error) {
	all, err := i.unplannedVMs(ctx)

	return slices.DeleteFunc(slices.Clone(all), func(v proxmoxapi.VM) bool {
		return !slices.Contains(v.Tags, string(spec.RoleControlPlane)) || DeclaredDead(i.plan, v, all)
	}), err
}

// DeclaredDead says that the operator has declared the node of a VM dead, which is one of those that have left the
// plan. Proxmox VE forgets the names of VMs on a host that is down for long: those without a name are taken for the
// nodes that are declared dead and have no other VM, unless there are fewer of these.
func DeclaredDead(p *plan.Plan, v proxmoxapi.VM, unplanned []proxmoxapi.VM) bool {
	if v.Name != "" {
		return p.DeclaredDead(v.Name)
	}

	nameless := 0
	dead := map[string]bool{}

	for _, name := range p.ForceRemove {
		dead[name] = true
	}

	for _, n := range p.Nodes() {
		delete(dead, n.Name)
	}

	for _, other := range unplanned {
		delete(dead, other.Name)

		if other.Name == "" {
			nameless++
		}
	}

	return nameless <= len(dead)
}

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

	err = errors.Join(m.checkDeletable(c.Found), i.checkOnce(m.VMID))
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
func (m Machine) checkDeletable(f Found) error {
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

// firstWarning says that a VM was not warned of yet: its companions are looked at before it is.
func (i *Identities) firstWarning(vmid int) bool {
	i.mu.Lock()
	defer i.mu.Unlock()

	first := !i.warned[vmid]
	i.warned[vmid] = true

	return first
}

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

// Record says that a VM of the state was found to be ours.
func (i *Identities) Record(m Machine) {
	i.mu.Lock()
	defer i.mu.Unlock()

	i.known[m.VMID] = m
}

func (i *Identities) refuse(vmid int, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()

	i.foreign[vmid] = err
}

// machineOf reads a VM from its inputs: these have the UUID that the program chose, where outputs have what the
// provider found.
func machineOf(inputs resource.PropertyMap) Machine {
	m := Machine{
		VMID: int(hookutil.Number(inputs, "vmId")), Name: hookutil.String(inputs, "name"),
		Tags: hookutil.Strings(inputs, "tags"), Disks: DiskPositions(inputs),
	}

	// The provider has lost disks that it could not read: which ones the stack created is not known.
	if slices.Contains(m.Disks, "") {
		m.Disks = nil
	}

	if smbios := hookutil.Unwrap(inputs["smbios"]); smbios.IsObject() {
		m.UUID = hookutil.String(smbios.ObjectValue(), "uuid")
	}

	return m
}

// DiskPositions are those of the disks of a VM, as its inputs or its outputs have them.
func DiskPositions(values resource.PropertyMap) []string {
	var found []string
	for _, disk := range hookutil.Objects(values, "disks") {
		found = append(found, hookutil.String(disk, "interface"))
	}

	return found
}
