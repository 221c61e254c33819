package k3s

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
)

// powered is a Proxmox VE that says how VMs are.
type powered struct {
	Proxmox

	vms    map[int]proxmoxapi.VM
	uuids  map[int]string
	unread error
}

func (p powered) Config(_ context.Context, v proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return proxmoxapi.VMConfig{UUID: p.uuids[v.ID]}, nil
}

func (p powered) VMs(context.Context) ([]proxmoxapi.VM, error) {
	return slices.Collect(maps.Values(p.vms)), p.unread
}

func (p powered) Find(_ context.Context, vmid int) (proxmoxapi.VM, bool, error) {
	v, there := p.vms[vmid]

	return v, there, nil
}

// TestServerVM: a restored backup has the UUID, the name and the tags of the server.
func TestServerVM(t *testing.T) {
	const uuid = "110ec58a-a0f2-4ac4-8393-c866d813b8d1"

	server := func(id int) proxmoxapi.VM {
		return proxmoxapi.VM{ID: id, Name: "edge-server-2", Tags: []string{"controlplane", "edge", "k3s"}}
	}

	for name, c := range map[string]struct {
		vms    []int
		state  int // the VMID that the state has
		wanted int // 0: none
		fails  string
	}{
		"the server and a copy":             {vms: []int{105, 404}, state: 404, wanted: 404},
		"a copy":                            {vms: []int{105}, state: 404},
		"by its name":                       {vms: []int{404}, wanted: 404},
		"by its name, which a copy has too": {vms: []int{105, 404}, fails: " both have its SMBIOS UUID"},
	} {
		t.Run(name, func(t *testing.T) {
			p := powered{vms: map[int]proxmoxapi.VM{}, uuids: map[int]string{}}
			for _, id := range c.vms {
				p.vms[id], p.uuids[id] = server(id), uuid
			}

			r := &Removals{clusterOf(plantest.K3s(t), "127.0.0.1", "")}
			r.Proxmox = p

			v, there, err := r.serverVM(t.Context(), leavingNode{name: "edge-server-2", vmid: c.state},
				kubeapi.Server{Machine: uuid})
			if c.fails != "" {
				require.ErrorContains(t, err, c.fails)

				return
			}

			require.NoError(t, err)
			assert.Equal(t, c.wanted != 0, there)
			assert.Equal(t, c.wanted, v.ID)
		})
	}
}

// TestRestartUnanswered: where no server answers, one of several is restarted only if those whose VMs may run are no
// quorum: they may be a cluster that is not reached from here.
func TestRestartUnanswered(t *testing.T) {
	server := func(id int, name string, change ...func(*proxmoxapi.VM)) proxmoxapi.VM {
		v := proxmoxapi.VM{ID: id, Name: name, Host: "a", Tags: []string{"controlplane", "edge", "k3s"}}
		for _, f := range change {
			f(&v)
		}

		return v
	}
	off := func(v *proxmoxapi.VM) { v.Stopped = true }
	silent := func(v *proxmoxapi.VM) { v.Unreachable = true }

	const (
		refused = "%s is not restarted: no server answers, and it is unknown whether etcd can do without this one: " +
			"the VMs of %d of 3 servers run (%s), and may be a cluster that is only unreachable from here; make " +
			"sure that port 6443 of the servers is reachable from here; or, if the cluster is down, shut down the " +
			"VM of edge-server-1, whose settings are changed " +
			"while it is off; then run 'pulumi up' again"
		why = "edge-server-1"
	)

	for name, c := range map[string]struct {
		vms     []proxmoxapi.VM
		servers int
		unread  error
		want    string
	}{
		"the only server": {servers: 1, vms: []proxmoxapi.VM{server(401, "edge-server-1")}},
		"one of several, which all run": {
			servers: 3,
			vms: []proxmoxapi.VM{
				server(401, "edge-server-1"), server(402, "edge-server-2"), server(403, "edge-server-3"),
			},
			want: fmt.Sprintf(refused, why, 3, "edge-server-1, edge-server-2, edge-server-3"),
		},
		"one of two that run": {
			servers: 3,
			vms:     []proxmoxapi.VM{server(401, "edge-server-1"), server(402, "edge-server-2"), server(403, "edge-server-3", off)},
			want:    fmt.Sprintf(refused, why, 2, "edge-server-1, edge-server-2"),
		},
		"one whose host does not answer": {
			servers: 3,
			vms: []proxmoxapi.VM{
				server(401, "edge-server-1"), server(402, "edge-server-2", off), server(403, "edge-server-3", silent),
			},
			want: fmt.Sprintf(refused, why, 2, "edge-server-1, edge-server-3 (unknown)"),
		},
		"the others are off or gone": {
			servers: 3, vms: []proxmoxapi.VM{server(401, "edge-server-1"), server(402, "edge-server-2", off)},
		},
		"others that have left the plan": {
			servers: 1,
			vms: []proxmoxapi.VM{
				server(401, "edge-server-1"), server(402, "edge-server-2"), server(403, "edge-server-3", off),
			},
			want: fmt.Sprintf(refused, why, 2, "edge-server-1, edge-server-2"),
		},
		"nothing is known": {
			servers: 3, unread: errors.New("no answer"),
			want: "edge-server-1 is not restarted: no server answers, and it is unknown which servers run: no " +
				"answer; make sure that Proxmox VE answers; then run 'pulumi up' again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := plantest.K3s(t)
			p.ReadyTimeout = time.Millisecond
			p.Pools[0].Nodes = nil

			for i := range c.servers {
				p.Pools[0].Nodes = append(p.Pools[0].Nodes, plan.Node{
					Name: fmt.Sprintf("edge-server-%d", i+1), VMID: 401 + i, Role: spec.RoleControlPlane,
				})
			}

			vms := map[int]proxmoxapi.VM{}
			for _, v := range c.vms {
				vms[v.ID] = v
			}

			k := clusterOf(p, "127.0.0.9", kubeconfigOf(t))
			k.Proxmox = powered{vms: vms, unread: c.unread}

			r := rollout.New(p, rollout.NewLimiter(1), k.Progress)

			_, err := r.Prepare(t.Context(), p.Nodes()[0], k.Restart(p.Nodes()[0]), "edge-server-1 is not restarted")
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, c.want)
			}
		})
	}
}

// TestRestartContinues: an earlier run has emptied a node and was cut off, or its VM did not start. The VM is restarted
// as it is, and the turn ends when the node is ready and takes pods again.
func TestRestartContinues(t *testing.T) {
	var (
		api   = fake.NewClientset()
		kube  = kubeapi.Of(api)
		p     = plantest.K3s(t)
		agent = plan.Node{Name: "edge-agent-1", Role: spec.RoleWorker}
	)

	node := func(name string, ready corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
		}
	}

	for _, n := range []*corev1.Node{
		node("edge-server-1", corev1.ConditionTrue),
		node("edge-agent-1", corev1.ConditionUnknown),
	} {
		_, err := api.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
		require.NoError(t, err)
	}

	require.NoError(t, kube.Cordon(t.Context(), "edge-agent-1"))

	p.MaxUnavailable, p.ReadyTimeout, p.UpgradeTimeout = 1, time.Minute, time.Millisecond

	k := clusterOf(p, "10.0.0.11", "of an administrator")
	k.connect = func([]byte, string) (*kubeapi.Client, error) { return kube, nil }

	r := rollout.New(p, rollout.NewLimiter(1), silent)
	d, err := r.Prepare(t.Context(), agent, k.Restart(agent), "")
	require.NoError(t, err)
	require.NoError(t, d.Undo(t.Context()), "it was not drained")
	require.EqualError(t, d.Finish(t.Context()), "gave up after 1ms, waiting for edge-agent-1 to be ready in Kubernetes")

	back, err := api.CoreV1().Nodes().Get(t.Context(), "edge-agent-1", metav1.GetOptions{})
	require.NoError(t, err)
	assert.True(t, back.Spec.Unschedulable, "not before it is ready")

	back.Status = node("", corev1.ConditionTrue).Status
	_, err = api.CoreV1().Nodes().UpdateStatus(t.Context(), back, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, d.Finish(t.Context()))

	now, there, err := kube.Node(t.Context(), "edge-agent-1")
	require.NoError(t, err)
	assert.True(t, there)
	assert.False(t, now.Cordoned)
}
