package talos

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/api/common"

	"talos-proxmox/tests/upstream"
)

var (
	errNoAddress = errors.New("the node has no address yet")
	errNoTime    = errors.New("time is not in sync yet")

	// Why a process of etcd ends, or does not start.
	errRemoved = errors.New("the member has been permanently removed from the cluster")
	errDamaged = errors.New("failed to read WAL, cannot be repaired: wal: crc mismatch")
	errKilled  = &upstream.Exited{Name: "etcd", Code: 137}
)

// etcdProcess is the etcd that runs on a node, or is about to be started again.
type etcdProcess struct {
	stop context.CancelFunc
	done chan struct{} // closed when nothing of it runs
}

// etcdRestart is how long Talos waits before it starts an etcd again that has ended by itself.
const etcdRestart = 5 * time.Second

// restarts is what Talos says of a process that has ended (Talos: internal/app/machined/pkg/system/runner/restart).
func restarts(err error) string {
	code := 1

	var exited *upstream.Exited
	if errors.As(err, &exited) {
		code = exited.Code
	}

	if code == 0 {
		return "Runner Containerd(etcd) exited without error, going to restart it"
	}

	return fmt.Sprintf(`Error running Containerd(etcd), going to restart forever: task "etcd" failed: exit code %d`, code)
}

// runEtcd is a control plane's etcd: it starts with the data on the disk, with those of a cluster it can join, or with
// what a bootstrap leaves.
func (n *node) runEtcd(ctx context.Context) {
	m := n.awaitMembership(ctx)
	if m == nil {
		return
	}

	n.fetch(ctx, common.ContainerdNamespace_NS_SYSTEM, n.config().Cluster().Etcd().Image(), true, func(err error) {
		n.services.set("etcd", statePreparing, err.Error(), nil)
	})

	for n.has(EtcdNotStarted) {
		if !pause(ctx, retry) {
			return
		}
	}

	up, _, grown := m.cluster.spans()
	if !n.wait("etcd", n.fw.opts.Latencies.Etcd, up, grown) {
		return
	}

	run, stop := context.WithCancel(ctx)
	p := &etcdProcess{stop: stop, done: make(chan struct{})}
	defer close(p.done)
	defer stop()

	n.mu.Lock()
	n.etcd = p
	n.mu.Unlock()

	for {
		err := n.runMember(run, m)
		if run.Err() != nil {
			return
		}

		n.logOnce("etcd: " + err.Error())
		n.services.set("etcd", "Waiting", restarts(err), nil)

		if !pause(run, etcdRestart) {
			return
		}
	}
}

// runMember runs the node's member, and what needs it, until it ends or is to end. It returns how it ended by itself.
func (n *node) runMember(ctx context.Context, m *membership) error {
	exited, err := m.cluster.start(m.id, imageTag(n.config().Cluster().Etcd().Image()), n.has(EtcdCutOff),
		n.name()+": etcd starts")
	if err != nil {
		return err
	}

	m.cluster.mu.Lock()
	if m.cluster.up == nil {
		m.cluster.up = n.span()
	}
	m.cluster.mu.Unlock()

	n.services.set("etcd", stateRunning, "Started task etcd", n.etcdHealth)

	run, stop := context.WithCancel(ctx)

	var parts sync.WaitGroup

	parts.Go(func() {
		if n.promote(run, m) {
			parts.Go(func() { n.runVIP(run, m) })
			n.runControlPlane(run, m)
		}
	})

	select {
	case <-run.Done():
	case err = <-exited:
		n.services.set("etcd", "Waiting", restarts(err), nil) // at once: what is below takes its time
	}

	stop()
	m.cluster.end(m.id, n.name()+": etcd stops ("+n.ending()+")")
	parts.Wait()

	return err
}

// promote waits until a learner has its vote, which Talos asks for on behalf of the node that joined (Talos:
// services/etcd.go, promoteMember). A voter has it already.
func (n *node) promote(ctx context.Context, m *membership) bool {
	for {
		if !n.has(EtcdLags) {
			learner, err := m.cluster.promote(m.id, n.name()+": etcd gets its vote")
			if learner {
				m.cluster.mu.Lock()
				m.cluster.grown = n.span()
				m.cluster.mu.Unlock()
			}

			if err == nil {
				n.kick.notify()

				return true
			}
		}

		if !pause(ctx, retry) {
			return false
		}
	}
}

func (n *node) membership() *membership {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.member
}

// awaitMembership waits for etcd data: those that are there, a bootstrap, or a cluster to join.
func (n *node) awaitMembership(ctx context.Context) *membership {
	for {
		if m := n.membership(); m != nil {
			return m
		}

		if m := n.joinEtcd(ctx); m != nil && n.setMembership(m) {
			return m
		}

		select {
		case <-n.starting:
		default:
			if !pause(ctx, retry) {
				return nil
			}
		}
	}
}

// setMembership writes etcd data to the disk, unless there are some already.
func (n *node) setMembership(m *membership) bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.member != nil {
		return false
	}

	n.member = m
	n.store(func(i *Installed) { i.etcd = m })

	return true
}

// stopEtcd ends the node's etcd, and forgets its data if they are of no use any more.
func (n *node) stopEtcd(forget bool) {
	n.mu.Lock()
	p := n.etcd
	n.mu.Unlock()

	if p != nil {
		p.stop()
		<-p.done
	}

	n.services.set("etcd", stateFinished, "Service finished successfully", nil)

	if forget {
		n.wipeEtcd()
		n.mu.Lock()
		n.member = nil
		n.store(func(i *Installed) { i.etcd = nil })
		n.mu.Unlock()
	}
}

// wipeEtcd deletes the node's etcd data.
func (n *node) wipeEtcd() {
	if m := n.membership(); m != nil {
		m.cluster.wipe(m.id)
	}
}

// joinEtcd asks the control planes that can be found to take the node into their cluster, nil when none does. Their
// peer protocol is not spoken: what it would find out, that a member with the same CA runs at the address, is looked
// up.
func (n *node) joinEtcd(ctx context.Context) *membership {
	c := n.otherEtcd(ctx)
	if c == nil {
		return nil
	}

	host, _ := n.fqdn()

	id, err := c.join(host, n.address())
	if err != nil {
		n.logOnce("failed to build initial etcd cluster: " + err.Error())

		return nil
	}

	return &membership{cluster: c, id: id}
}

// otherEtcd finds the etcd cluster of the node's other control planes, nil when none of them runs.
func (n *node) otherEtcd(ctx context.Context) *etcdCluster {
	peers, err := n.controlPlanes(ctx)
	if err != nil {
		return nil
	}

	for _, peer := range peers {
		address, err := netip.ParseAddr(peer)
		if err != nil {
			continue
		}

		if c := n.fw.etcdAt(address); c != nil && c.ca == n.etcdCA() {
			return c
		}
	}

	return nil
}

// etcdAt returns the cluster of the member that runs at an address, nil when none does.
func (f *Firmware) etcdAt(address netip.Addr) *etcdCluster {
	for _, n := range f.nodes() {
		if !n.owns(address.String()) || !n.services.running("etcd") {
			continue
		}

		if m := n.membership(); m != nil {
			return m.cluster
		}
	}

	return nil
}

// etcdCA identifies the CA of the etcd cluster that the node's configuration belongs to.
func (n *node) etcdCA() string {
	ca := n.config().Cluster().Etcd().CA()
	if ca == nil {
		return ""
	}

	sum, err := x509.SPKIFingerprintFromPEM(ca.Crt)
	if err != nil {
		return ""
	}

	return sum.String()
}

// etcdHealth is the health check of the etcd service: a member that does not answer its clients is not healthy.
func (n *node) etcdHealth() string {
	m := n.membership()
	if m == nil {
		return "etcd is not running"
	}

	if err := m.cluster.answers(m.id); err != nil {
		return err.Error()
	}

	return ""
}
