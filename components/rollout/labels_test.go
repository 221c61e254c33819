package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/spec"
)

// vms is a Proxmox VE that has VMs, by their VMID; nil: it did not answer.
type vms map[int]bool

func (v vms) Exists(n plan.Node) bool { return v[n.VMID] }

func (v vms) AbsentVMIDs() map[int]bool {
	if v == nil {
		return nil
	}

	return map[int]bool{}
}

func (vms) VM(int) (vmidentity.Found, bool) { return vmidentity.Found{}, false }

// TestLabels: the program gives nodes the labels and taints that they cannot give themselves, and a preview shows it.
func TestLabels(t *testing.T) {
	t.Parallel()

	const (
		role     = "node-role.kubernetes.io/worker"
		unjoined = "the labels and taints of worker are not set: gave up after 1ms, waiting for worker to join Kubernetes; " +
			"fix it, then run 'pulumi up' again"
	)

	node := func(name string, vmid int) plan.Node {
		return plan.Node{
			Name: name, VMID: vmid, Pool: "pool", Labels: map[string]string{"tier": "db", role: ""},
			Taints: map[string]string{"gpu": "NoSchedule"},
		}
	}
	control, worker := node("control", 1), node("worker", 2)
	control.Role, worker.Role = spec.RoleControlPlane, spec.RoleWorker

	taints := []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}

	for name, c := range map[string]struct {
		distribution spec.Distribution
		names        []string // in Kubernetes
		inventory    vms
		labels       map[string]map[string]string // of the nodes
		rows         []string
		settings     []impact.Setting
		warned       []string
		err          string
	}{
		"Talos, where control planes do it themselves": {
			distribution: spec.DistributionTalos, names: []string{"control", "worker"}, inventory: vms{1: true, 2: true},
			labels: map[string]map[string]string{"control": nil, "worker": {role: ""}},
			rows:   []string{"worker: live, for labels and taints"},
			settings: []impact.Setting{
				{Path: "labels." + role, After: `""`}, {Path: "taints.gpu:NoSchedule", After: `""`},
			},
		},
		"K3s": {
			distribution: spec.DistributionK3s, names: []string{"control", "worker"}, inventory: vms{1: true, 2: true},
			labels: map[string]map[string]string{"control": {role: "", "tier": "db"}, "worker": {role: "", "tier": "db"}},
			rows:   []string{"control: live, for labels and taints", "worker: live, for labels and taints"},
			settings: []impact.Setting{
				{Path: "labels." + role, After: `""`},
				{Path: "labels.tier", After: "db"},
				{Path: "taints.gpu:NoSchedule", After: `""`},
			},
		},
		"a node that is away": {
			distribution: spec.DistributionTalos, names: []string{"control"}, inventory: vms{1: true, 2: true},
			labels: map[string]map[string]string{"control": nil},
			warned: []string{
				"worker is not in Kubernetes, so it runs no pods, and its labels and taints are not set. Bring it back, or, " +
					"to recreate it, name it in lifecycle.replace, and also in lifecycle.forceRemove if it does not answer; then " +
					"run 'pulumi up' again",
			},
		},
		"a new node that does not join": {
			distribution: spec.DistributionTalos, names: []string{"control"}, inventory: vms{1: true},
			labels: map[string]map[string]string{"control": nil},
			err:    unjoined,
		},
		"Proxmox VE is not asked": {
			distribution: spec.DistributionTalos, names: []string{"control"},
			labels: map[string]map[string]string{"control": nil},
			err:    unjoined,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			api := fake.NewClientset()

			for _, name := range c.names {
				_, err := api.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
					metav1.CreateOptions{})
				require.NoError(t, err)
			}

			var (
				rows     []string
				settings []impact.Setting
				warned   []string
			)

			check := FinalCheck{Scope{
				Program: Program{
					Progress: silent, Warn: func(text string) { warned = append(warned, text) },
					Preview: func(row impact.NodeImpact) error {
						rows, settings = append(rows, row.String()), row.Settings

						return nil
					},
				},
				Plan: &plan.Plan{
					Distribution: c.distribution, ReadyTimeout: time.Millisecond, SettleTimeout: time.Minute,
					Pools: []plan.PlannedPool{{Nodes: []plan.Node{control, worker}}},
				},
				Limiter: NewLimiter(1), Inventory: c.inventory,
			}, system{kube: kubeapi.Of(api), members: []string{"control"}}}

			check.DryRun = true
			require.NoError(t, check.Run(t.Context()))
			assert.Equal(t, c.rows, rows)
			assert.Equal(t, c.settings, settings)

			check.DryRun = false

			if err := check.Run(t.Context()); c.err == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, c.err)
			}

			assert.Equal(t, c.warned, warned)

			list, err := api.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)

			found := map[string]map[string]string{}

			for _, n := range list.Items {
				found[n.Name] = n.Labels

				if n.Labels != nil {
					assert.Equal(t, taints, n.Spec.Taints)
				}
			}

			assert.Equal(t, c.labels, found)
		})
	}
}

// TestUnknownHost: a node whose host is not known keeps the label of it, and gets all others.
func TestUnknownHost(t *testing.T) {
	t.Parallel()

	l := labeler{Scope: Scope{Plan: &plan.Plan{Region: "lan", Distribution: spec.DistributionK3s}}}
	n := plan.Node{Name: "worker", VMID: 2, Role: spec.RoleWorker, Labels: map[string]string{"tier": "db"}}

	assert.Equal(t, kubeapi.NodeLabels{
		Labels:     map[string]string{"tier": "db", corev1.LabelTopologyRegion: "lan"},
		Taints:     n.TaintList(),
		Registered: []string{"tier"},
		Unknown:    []string{corev1.LabelTopologyZone},
	}, l.wantedLabels(n, ""))

	assert.Equal(t, kubeapi.NodeLabels{
		Labels: map[string]string{
			"tier": "db", corev1.LabelTopologyRegion: "lan", corev1.LabelTopologyZone: "pve",
		},
		Taints:     n.TaintList(),
		Registered: []string{"tier"},
	}, l.wantedLabels(n, "pve"))
}
