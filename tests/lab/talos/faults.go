package talos

import "time"

// Fault is something that is wrong with a node, from [Firmware.Break] to [Firmware.Mend], across its reboots. Calls
// that fail are planted in the journal instead.
type Fault string

// The faults that a node can have.
const (
	// EtcdCutOff keeps a node's etcd from reaching the other members, and them from reaching it.
	EtcdCutOff Fault = "etcd cut off"
	// EtcdLags keeps a learner from catching up, and so from getting its vote.
	EtcdLags Fault = "etcd lags"
	// EtcdNotStarted keeps the etcd of a node that boots from starting: its service goes on preparing itself.
	EtcdNotStarted Fault = "etcd not started"
	// EtcdNoSpace raises the alarm of a member that is out of space: etcd takes no writes any more. It is disarmed by
	// the API, and raised once by each Break.
	EtcdNoSpace Fault = "etcd out of space"
	// EtcdCorrupt damages the log of a node's etcd, once by each Break: it does not start again.
	EtcdCorrupt Fault = "etcd corrupt"
	// EtcdCrashes ends the process of a node's etcd, once by each Break. Talos starts it again.
	EtcdCrashes Fault = "etcd crashes"
	// EtcdInconsistent gives a node's etcd other data than the others have, once by each Break. etcd finds it out, and
	// raises an alarm for the member: it takes no writes any more.
	EtcdInconsistent Fault = "etcd inconsistent"
	// ClockUnset lets no time server answer a node: it makes no certificate for its API until its clock is right, and so
	// does not answer (Talos: controllers/secrets/api.go).
	ClockUnset Fault = "clock unset"
	// ClockBehind sets a node's clock five hours back: what is newer is not valid yet. A control plane refuses clients,
	// and a worker gets no certificate for its API.
	ClockBehind Fault = "clock behind"
	// KubeletDies ends a node's kubelet for the rest of the boot. What runs on the node goes on, and does not end
	// when it is told to.
	KubeletDies Fault = "kubelet dies"
	// InstallerFails lets the installer of an upgrade fail: the node reboots into the system that it had.
	InstallerFails Fault = "installer fails"
	// UpgradeFallsBack keeps a new system from coming up: the boot loader goes back to the one before.
	UpgradeFallsBack Fault = "upgrade falls back"
	// NeverReturns lets the next boots of a node hang. Once mended, it needs a reset of its VM.
	NeverReturns Fault = "never returns"
)

// Break gives a node, by the name of its VM, a fault. It has struck when Break returns.
func (f *Firmware) Break(node string, fault Fault) { f.setFault(node, fault, true) }

// Mend takes a fault away.
func (f *Firmware) Mend(node string, fault Fault) { f.setFault(node, fault, false) }

func (f *Firmware) setFault(name string, fault Fault, broken bool) {
	f.mu.Lock()
	if f.faults[name] == nil {
		f.faults[name] = map[Fault]bool{}
	}

	f.faults[name][fault] = broken
	f.mu.Unlock()

	for _, n := range f.nodes() {
		if n.name() == name && fault == KubeletDies && broken {
			n.killKubelet()
		}

		if m := n.membership(); m != nil && n.name() == name {
			m.strike(n, fault, broken)
		}
	}
}

// strike lets a fault of etcd's act on a member that runs.
func (m *membership) strike(n *node, fault Fault, broken bool) {
	switch fault {
	case EtcdCutOff:
		cause := n.name() + ": etcd is connected again"
		if broken {
			cause = n.name() + ": etcd is cut off"
		}

		m.cluster.setCut(m.id, broken, cause)
	case EtcdNoSpace:
		if broken {
			m.cluster.alarm(m.id)
		}
	case EtcdCorrupt, EtcdInconsistent, EtcdCrashes:
		if !broken {
			return
		}

		do := map[Fault]func(id uint64, cause string) error{
			EtcdCorrupt: m.cluster.damageLog, EtcdInconsistent: m.cluster.damageStore, EtcdCrashes: m.cluster.kill,
		}[fault]

		if err := do(m.id, n.name()+": "+string(fault)); err != nil {
			n.sys.log("%s: %v", fault, err)
		}
	// Looked at when it comes to that.
	case EtcdLags, EtcdNotStarted, ClockUnset, ClockBehind, KubeletDies, InstallerFails, UpgradeFallsBack, NeverReturns:
	}

	n.kick.notify()
}

// behind is how far a clock is with [ClockBehind].
const behind = 5 * time.Hour

// now is what the node's clock shows.
func (n *node) now() time.Time {
	if n.has(ClockBehind) {
		return time.Now().Add(-behind)
	}

	return time.Now()
}

// has tells whether the node has a fault.
func (n *node) has(fault Fault) bool {
	n.fw.mu.Lock()
	defer n.fw.mu.Unlock()

	return n.fw.faults[n.name()][fault]
}
