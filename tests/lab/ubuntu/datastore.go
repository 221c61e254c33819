package ubuntu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/tests/lab/etcdrules"
)

// What etcd keeps on the disk of a server (K3s: pkg/etcd, etcd.go).
const (
	etcdDir = "/var/lib/rancher/k3s/server/db/etcd"
	// walFile stands for the log of etcd, by which K3s knows that it has been up before. It names the cluster.
	walFile = etcdDir + "/member/wal"
	// nameFile is the name of the member.
	nameFile = etcdDir + "/name"
)

// What K3s says on a Node about its member of etcd (K3s: pkg/etcd, member_controller.go, metadata_controller.go).
const (
	etcdRole          = "node-role.kubernetes.io/etcd"
	memberName        = "etcd.k3s.cattle.io/node-name"
	memberAddress     = "etcd.k3s.cattle.io/node-address"
	removeMember      = "etcd.k3s.cattle.io/remove"
	removedMember     = "etcd.k3s.cattle.io/removed-node-name"
	memberFinalizer   = "wrangler.cattle.io/managed-etcd-controller"
	promoted          = corev1.NodeConditionType("EtcdIsVoter")
	controllerRetries = 100 * time.Millisecond
)

// member is one of etcd.
type member struct{ name, node, address string }

// datastore is the etcd of a cluster: the lab's model of it, or members as they are released.
type datastore interface {
	// add makes a server a member, and runs it.
	add(ctx context.Context, m member) error
	// start runs a member again; errRemoved: it is none any more.
	start(ctx context.Context, name string) error
	// stop ends a member as a power failure does.
	stop(name string)
	// remove removes a member by its name and its address, and tells whether there was one.
	remove(name, address string) (bool, error)
	// ended is closed when a member has ended by itself.
	ended(name string) <-chan struct{}
	// answers says why a member does not answer its clients.
	answers(name string) error
	// voters are the members with a vote.
	voters() []member
	// snapshot is what a member stores.
	snapshot(name string) ([]byte, error)
}

var (
	errRemoved   = errors.New("the member has been permanently removed from the cluster")
	errDuplicate = errors.New("duplicate node name found, please use a unique name for this node")
	errNoLeader  = etcdrules.ErrNoLeader
)

// sameNode tells whether another member is one of the same node: K3s takes the second for a mistake (K3s:
// pkg/etcd/etcd.go, join).
func (m member) sameNode(other member) bool { return m.node == other.node }

// healthy is what the API of a server says of its etcd.
func (c *cluster) healthy(k *service) error { return c.etcd.answers(k.memberName()) }

// Members are the names of the nodes whose servers are members of etcd, of each cluster that has ever been.
func (f *Firmware) Members() [][]string {
	var all [][]string

	for _, c := range f.all() {
		all = append(all, c.voters())
	}

	return all
}

func (c *cluster) voters() []string {
	names := []string{}
	for _, m := range c.etcd.voters() {
		names = append(names, m.node)
	}

	slices.Sort(names)

	return names
}

// resume goes on with the etcd on the disk, and says whether there is one. The data of a member that was removed
// meanwhile are put aside, and the server begins as one that has never been up (K3s: pkg/etcd, the tombstone).
func (k *service) resume() (bool, error) {
	id, there := k.sys.on.files.read(walFile)
	if !there {
		return false, nil
	}

	c := k.sys.fw.clusterBy(id)
	if c == nil {
		return false, fmt.Errorf("the lab has never had the cluster %s", id)
	}

	name, _ := k.sys.on.files.read(nameFile)

	token, err := passwordOf(k.config.Token, c.files["server-ca.crt"])
	if err != nil {
		return false, err
	}

	if c.token != token {
		return false, errors.New("bootstrap data already found and encrypted with different token")
	}

	switch err := c.etcd.start(k.ctx, name); {
	case errors.Is(err, errRemoved):
		k.sys.on.files.remove(etcdDir)

		return false, nil
	case err != nil:
		return false, err
	}

	k.runs(c, member{name: name, node: k.config.NodeName, address: k.address()})

	return true, k.quorum(c)
}

// runs notes that the server runs a member of a cluster.
func (k *service) runs(c *cluster, m member) {
	c.mu.Lock()
	c.running[m.name] = k
	c.mu.Unlock()

	k.mu.Lock()
	k.cluster, k.member = c, &m
	k.mu.Unlock()

	ended := c.etcd.ended(m.name)

	k.sys.work.Go(func() {
		select {
		case <-ended:
			k.startAgain()
		case <-k.ctx.Done():
		}
	})
}

// memberName is the name of the server's member, empty where it runs none.
func (k *service) memberName() string {
	k.mu.Lock()
	defer k.mu.Unlock()

	if k.member == nil {
		return ""
	}

	return k.member.name
}

// quorum waits until etcd answers.
func (k *service) quorum(c *cluster) error {
	for c.healthy(k) != nil {
		select {
		case <-k.ctx.Done():
			return k.ctx.Err()
		case <-time.After(again / 10):
		}
	}

	return nil
}

// enroll makes the server a member of etcd.
func (k *service) enroll(c *cluster) error {
	files, node := k.sys.on.files, k.config.NodeName

	// A join that failed goes on under its name.
	name, there := files.read(nameFile)
	if !there {
		name = node + "-" + uuid.NewString()[:8]
		files.write(nameFile, name)
	}

	m := member{name: name, node: node, address: k.address()}

	if err := c.etcd.add(k.ctx, m); err != nil {
		return err
	}

	files.write(walFile, c.id)
	k.runs(c, m)

	return nil
}

// leave notes that the server's member is down.
func (c *cluster) leave(k *service) {
	name := k.memberName()
	if name == "" {
		return
	}

	c.mu.Lock()
	running := c.running[name] == k
	if running {
		delete(c.running, name)
	}
	c.mu.Unlock()

	if running {
		c.etcd.stop(name)
	}
}

// dismiss removes a member by its name and its address. A server whose member goes while it runs ends, and systemd
// starts it again.
func (c *cluster) dismiss(name, address string) error {
	removed, err := c.etcd.remove(name, address)
	if err != nil || !removed {
		return err
	}

	c.mu.Lock()
	k := c.running[name]
	c.mu.Unlock()

	if k != nil {
		k.sys.work.Go(k.startAgain)
	}

	return nil
}

// manage removes the members of etcd that Nodes say are to go, as long as the server runs (K3s: pkg/etcd,
// member_controller.go).
func (k *service) manage(c *cluster) {
	for k.ctx.Err() == nil {
		changed := c.kube.Changed()
		failed := false

		if c.healthy(k) == nil {
			for _, n := range c.kube.Nodes() {
				if n.Labels[etcdRole] == "true" {
					failed = c.sync(n) != nil || failed
				}
			}
		}

		var soon <-chan time.Time
		if failed {
			soon = time.After(controllerRetries)
		}

		select {
		case <-changed:
		case <-soon:
		case <-k.ctx.Done():
		}
	}
}

func (c *cluster) sync(n *corev1.Node) error {
	a := n.Annotations
	removed, was := a[removedMember]

	switch {
	case n.DeletionTimestamp != nil:
		if !was {
			if err := c.dismiss(a[memberName], a[memberAddress]); err != nil {
				return err
			}
		}

		return c.change(n, func(n *corev1.Node) {
			n.Finalizers = slices.DeleteFunc(n.Finalizers, func(f string) bool { return f == memberFinalizer })
		})
	case !slices.Contains(n.Finalizers, memberFinalizer):
		return c.change(n, func(n *corev1.Node) { n.Finalizers = append(n.Finalizers, memberFinalizer) })
	case was && a[memberName] != "" && a[memberName] != removed:
		return c.change(n, func(n *corev1.Node) {
			delete(n.Annotations, removedMember)
			n.Annotations[removeMember] = "false"
		})
	case !was && strings.EqualFold(a[removeMember], "true"):
		name := a[memberName]
		if err := c.dismiss(name, a[memberAddress]); err != nil {
			return err
		}

		return c.change(n, func(n *corev1.Node) {
			n.Annotations[removedMember] = name
			delete(n.Annotations, memberName)
			delete(n.Annotations, memberAddress)
		})
	case a[memberName] != "" && !slices.ContainsFunc(n.Status.Conditions,
		func(c corev1.NodeCondition) bool { return c.Type == promoted }):
		return c.change(n, func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
				Type: promoted, Status: corev1.ConditionTrue, Reason: "MemberNotLearner",
				Message: "Node is a voting member of the etcd cluster",
			})
		})
	default:
		return nil
	}
}

// change changes a Node that is still as it was seen.
func (c *cluster) change(n *corev1.Node, change func(*corev1.Node)) error {
	return c.kube.UpdateNode(n.Name, func(now *corev1.Node) {
		if now.UID == n.UID && now.ResourceVersion == n.ResourceVersion {
			change(now)
		}
	})
}

// keep keeps a cluster that begins.
func (f *Firmware) keep(c *cluster) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.clusters = append(f.clusters, c)
}

func (f *Firmware) clusterBy(id string) *cluster {
	for _, c := range f.all() {
		if c.id == id {
			return c
		}
	}

	return nil
}
