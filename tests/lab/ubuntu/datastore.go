package ubuntu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/tests/lab/kube"
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
	errDuplicate      = "duplicate node name found, please use a unique name for this node"
	errNoLeader       = "etcdserver: no leader"
	errTooFewStarted  = "etcdserver: re-configuration failed due to not enough started members"
	controllerRetries = 100 * time.Millisecond
)

// member is one of etcd.
type member struct {
	name, node, address string
	// service runs it; nil: it is down.
	service *service
}

// quorate says whether enough members are up. The cluster is locked.
func (c *cluster) quorate() bool { return c.up() >= len(c.members)/2+1 }

func (c *cluster) up() int {
	up := 0

	for _, m := range c.members {
		if m.service != nil {
			up++
		}
	}

	return up
}

// healthy is what the API of a server says of its etcd.
func (c *cluster) healthy(k *service) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if !c.quorate() || !slices.ContainsFunc(c.members, func(m *member) bool { return m.service == k }) {
		return errors.New(errNoLeader)
	}

	return nil
}

// Members are the names of the nodes whose servers are members of etcd, of each cluster that has ever been.
func (f *Firmware) Members() [][]string {
	var all [][]string

	for _, c := range f.all() {
		all = append(all, c.voters())
	}

	return all
}

// Voters are those of the cluster that a node has joined last.
func (f *Firmware) Voters(node string) []string {
	for _, c := range slices.Backward(f.all()) {
		if c.kube.Node(node) != nil {
			return c.voters()
		}
	}

	return nil
}

func (c *cluster) voters() []string {
	c.mu.Lock()
	defer c.mu.Unlock()

	names := []string{}
	for _, m := range c.members {
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

	c.mu.Lock()

	i := slices.IndexFunc(c.members, func(m *member) bool { return m.name == name })
	if i < 0 {
		c.mu.Unlock()
		k.sys.on.files.remove(etcdDir)

		return false, nil
	}

	known := c.token == token
	if known {
		c.members[i].service = k
	}
	c.mu.Unlock()

	if !known {
		return false, errors.New("bootstrap data already found and encrypted with different token")
	}

	k.setCluster(c)

	return true, k.quorum(c)
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
	c.mu.Lock()
	defer c.mu.Unlock()

	node := k.config.NodeName

	switch {
	case len(c.members) > 0 && !c.quorate():
		return errors.New(errNoLeader)
	case slices.ContainsFunc(c.members, func(m *member) bool { return m.node == node }):
		return errors.New(errDuplicate)
	}

	m := &member{name: node + "-" + uuid.NewString()[:8], node: node, address: k.address(), service: k}
	c.members = append(c.members, m)

	k.sys.on.files.write(walFile, c.id)
	k.sys.on.files.write(nameFile, m.name)

	return nil
}

// member is the server's own; nil: it is none.
func (k *service) member(c *cluster) *member {
	if c == nil {
		return nil
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	for _, m := range c.members {
		if m.service == k {
			return m
		}
	}

	return nil
}

// leave notes that the member is down.
func (c *cluster) leave(k *service) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, m := range c.members {
		if m.service == k {
			m.service = nil
		}
	}
}

// dismiss removes a member by its name and its address. A server whose member goes while it runs ends, and systemd
// starts it again.
func (c *cluster) dismiss(name, address string) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if !c.quorate() {
		return errors.New(errNoLeader)
	}

	i := slices.IndexFunc(c.members, func(m *member) bool { return m.name == name && m.address == address })
	if i < 0 {
		return nil
	}

	gone, others := c.members[i], slices.Delete(slices.Clone(c.members), i, i+1)

	if up := (&cluster{members: others}).up(); up < len(others)/2+1 {
		return errors.New(errTooFewStarted)
	}

	c.members = others

	if k := gone.service; k != nil {
		k.sys.work.Go(func() {
			if k.sys.ctx.Err() == nil {
				k.sys.restartK3s("k3s.service")
			}
		})
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

func (c *cluster) change(n *corev1.Node, change func(*corev1.Node)) error {
	return c.kube.UpdateNode(n.Name, func(now *corev1.Node) {
		if now.UID == n.UID {
			change(now)
		}
	})
}

// newCluster is one that nothing is in yet.
func (f *Firmware) newCluster(files map[string]string) *cluster {
	c := &cluster{id: uuid.NewString(), kube: kube.NewCluster(), files: files, nodes: map[string]string{}}

	f.mu.Lock()
	defer f.mu.Unlock()

	f.clusters = append(f.clusters, c)

	return c
}

func (f *Firmware) clusterBy(id string) *cluster {
	for _, c := range f.all() {
		if c.id == id {
			return c
		}
	}

	return nil
}
