package changes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/talosimage"
	"talos-proxmox/components/wait"
)

// A machine configuration holds the keys of the cluster, and the provider hands it to whatever answers without a
// certificate at the node's address. So the program sends each configuration first: to a machine that has shown that it
// is our VM, or that it is a node of this cluster. What the provider sends after that goes to a node that has it
// already, and asks for a certificate.

// WaitAnswering runs before a node is configured for the first time: the provider would look only every ten seconds for
// a node that is not up yet.
func (r *Changes) WaitAnswering(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	n, err := r.Node(args)
	if err != nil {
		return err
	}

	if r.Plan.Apply == spec.ApplyStaged {
		return spec.StagedCannotConfigure(n.Name)
	}

	r.Limiter.AddJoining(n.Name)

	target := talosapi.Target{Name: n.Name, Address: hookutil.String(args.NewInputs, "node")}

	return talosapi.WaitAnswering(ctx, target, r.Plan.NodeTimeout, r.Progress)
}

// ConfigureExisting runs before a node is configured that the state knows no configuration of. A node of an imported
// cluster may run already, with another configuration: then this is a change like any other.
func (r *Changes) ConfigureExisting(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	c, err := r.readChange(ctx, args)
	if err == nil && c.node.Role == spec.RoleControlPlane {
		r.bootstrap.ExpectMember()
	}

	if err != nil || c.Address == "" || c.credentials == (talosapi.Credentials{}) || !r.Inventory.Exists(c.node) {
		return err
	}

	if r.DryRun {
		// What a node runs that is replaced is lost with it.
		if r.Plan.Replaces(c.Name) || talosapi.Unconfigured(ctx, c.Target) {
			return nil
		}

		return r.previewChange(ctx, c)
	}

	unconfigured, err := r.unconfigured(ctx, c)
	if err != nil || unconfigured || !talosapi.Founded(ctx, r.peersOf(c), c.credentials) {
		return err
	}

	return r.changeNode(ctx, c)
}

// unconfigured waits until a machine says whether it is one that waits for its first configuration.
func (r *Changes) unconfigured(ctx context.Context, c nodeChange) (unconfigured bool, err error) {
	err = wait.Until(ctx, r.Plan.NodeTimeout, r.Progress, func(ctx context.Context) error {
		err := talosapi.Answers(ctx, c.Target, c.credentials)
		if err == nil {
			return nil
		}

		if unconfigured = talosapi.Unconfigured(ctx, c.Target); unconfigured {
			return nil
		}

		return wait.For("%s to answer at %s (%v)", c.Name, c.Address, err)
	})
	if err != nil {
		err = fmt.Errorf("%s is not configured: %w", c.Name, err)
	}

	return unconfigured, err
}

// EjectISO runs before a node is configured, and takes the ISO file out of its drive.
func (r *Changes) EjectISO(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	n, err := r.Node(args)
	if err != nil {
		return err
	}

	if err := r.Identities.CheckNow(ctx, n); err != nil {
		return err
	}

	return proxmoxvm.EjectISO(ctx, r.Proxmox, n)
}

// Configure runs before the provider configures a node for the first time. It ends when the node runs with its
// configuration.
func (r *Changes) Configure(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	c, err := r.readChange(ctx, args)
	if err != nil {
		return err
	}

	if err := r.checkVersion(ctx, c); err != nil {
		return err
	}

	data, err := c.wanted.Bytes()
	if err != nil {
		return err
	}

	err = wait.Until(ctx, r.Plan.NodeTimeout, r.Progress, func(ctx context.Context) error {
		err := talosapi.Answers(ctx, c.Target, c.credentials)
		if err == nil {
			return nil
		}

		sent, final := r.configure(ctx, c, data)

		switch {
		case final != nil:
			return final
		case sent:
			return wait.For("%s to run with its configuration", c.Name)
		default:
			return wait.For("%s to answer at %s (%v)", c.Name, c.Address, err)
		}
	})
	if err != nil {
		return fmt.Errorf("%s is not configured: %w", c.Name, err)
	}

	return nil
}

// configure sends the first configuration to a machine in maintenance mode, on the connection on which it has shown
// that it is the node's VM. The error is final; all else may be tried again.
func (r *Changes) configure(ctx context.Context, c nodeChange, data []byte) (sent bool, final error) {
	machine, err := talosapi.ConnectMaintenance(ctx, c.Target)
	if err != nil {
		return false, nil //nolint:nilerr // it is not in maintenance mode, or not up
	}
	defer machine.Close()

	if !strings.EqualFold(machine.UUID, c.UUID) {
		return false, otherMachineError(c, machine.UUID)
	}

	if err := checkSecureBoot(machine.SecureBoot, talosimage.System(c.wanted).SecureBoot); err != nil {
		return false, err
	}

	err = machine.Apply(ctx, data)
	if errors.As(err, new(talosapi.RejectedError)) {
		return false, err
	}

	return err == nil, nil
}

// checkSecureBoot checks that a machine is not sent an installer whose system would not boot on it, or that promises
// what it does not do. It is the image that says how a machine boots, and the operator who says what the image is.
func checkSecureBoot(booted, wanted *bool) error {
	switch {
	case booted == nil || wanted == nil || *booted == *wanted:
		return nil
	case *booted:
		return errors.New("image.secureBoot: it was booted with SecureBoot, and would not start the unsigned system that " +
			"is to be installed; nothing was sent to it; set the key to true, or use an image without SecureBoot")
	default:
		return errors.New("image.secureBoot: it was booted without SecureBoot: its image does not support " +
			"SecureBoot, or its firmware has not enrolled the keys of the image; nothing was sent to it; set the " +
			"key to false, or use an image for " +
			"SecureBoot and an EFI disk without keys")
	}
}
