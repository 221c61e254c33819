package sequence

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"time"

	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/talos"
)

// Kind is a kind of thing that goes wrong.
type Kind string

// The kinds.
const (
	// CallFails is a call that fails, or a few of them.
	CallFails Kind = "call fails"
	// Killed is the end of the pulumi CLI in the middle of the update, by SIGKILL.
	Killed Kind = "killed"
	// EtcdCut is a member of etcd that is cut off before the update begins, until it has ended.
	EtcdCut Kind = "etcd cut off"
	// EtcdBlinks is a member that is cut off for a moment while the update runs.
	EtcdBlinks Kind = "etcd blinks"
	// NodeFails is a node that does not come back from an upgrade or a reboot as it should.
	NodeFails Kind = "node fails"
	// ImageGone is an image that cannot be had.
	ImageGone Kind = "image withdrawn"
)

// Fault is what goes wrong in a step.
type Fault struct {
	Kind Kind `json:",omitempty"`
	// Node that it befalls, where it befalls one.
	Node string `json:",omitempty"`
	// How the node fails.
	How talos.Fault `json:",omitempty"`
	// Call that fails: its face, what matches it, in which way; so many pass before, and so many fail.
	Face    journal.Face `json:",omitempty"`
	Pattern string       `json:",omitempty"`
	Effect  journal.Kind `json:",omitempty"`
	Skip    int          `json:",omitempty"`
	Times   int          `json:",omitempty"`
	// After an event, or after Skip calls, and so much time: the moment at which the CLI is killed, or etcd blinks.
	Event talos.EventKind `json:",omitempty"`
	After time.Duration   `json:",omitempty"`
	// Image is the end of its name.
	Image string `json:",omitempty"`
}

func (f Fault) String() string {
	moment := fmt.Sprintf("after %d calls", f.Skip)
	if f.Event != "" {
		moment = "at the first " + string(f.Event)
	}

	switch f.Kind {
	case CallFails:
		return fmt.Sprintf("%s %s: %s, %d times after %d", f.Face, f.Pattern, f.Effect, f.Times, f.Skip)
	case Killed:
		return fmt.Sprintf("killed %s, %s later", moment, f.After)
	case EtcdBlinks:
		return fmt.Sprintf("etcd of %s is cut off for a moment %s", f.Node, moment)
	case NodeFails:
		return fmt.Sprintf("%s: %s", f.Node, f.How)
	case ImageGone:
		return f.Image + " is withdrawn"
	case EtcdCut:
	}

	return fmt.Sprintf("%s: %s", f.Node, f.Kind)
}

// call is a kind of call that may fail.
type call struct {
	face    journal.Face
	pattern string
	effects []journal.Kind
}

// The calls that may fail: those that every change makes, and those that belong to what becomes of a node.
var (
	reads  = []journal.Kind{journal.Refuse, journal.Reset, journal.Stall}
	writes = append([]journal.Kind{journal.LoseReply}, reads...)

	often = []call{
		{journal.Talos, `/Version$`, reads},
		{journal.Talos, `/cosi\.resource\.State/(Get|List)$`, reads},
		{journal.Talos, `/Kubeconfig$`, reads},
		{journal.Proxmox, `^GET /cluster/resources`, reads},
		{journal.Proxmox, `^GET /nodes/[^/]+/qemu/\d+/(config|status/current)$`, reads},
	}
	etcd = []call{
		{journal.Talos, `/EtcdMemberList$`, reads},
		{journal.Talos, `/EtcdStatus$`, reads},
		{journal.Talos, `/EtcdSnapshot$`, reads},
		{journal.Talos, `/EtcdAlarmList$`, reads},
	}
	drains = []call{
		{journal.Kubernetes, `^PATCH /api/v1/nodes/[^/]+$`, writes},
		{journal.Kubernetes, `/eviction$`, writes},
		{journal.Kubernetes, `^GET /api/v1/nodes/[^/]+$`, reads},
	}
	by = map[Effect][]call{
		Live:   {{journal.Talos, `/ApplyConfiguration$`, writes}},
		Reboot: slices.Concat(etcd, drains, []call{{journal.Talos, `/(Reboot|ApplyConfiguration)$`, writes}}),
		Upgrade: slices.Concat(etcd, drains,
			[]call{{journal.Talos, `/Upgrade$`, writes}, {journal.Talos, `/ApplyConfiguration$`, writes}}),
		Remove:  slices.Concat(etcd, drains, leaves),
		Replace: slices.Concat(etcd, drains, leaves, comes),
		Create:  comes,
	}
	leaves = []call{
		{journal.Talos, `/EtcdLeaveCluster$`, writes},
		{journal.Talos, `/EtcdForfeitLeadership$`, writes},
		{journal.Talos, `/Reset$`, writes},
		{journal.Talos, `/EtcdRemoveMemberByID$`, writes},
		{journal.Kubernetes, `^DELETE /api/v1/nodes/`, writes},
		{journal.Proxmox, `^(POST /nodes/[^/]+/qemu/\d+/status/(stop|shutdown)|DELETE /nodes/[^/]+/qemu/\d+)$`, reads},
	}
	resizes = []call{
		{journal.Proxmox, `^(PUT|POST) /nodes/[^/]+/qemu/\d+/config$`, reads},
		{journal.Proxmox, `^POST /nodes/[^/]+/qemu/\d+/status/reboot$`, reads},
	}
	comes = []call{
		{journal.Proxmox, `^POST /nodes/[^/]+/qemu/\d+/status/start$`, reads},
		{journal.Talos, `/ApplyConfiguration$`, writes},
	}
)

// stall is how long a call hangs.
const stall = 3 * time.Second

// drawFault draws what goes wrong with a change.
func drawFault(r *rand.Rand, m *Model, to Config) Fault {
	f := m.Foresee(to)
	if f.Refused != "" || r.IntN(5) < 2 {
		return Fault{}
	}

	does := map[Effect][]string{}
	for _, name := range slices.Sorted(maps.Keys(f.Effects)) {
		does[f.Effects[name]] = append(does[f.Effects[name]], name)
	}

	delete(does, None)

	if len(does) == 0 {
		return Fault{}
	}

	down := append(slices.Clone(does[Upgrade]), does[Reboot]...)
	resized := to.MemoryMiB != m.Asked.MemoryMiB
	moment := func(f Fault) Fault {
		if f.Skip = r.IntN(120); r.IntN(3) > 0 {
			f.Event, f.Skip = eventOf(r, does), 0
		}

		if resized && f.Event == talos.Rebooted {
			f.Event = talos.WasShutDown
		}

		return f
	}

	switch n := r.IntN(20); {
	case n < 5:
		return moment(Fault{Kind: Killed, After: time.Duration(r.IntN(500)) * time.Millisecond})
	case n < 9 && len(down) > 0:
		hows := []talos.Fault{talos.NeverReturns}
		if len(does[Upgrade]) > 0 {
			hows = []talos.Fault{
				talos.InstallerFails, talos.InstallerFails, talos.UpgradeFallsBack, talos.UpgradeFallsBack,
				talos.NeverReturns,
			}
		}

		return Fault{Kind: NodeFails, Node: down[r.IntN(len(down))], How: hows[r.IntN(len(hows))]}
	case n < 12 && len(m.Asked.Controls) > 2:
		node := control(m.Asked.Controls[r.IntN(len(m.Asked.Controls))])

		if r.IntN(3) == 0 {
			return moment(Fault{Kind: EtcdBlinks, Node: node})
		}

		return Fault{Kind: EtcdCut, Node: node}
	case n < 14 && to.Kubernetes != m.Asked.Kubernetes:
		images := []string{"kube-apiserver", "kube-scheduler", "kubelet"}

		return Fault{Kind: ImageGone, Image: images[r.IntN(len(images))] + ":" + to.Kubernetes}
	}

	possible := slices.Clone(often)
	for _, e := range slices.Sorted(maps.Keys(does)) {
		possible = append(possible, by[e]...)
	}

	if resized {
		possible = append(possible, resizes...)
	}

	c := possible[r.IntN(len(possible))]

	return Fault{
		Kind: CallFails, Face: c.face, Pattern: c.pattern, Effect: c.effects[r.IntN(len(c.effects))],
		Skip: r.IntN(4), Times: 1 + r.IntN(2),
	}
}

// eventOf is one that the change brings about.
func eventOf(r *rand.Rand, does map[Effect][]string) talos.EventKind {
	var events []talos.EventKind

	for _, e := range slices.Sorted(maps.Keys(does)) {
		events = append(events, map[Effect][]talos.EventKind{
			Live: {talos.Applied}, Reboot: {talos.Rebooted}, Upgrade: {talos.Upgraded}, Remove: {talos.WasReset},
			Replace: {talos.WasReset, talos.Booted},
			Create:  {talos.Booted},
		}[e]...)
	}

	return events[r.IntN(len(events))]
}

// fault is the journal's.
func (f Fault) planted() journal.Fault {
	return journal.Fault{
		Face: f.Face, Call: regexp.MustCompile(f.Pattern), Kind: f.Effect, Skip: f.Skip, Times: f.Times, For: stall,
		Message: "it is Tuesday",
	}
}
