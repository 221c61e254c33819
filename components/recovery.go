package components

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"talos-proxmox/components/etcdbackup"
	"talos-proxmox/components/lifecycle"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// recovery is what a new etcd begins with; nil: it begins empty.
func recovery(p *plan.Plan, directory string) (*talosapi.Recovery, error) {
	if p.RecoverFrom == "" {
		return nil, nil
	}

	open := func() (*os.File, error) { return os.OpenInRoot(cmp.Or(directory, "."), p.RecoverFrom) }

	f, err := open()
	if err != nil {
		return nil, fmt.Errorf("cluster.recoverFrom: %w", err)
	}
	defer f.Close() //nolint:errcheck // read only

	s, err := etcdbackup.Read(f)
	if err != nil {
		return nil, fmt.Errorf("cluster.recoverFrom: nothing can be recovered from %s: %w", p.RecoverFrom, err)
	}

	return &talosapi.Recovery{Open: func() (io.ReadCloser, error) { return open() }, Raw: s.Raw, Bound: p.TransferTimeout}, nil
}

// recovers says whether the node goes because etcd is lost: there is a snapshot to begin with, and the operator has named all
// control planes that have a machine.
func (r *removal) recovers(l leaver) bool {
	return r.plan.RecoverFrom != "" && l.planned != nil && l.role == spec.RoleControlPlane &&
		!slices.ContainsFunc(r.plan.ControlPlanes(), func(n plan.Node) bool { return !r.absent[n.VMID] && !slices.Contains(r.plan.Replace, n.Name) })
}

// giveUp lets a control plane go whose etcd has lost its quorum: there is nobody to ask, and nothing to be kept in order. With
// a quorum, nothing needs to be recovered.
func (r *removal) giveUp(ctx context.Context, l leaver) error {
	refused := lifecycle.Refusal{
		Rule:   l.Name + " is not removed: etcd has its quorum, and nothing needs to be recovered",
		Remedy: "take out cluster.recoverFrom, and name one control plane at a time in lifecycle.replace",
	}

	quorate := func() bool {
		members, err := talosapi.EtcdMembers(ctx, r.controlPlanes(l), l.credentials)
		if err != nil {
			return false
		}

		return lifecycle.Departure{Members: members}.Quorate()
	}

	if r.ctx.DryRun() {
		if quorate() {
			return refused
		}

		return nil
	}

	// An election is no loss.
	err := wait.Until(ctx, r.plan.SettleTimeout, r.say, func(context.Context) (string, error) {
		if quorate() {
			return "", refused
		}

		return "etcd, whether it has lost its quorum for good", nil
	})
	if err == refused { //nolint:errorlint // it is not wrapped
		return err
	}

	r.say(l.Name + " goes: etcd has lost its quorum")

	return nil
}
