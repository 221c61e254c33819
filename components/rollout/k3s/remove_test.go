package k3s

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/siderolabs/crypto/x509"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	testcore "k8s.io/client-go/testing"

	"talos-proxmox/components/impact"
	"talos-proxmox/components/k3sconfig"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/tests/lab"
	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/kube"
)

func silent(string) {}

// edge is a cluster of K3s whose server's Kubernetes API answers, with an agent that the plan does not have.
type edge struct {
	*Cluster

	kubelet *kube.Kubelet
	api     *kubeapi.Client
	// snapshots answers who asks its server for one.
	snapshots *snapshots
}

func newEdge(t *testing.T) edge {
	t.Helper()

	r, err := lab.ReserveNetwork(16)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })

	address := r.Network().Addr().Next().Next().String()

	i, err := k3sconfig.NewIdentity("edge", time.Now())
	require.NoError(t, err)

	pair := func(p k3sconfig.KeyPair) *x509.PEMEncodedCertificateAndKey {
		return &x509.PEMEncodedCertificateAndKey{Crt: []byte(p.Certificate), Key: []byte(p.Key)}
	}

	cluster := kube.NewCluster()
	require.NoError(t, cluster.Apply(kube.Manifests{
		CA: pair(i.ClientCA), TokenID: "k3slab", TokenSecret: "0000000000000000",
		APIServerIP: netip.MustParseAddr("10.43.0.1"), DNSIP: netip.MustParseAddr("10.43.0.10"),
	}))

	front := &snapshots{token: i.Token}

	srv, err := kube.NewServer(kube.ServerConfig{
		Node: "edge-server-1", Cluster: cluster, Version: "v1.34.2+k3s1", CA: pair(i.ServerCA),
		ClientCA: []byte(i.ClientCA.Certificate),
		Names:    []string{address}, Healthy: func() error { return nil }, Journal: &journal.Journal{},
		Front: front,
	})
	require.NoError(t, err)
	t.Cleanup(srv.Close)

	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address+":6443")
	require.NoError(t, err)
	srv.Listen(l)

	text, err := i.Administrator(time.Now())
	require.NoError(t, err)
	administrator, err := k3sconfig.ReadAdministrator(text)
	require.NoError(t, err)
	kubeconfig, err := i.Kubeconfig("edge", "https://"+address+":6443", administrator)
	require.NoError(t, err)

	p := plantest.K3s(t)
	p.NodeTimeout, p.DrainTimeout = 300*time.Millisecond, 10*time.Second

	c := clusterOf(p, address, kubeconfig)
	c.Identity.Set(i)

	api, err := c.anyKubernetes(t.Context())
	require.NoError(t, err)

	signer, err := x509.NewCertificateAuthorityFromCertificateAndKey(pair(i.ClientCA))
	require.NoError(t, err)
	issued, err := x509.NewKeyPair(signer, x509.CommonName("system:node:edge-agent-1"), x509.Organization("system:nodes"),
		x509.NotAfter(time.Now().Add(time.Hour)))
	require.NoError(t, err)

	kubelet := &kube.Kubelet{
		Servers: []string{"https://" + address + ":6443"}, CA: []byte(i.ServerCA.Certificate),
		Certificate: x509.NewCertificateAndKeyFromKeyPair(issued),
		Node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "edge-agent-1"},
			Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.34.2+k3s1"}},
		},
	}
	require.NoError(t, kubelet.Join(t.Context()))

	return edge{c, kubelet, api, front}
}

// known says whether Kubernetes knows the agent, and how.
func (e edge) known(t *testing.T) (n kubeapi.Node, there bool) {
	t.Helper()

	n, there, err := e.api.Node(t.Context(), "edge-agent-1")
	require.NoError(t, err)

	return n, there
}

// TestAgentLeaves: one that answers is drained and forgotten; one that is silent stays, unless it is said to be dead.
func TestAgentLeaves(t *testing.T) {
	e := newEdge(t)
	r := &Removals{e.Cluster}
	remove := func() error {
		// A removal that has failed stops the others of its run.
		r.Limiter = rollout.NewLimiter(1)

		return r.remove(t.Context(), leavingNode{name: "edge-agent-1"})
	}

	require.EqualError(t, remove(), "edge-agent-1 is not removed: it does not report to Kubernetes; "+
		"start it again, or, if it is dead, name it in lifecycle.forceRemove; then run 'pulumi up' again")

	n, there := e.known(t)
	require.True(t, there)
	assert.False(t, n.Cordoned, "what is refused leaves the node as it was")

	e.Plan.ForceRemove = []string{"edge-agent-1"}
	require.NoError(t, remove())

	_, there = e.known(t)
	assert.False(t, there)
	require.NoError(t, remove(), "gone is gone")

	e.Plan.ForceRemove = nil
	require.NoError(t, e.kubelet.Join(t.Context()))
	require.NoError(t, e.kubelet.Report(t.Context(), true, ""))
	require.NoError(t, remove())

	_, there = e.known(t)
	assert.False(t, there)

	e.Addresses.Set("edge-server-1", "127.0.0.9")
	require.EqualError(t, remove(),
		"edge-agent-1 is not removed: no Kubernetes API answers (edge-server-1: connection refused)")
}

// TestSetUpOn: Kubernetes tells which machine has joined as a node.
func TestSetUpOn(t *testing.T) {
	e := newEdge(t)
	agent := plan.Node{Name: "edge-agent-1"}

	uuid, err := e.SetUpOn(t.Context(), agent)
	require.NoError(t, err)
	assert.Empty(t, uuid, "it has not joined")

	e.kubelet.Node.Status.NodeInfo.SystemUUID = "110ec58a-a0f2-4ac4-8393-c866d813b8d1"
	require.NoError(t, e.kubelet.Join(t.Context()))
	require.NoError(t, e.kubelet.Report(t.Context(), true, ""))

	uuid, err = e.SetUpOn(t.Context(), agent)
	require.NoError(t, err)
	assert.Equal(t, "110ec58a-a0f2-4ac4-8393-c866d813b8d1", uuid)

	e.Addresses.Set("edge-server-1", "127.0.0.9")
	_, err = e.SetUpOn(t.Context(), agent)
	require.EqualError(t, err, "no Kubernetes API answers (edge-server-1: connection refused)")
}

// TestAgentOfAnother: a node that is ready on another machine than that of the state is neither drained nor forgotten.
// A Node that is left of another machine goes where the operator says that it is dead.
func TestAgentOfAnother(t *testing.T) {
	e := newEdge(t)
	r := &Removals{e.Cluster}
	remove := func(uuid string) error {
		r.Limiter = rollout.NewLimiter(1)

		return r.remove(t.Context(), leavingNode{name: "edge-agent-1", uuid: uuid})
	}

	e.kubelet.Node.Status.NodeInfo.SystemUUID = "110ec58a-a0f2-4ac4-8393-c866d813b8d1"
	require.NoError(t, e.kubelet.Join(t.Context()))
	require.NoError(t, e.kubelet.Report(t.Context(), true, ""))

	const other = "6c84fb90-12c4-11e1-840d-7b25c5ee775a"

	for _, forced := range [][]string{nil, {"edge-agent-1"}} {
		e.Plan.ForceRemove = forced
		require.EqualError(t, remove(other), "edge-agent-1 is not removed: Kubernetes has edge-agent-1 on the machine with "+
			"SMBIOS UUID 110ec58a-a0f2-4ac4-8393-c866d813b8d1, and the state on "+other+": another copy of the state has "+
			"replaced it, and it is not touched. Use the newest state")

		n, there := e.known(t)
		require.True(t, there)
		assert.False(t, n.Cordoned)
	}

	e.Plan.ForceRemove = nil
	require.NoError(t, e.kubelet.Report(t.Context(), false, "gone"))
	require.ErrorContains(t, remove(other), "if the node is broken, name it in lifecycle.forceRemove")

	e.Plan.ForceRemove = []string{"edge-agent-1"}
	require.NoError(t, remove(other))

	_, there := e.known(t)
	assert.False(t, there)

	e.Plan.ForceRemove = nil
	require.NoError(t, e.kubelet.Join(t.Context()))
	require.NoError(t, e.kubelet.Report(t.Context(), true, ""))
	require.NoError(t, remove("110EC58A-A0F2-4AC4-8393-C866D813B8D1"), "its own")
}

// TestCheckDisruption: a server is not taken down while etcd needs it, nor an agent while another is not ready.
func TestCheckDisruption(t *testing.T) {
	e := newEdge(t)
	server := disruptedNode{e.Cluster, e.Plan.Nodes()[0]}

	require.NoError(t, server.WaitDisruptable(t.Context(), impact.EffectUpgrade), "a server by itself has no choice")

	pools := e.Plan.Pools
	e.Plan.MaxUnavailable = 1
	e.Plan.Pools = append(slices.Clone(pools), plan.PlannedPool{Role: spec.RoleWorker, Nodes: []plan.Node{
		{Name: "edge-agent-1", Role: spec.RoleWorker}, {Name: "edge-agent-2", Role: spec.RoleWorker},
	}})

	agents := e.Plan.Nodes()[len(e.Plan.Nodes())-2:]
	require.NoError(t, disruptedNode{server.Cluster, agents[0]}.WaitDisruptable(t.Context(), impact.EffectUpgrade))
	require.EqualError(t, disruptedNode{server.Cluster, agents[1]}.WaitDisruptable(t.Context(), impact.EffectUpgrade),
		"gave up after 300ms, waiting for the cluster to tolerate the outage of edge-agent-2: 1 of the workers may "+
			"be unavailable (lifecycle.upgrade.maxUnavailable), and these are not ready: edge-agent-1")

	e.Plan.Pools = pools
	e.Plan.Pools[0].Nodes = append(e.Plan.Pools[0].Nodes,
		plan.Node{Name: "edge-agent-1", Role: spec.RoleControlPlane},
		plan.Node{Name: "edge-server-3", Role: spec.RoleControlPlane})

	require.ErrorContains(t, server.WaitDisruptable(t.Context(), impact.EffectUpgrade),
		"the etcd member edge-agent-1 is not healthy (it is not ready in Kubernetes)")
	require.NoError(t, e.kubelet.Report(t.Context(), true, ""))
	require.ErrorContains(t, server.WaitDisruptable(t.Context(), impact.EffectUpgrade), "the etcd member edge-agent-1 is "+
		"not healthy (its address is not known, because its guest agent does not report it)")
	e.Addresses.Set("edge-agent-1", e.Addresses.Get("edge-server-1"))
	require.EqualError(t, server.WaitDisruptable(t.Context(), impact.EffectUpgrade),
		"gave up after 300ms, waiting for the cluster to tolerate the outage of edge-server-1: etcd needs 2 other "+
			"servers that are "+
			"ready, and 1 are; repair the others first, then run 'pulumi up' again")
	require.NoError(t, server.WaitDisruptable(t.Context(), impact.EffectReboot),
		"servers that have yet to join do not count")
}

// TestCheckDisruptionWhileServersLeave: a server that has left the plan is removed at the end of an update. Until then
// etcd counts it.
func TestCheckDisruptionWhileServersLeave(t *testing.T) {
	p := plantest.K3s(t)
	p.NodeTimeout, p.SettleTimeout = time.Second, time.Millisecond
	p.Pools[0].Nodes = nil

	api := fake.NewClientset()
	kube := kubeapi.Of(api)
	c := clusterOf(p, "10.0.0.11", "of an administrator")
	c.connect = func([]byte, string) (*kubeapi.Client, error) { return kube, nil }

	server := func(name string, ready corev1.ConditionStatus, annotations map[string]string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{"node-role.kubernetes.io/etcd": "true"}, Annotations: annotations,
			},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
		}
	}
	member := map[string]string{"etcd.k3s.cattle.io/node-name": "m"}

	for _, name := range []string{"edge-server-1", "edge-server-2", "edge-server-3"} {
		p.Pools[0].Nodes = append(p.Pools[0].Nodes, plan.Node{Name: name, Role: spec.RoleControlPlane})
		c.Addresses.Set(name, "10.0.0.11")

		_, err := api.CoreV1().Nodes().Create(t.Context(), server(name, corev1.ConditionTrue, member), metav1.CreateOptions{})
		require.NoError(t, err)
	}

	check := func() error {
		_, err := c.checkStatus(t.Context(), p.Nodes()[0], impact.EffectUpgrade)

		return err
	}
	require.NoError(t, check())

	dead := server("edge-server-4", corev1.ConditionUnknown, member)
	_, err := api.CoreV1().Nodes().Create(t.Context(), dead, metav1.CreateOptions{})
	require.NoError(t, err)
	require.EqualError(t, check(), "edge-server-4 is no longer in the plan, but still a member of etcd, and not healthy "+
		"(it is not ready in Kubernetes); remove it in an update of its own: undo the other changes, run "+
		"'pulumi up', then make the other changes again; or, if it has no VM any more, delete its node ('kubectl delete "+
		"node edge-server-4')")

	for name, annotations := range map[string]map[string]string{
		"its member was removed": {
			"etcd.k3s.cattle.io/node-name": "m", "etcd.k3s.cattle.io/removed-node-name": "m",
		},
		"it never had one": nil,
	} {
		_, err = api.CoreV1().Nodes().Update(t.Context(), server("edge-server-4", corev1.ConditionUnknown, annotations),
			metav1.UpdateOptions{})
		require.NoError(t, err)
		require.NoError(t, check(), name)
	}

	_, err = api.CoreV1().Nodes().Update(t.Context(), server("edge-server-4", corev1.ConditionTrue, member),
		metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, check(), "Kubernetes says that it is healthy")

	for _, gone := range []string{"edge-server-3", "edge-server-4"} {
		require.NoError(t, api.CoreV1().Nodes().Delete(t.Context(), gone, metav1.DeleteOptions{}))
	}

	for _, effect := range []impact.Effect{impact.EffectUpgrade, impact.EffectReboot} {
		_, err = c.checkStatus(t.Context(), p.Nodes()[0], effect)
		require.ErrorContains(t, err, "etcd has only two of its 3 planned members (missing: edge-server-3), and no quorum "+
			"while edge-server-1 is unavailable; let edge-server-3 join first")
	}

	p.Pools[0].Nodes = p.Pools[0].Nodes[:2]
	_, err = c.checkStatus(t.Context(), p.Nodes()[0], impact.EffectReboot)
	require.NoError(t, err, "both planned servers are there")
}

// TestExplainPartialRemoval: a removal that fails after the server has left etcd says so, and what helps.
func TestExplainPartialRemoval(t *testing.T) {
	p := plantest.K3s(t)
	p.NodeTimeout = time.Second

	api := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "edge-server-2", Annotations: map[string]string{
			"etcd.k3s.cattle.io/node-name": "m", "etcd.k3s.cattle.io/removed-node-name": "m",
		},
	}})
	api.PrependReactor("delete", "nodes", func(testcore.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("denied")
	})

	r := &Removals{clusterOf(p, "10.0.0.11", "")}
	r.Proxmox = powered{}

	n := &nodeRemoval{
		Removals: r, leavingNode: leavingNode{name: "edge-server-2", gone: true},
		kube: kubeapi.Of(api), server: &kubeapi.Server{Member: "m"},
	}
	err := n.leave(t.Context())
	require.EqualError(t, err, "could not delete its node from Kubernetes: denied. It has already left etcd: run "+
		"'pulumi up' again to complete its removal; to keep the node instead, put it back into the configuration and name "+
		"it in lifecycle.replace, which recreates it")

	err = rollout.ExplainPartialRemoval(errors.New("denied"), true, "etcd", "Kubernetes")
	require.EqualError(t, err, "denied. It has already left etcd and Kubernetes: run 'pulumi up' again to complete its "+
		"replacement")

	err = errors.New("denied")
	assert.Equal(t, err, rollout.ExplainPartialRemoval(err, false))
	require.NoError(t, rollout.ExplainPartialRemoval(nil, false, "etcd"))
}

// TestRemoveUnnamed: a membership that does not say whose it is is not taken for one of no node.
func TestRemoveUnnamed(t *testing.T) {
	p := plantest.K3s(t)
	args := &pulumi.ResourceHookArgs{Name: "edge-server-9-joined", URN: "urn:pulumi:dev::p::t::edge-server-9-joined"}

	const unnamed = "the state does not have the name of the node whose membership edge-server-9-joined is, so it cannot " +
		"leave the cluster. Take it out by hand ('kubectl drain', then 'kubectl delete node'), then run: pulumi state " +
		"delete --stack dev 'urn:pulumi:dev::p::t::edge-server-9-joined', and 'pulumi up' again"

	r := &Removals{clusterOf(p, "10.0.0.11", "")}
	require.EqualError(t, r.Remove(t.Context(), args), unnamed)

	p.Teardown = true
	require.EqualError(t, r.Remove(t.Context(), args), unnamed, "nothing is destroyed")

	r.Destroying = true
	require.NoError(t, r.Remove(t.Context(), args))
}
