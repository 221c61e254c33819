package proxmoxvm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/tokens"
)

// stateMachine is a VM as the state had it when the run began.
type stateMachine struct {
	Machine
	urn pulumi.URN
}

// ReadState reads the VMs of the state. What leaves the cluster before its VM is deleted is known by its name alone:
// the engine tells no hook about another resource. Call it while the program runs, and once a resource of the stack was
// registered: the engine reads no state that is empty. What it could not read, CheckLeaving reports.
func (i *Identities) ReadState() {
	defer close(i.read)

	found, err := i.readState()

	i.mu.Lock()
	defer i.mu.Unlock()

	i.state, i.unread = found, err
}

func (i *Identities) readState() (map[string]stateMachine, error) {
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
		return nil, fmt.Errorf("the engine does not tell what the state has: %w", err)
	}

	found := map[string]stateMachine{}

	for urn, value := range read.Outputs {
		kept, _ := value.(map[string]any)
		outputs, _ := kept["outputs"].(map[string]any)

		if kept["type"] != tokens.VM || outputs == nil {
			continue
		}

		properties := resource.NewPropertyMapFromMap(outputs)

		m := machineOf(properties)
		if m.UUID == "" {
			// Of the copy of a template, the provider reads no UUID.
			m.UUID = statedUUID(hookutil.String(properties, "description"))
		}

		found[urn[strings.LastIndex(urn, "::")+2:]] = stateMachine{m, pulumi.URN(urn)}
	}

	return found, nil
}

// ErrUnknown is what CheckLeaving reports where it is not known which VM it is about.
var ErrUnknown = errors.New("which VM the state has is not known")

// CheckLeaving says why what runs in a VM of the state must not be taken down before the VM is deleted: another VM has
// its VMID. It asks Proxmox VE again. name is that of the VM's resource. The UUID is the one that the VM shows, or that no
// machine shows.
func (i *Identities) CheckLeaving(ctx context.Context, name string) (uuid string, err error) {
	select {
	case <-i.read:
	case <-ctx.Done():
	case <-time.After(i.plan.NodeTimeout):
	}

	i.mu.Lock()
	m, known := i.state[name]
	unread := i.unread
	i.mu.Unlock()

	switch {
	case unread != nil:
		return noUUID, fmt.Errorf("%s: %w: %w", strings.TrimSuffix(name, tokens.VMSuffix), ErrUnknown, unread)
	case !known:
		return noUUID, fmt.Errorf("%s: %w", strings.TrimSuffix(name, tokens.VMSuffix), ErrUnknown)
	}

	c := m.Compare(ctx, i.proxmox, OwnerTags(i.plan))
	if c.Verdict == VerdictUnknown {
		return noUUID, fmt.Errorf("%s: %w: %s", m.Name, ErrUnknown, c.Why)
	}

	return cmp.Or(c.UUID, noUUID), i.evaluate(m.Machine, c, m.urn)
}

// noUUID is the UUID of no machine.
const noUUID = "of no VM"
