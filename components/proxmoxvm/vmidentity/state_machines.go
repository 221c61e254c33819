package vmidentity

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/tokens"
)

// ReadStateAfter reads the state when a resource is registered: the engine reads no state that is empty. What could not
// be read is reported where it is needed. Call it before resources with hooks are registered.
func (i *Identities) ReadStateAfter(r pulumi.Resource) {
	i.reads = true

	r.URN().ApplyT(func(pulumi.URN) error {
		i.readOnce()

		return nil
	})
}

// ReleasedOutput is the output of a cluster's component that names the cluster where the last update has released it.
const ReleasedOutput = "released"

// ImportedOutput is the output of a node's component that says that its VM was imported, and that no update has
// registered it since. The update that does gives the component its own outputs, after the VM.
const ImportedOutput = "imported"

// afterRelease is why no node of a cluster is deleted by the update after it was released or imported: hooks that run
// before a deletion are those of the state.
const afterRelease = "cannot take effect in the first update after one with lifecycle.teardown, or after an import: " +
	"the state has no hooks yet that drain a node, take it out of etcd and compare its VM before it is deleted"

// CheckReleased refuses to delete nodes while the state has no hooks for it, because the cluster was released or the VM
// was imported: nodes that have left the plan, and those that are replaced for the first time.
func (i *Identities) CheckReleased() error {
	if i.plan.Teardown {
		return nil
	}

	i.readOnce()

	i.mu.Lock()
	defer i.mu.Unlock()

	if i.unread != nil && !i.ctx.DryRun() {
		return i.checkNoneDeleted(i.unread)
	}

	for _, name := range slices.Sorted(maps.Keys(i.state)) {
		m := i.state[name]
		if !Tagged(m.Tags, OwnerTags(i.plan)) || !i.released && !m.imported {
			continue
		}

		switch _, n, planned := NodeByVMID(i.plan, m.VMID); {
		case !planned:
			return spec.Problem{
				Path: "pools", Rule: "the removal of a node " + afterRelease, Value: m.Name,
				Remedy: "put the node back, run 'pulumi up', then remove it",
			}
		case m.replaced || !i.plan.Replaces(n.Name):
		case i.plan.DeclaredDead(n.Name):
			// No update that the node is to take part in would give its VM hooks.
			if err := i.ctx.Log.Warn(deadNode(n.Name,
				"has no hooks yet that take its node out of the cluster", n.Name), nil); err != nil {
				return err
			}
		default:
			return spec.Problem{
				Path: "lifecycle.replace", Rule: afterRelease, Value: n.Name,
				Remedy: "take it out of the list, run 'pulumi up', then name it again; or, if the node is dead, name it in " +
					"lifecycle.forceRemove, too",
			}
		}
	}

	return nil
}

// checkNoneDeleted refuses to delete nodes while it is not known whether the state has the hooks for it.
func (i *Identities) checkNoneDeleted(unread error) error {
	leaving, err := i.unplannedVMs(i.ctx.Context())
	if err != nil {
		return err
	}

	deleted := slices.Clone(i.plan.Replace)
	for _, v := range leaving {
		deleted = append(deleted, v.Label())
	}

	if len(deleted) == 0 {
		return nil
	}

	return spec.Problem{
		Path: "pools", Value: strings.Join(deleted, ", "),
		Rule: fmt.Sprintf("could not determine whether the state has the hooks that run before a node is deleted: %v",
			unread),
		Remedy: "run 'pulumi up' again; if the state is lost, restore it first",
	}
}

// readOnce reads the VMs of the state, as it is when the run begins. What leaves the cluster before its VM is deleted
// is known by its name alone: the engine tells no hook about another resource.
func (i *Identities) readOnce() {
	i.once.Do(func() {
		defer close(i.read)

		found, records, released, err := i.readState()

		i.mu.Lock()
		defer i.mu.Unlock()

		i.state, i.records, i.released, i.unread = found, records, released, err
	})
}

func (i *Identities) readState() (found map[string]stateMachine, records map[string]bool, released bool, err error) {
	var read struct {
		Outputs map[string]any `pulumi:"outputs"`
	}

	// The name alone is the one that backends without organizations have always known.
	stack := i.ctx.Stack()
	if organization := i.ctx.Organization(); organization != "organization" {
		stack = strings.Join([]string{organization, i.ctx.Project(), stack}, "/")
	}

	// What is secret in the outputs of others stays here.
	if _, err := i.ctx.InvokePackageRaw("pulumi:pulumi:readStackResourceOutputs",
		map[string]any{"stackName": stack}, &read, ""); err != nil {
		return nil, nil, false, fmt.Errorf("the engine could not read the state: %w", err)
	}

	found, records = map[string]stateMachine{}, map[string]bool{}
	setUp, imported := map[string]string{}, map[string]bool{}

	for urn, value := range read.Outputs {
		kept, _ := value.(map[string]any)
		outputs, _ := kept["outputs"].(map[string]any)
		name := urn[strings.LastIndex(urn, "::")+2:]

		if node, is := strings.CutSuffix(name, tokens.ConfigurationSuffix); is && kept["type"] == tokens.Configuration {
			setUp[node+tokens.VMSuffix] = ""
		}

		if kept["type"] == tokens.Stash {
			records[name] = true
		}

		if node, is := strings.CutSuffix(name, tokens.JoinedSuffix); is && kept["type"] == tokens.Stash {
			joined, _ := outputs["input"].(map[string]any)
			setUp[node+tokens.VMSuffix], _ = joined["uuid"].(string)
		}

		switch kept["type"] {
		case tokens.TalosCluster, tokens.K3sCluster:
			released = released || outputs[ReleasedOutput] == i.plan.Cluster
		case tokens.TalosNode, tokens.K3sNode:
			imported[name+tokens.VMSuffix] = outputs[ImportedOutput] == true
		}

		if kept["type"] != tokens.VM || outputs == nil {
			continue
		}

		properties := resource.NewPropertyMapFromMap(outputs)

		m := machineOf(properties)
		if m.UUID == "" {
			// Of the copy of a template, the provider reads no UUID.
			m.UUID = recordedUUID(hookutil.String(properties, "description"))
		}

		found[name] = stateMachine{
			Machine: m, urn: pulumi.URN(urn),
			replaced: int(hookutil.Number(properties, ReplaceMark)) == ReplacedTimeout,
		}
	}

	for name, m := range found {
		m.setUpOn, m.setUp = setUp[name]
		m.imported = imported[name]
		found[name] = m
	}

	return found, records, released, nil
}

// waitRead waits until the state was read. Its error says why it was not.
func (i *Identities) waitRead(ctx context.Context) error {
	select {
	case <-i.read:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
	case <-time.After(i.plan.NodeTimeout):
		return fmt.Errorf("%w: the state was not read within %s", ErrUnknown, i.plan.NodeTimeout)
	}

	i.mu.Lock()
	defer i.mu.Unlock()

	if i.unread != nil {
		return fmt.Errorf("%w: %w", ErrUnknown, i.unread)
	}

	return nil
}

// stateMachine is the VM that the state has with a VMID; false where it has none, or where this run does not read it.
func (i *Identities) stateMachine(ctx context.Context, vmid int) (stateMachine, bool, error) {
	if !i.reads {
		return stateMachine{}, false, nil
	}

	if err := i.waitRead(ctx); err != nil {
		return stateMachine{}, false, err
	}

	i.mu.Lock()
	defer i.mu.Unlock()

	m, there := i.byVMID(vmid)

	return m, there, nil
}

// byVMID is the VM that the state has with a VMID, the cluster's own if another cluster of the stack has one, too, on
// another Proxmox VE. The caller holds the lock.
func (i *Identities) byVMID(vmid int) (found stateMachine, there bool) {
	for _, m := range i.state {
		if m.VMID == vmid && (!there || Tagged(m.Tags, OwnerTags(i.plan))) {
			found, there = m, true
		}
	}

	return found, there
}

// resources are the names of the cluster's VMs that the state has with a VMID; none where this run has not read it.
func (i *Identities) resources(vmid int) (names []string) {
	i.mu.Lock()
	defer i.mu.Unlock()

	for name, m := range i.state {
		if m.VMID == vmid && Tagged(m.Tags, OwnerTags(i.plan)) {
			names = append(names, name)
		}
	}

	slices.Sort(names)

	return names
}

// InStack says that a VM has the VMID of a node, or of a VM of the state. Where this run does not read the state, as in
// previews, the tags of the cluster decide.
func (i *Identities) InStack(ctx context.Context, v proxmoxapi.VM) (bool, error) {
	if _, _, planned := NodeByVMID(i.plan, v.ID); planned {
		return true, nil
	}

	if !i.reads {
		return OfCluster(v, i.plan), nil
	}

	_, there, err := i.stateMachine(ctx, v.ID)

	return there, err
}

// CheckOthers looks at the configuration of each VM that is not this stack's and may use a thing that is to be changed
// or deleted. It returns the first error of uses, which is told why a configuration could not be read.
func (i *Identities) CheckOthers(ctx context.Context, may func(proxmoxapi.VM) bool,
	uses func(v proxmoxapi.VM, config proxmoxapi.VMConfig, unread error) error,
) error {
	all, err := i.proxmox.VMs(ctx)
	if err != nil {
		return err
	}

	for _, v := range all {
		if v.Container || !may(v) {
			continue
		}

		ours, err := i.InStack(ctx, v)
		if err != nil {
			return err
		}

		if ours {
			continue
		}

		config, unread := i.proxmox.Config(ctx, v)
		if err := uses(v, config, unread); err != nil {
			return err
		}
	}

	return nil
}

// ErrUnknown is what CheckDeletion reports where it is not known which VM it is about.
var ErrUnknown = errors.New("could not determine which VM the state has")

// Replaced says that the VM of the state was made for the entry of lifecycle.replace that is there still. name is that
// of the VM's resource.
func (i *Identities) Replaced(name string) (bool, error) {
	i.readOnce()

	i.mu.Lock()
	defer i.mu.Unlock()

	return i.state[name].replaced, i.unread
}

// Recorded says that the state had a record, a Stash of this name, when the run began; false where this run does not
// read the state.
func (i *Identities) Recorded(ctx context.Context, name string) (bool, error) {
	if !i.reads {
		return false, nil
	}

	if err := i.waitRead(ctx); err != nil {
		return false, err
	}

	i.mu.Lock()
	defer i.mu.Unlock()

	return i.records[name], nil
}

// StateUUID is the UUID that the VM of the state has; empty: that is not known. name is that of the VM's resource.
func (i *Identities) StateUUID(ctx context.Context, name string) string {
	if i == nil || i.waitRead(ctx) != nil {
		return ""
	}

	i.mu.Lock()
	defer i.mu.Unlock()

	return i.state[name].UUID
}
