package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
)

// Quorum is what all control planes together tell of etcd.
type Quorum struct {
	// Members as one of the control planes lists them; none where no etcd answers.
	Members []etcd.Member
	// unreachable are control planes that do not answer, and whose VM is not known to be off: they may be a quorum.
	unreachable []string
	// Planned is how many control planes there are.
	Planned int
}

// AskQuorum asks all control planes at once, and Proxmox VE for their VMs.
func (c *Cluster) AskQuorum(ctx context.Context, credentials talosapi.Credentials,
	address func(plan.Node) string,
) Quorum {
	all := c.Plan.ControlPlanes()
	q := Quorum{Planned: len(all)}
	answers, off := make([]bool, len(all)), make([]bool, len(all))

	var asked sync.WaitGroup

	for i, n := range all {
		asked.Go(func() {
			t := talosapi.Target{Name: n.Name, Address: address(n)}
			answers[i] = t.Address != "" && talosapi.Answers(ctx, t, credentials) == nil
		})
		asked.Go(func() {
			v, there, err := c.Proxmox.Find(ctx, n.VMID)
			off[i] = err == nil && (!there || v.Stopped)
		})
	}

	asked.Wait()

	var answering []talosapi.Target

	for i, n := range all {
		switch {
		case answers[i]:
			answering = append(answering, talosapi.Target{Name: n.Name, Address: address(n)})
		case !off[i]:
			q.unreachable = append(q.unreachable, n.Name)
		}
	}

	// Where none lists them, those that answer are not of a quorum: only the others may be.
	q.Members, _ = talosapi.EtcdMembers(ctx, answering, credentials)

	return q
}

// WhyUnknown is why it is not known that etcd has lost its quorum, nil when it has.
func (q Quorum) WhyUnknown(node string) error {
	if len(q.unreachable) < etcd.QuorumSize(q.Planned) {
		return nil
	}

	return spec.Blocked(
		fmt.Sprintf("etcd does not answer, and it is unknown whether it needs %s: %s may still have a quorum with it",
			node,
			strings.Join(q.unreachable, ", ")),
		"make sure that this machine reaches the control planes; switch off the VMs of those that are broken; then "+
			"run 'pulumi "+
			"up' again",
	)
}
