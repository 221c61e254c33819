package components

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/lifecycle"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
)

func silent(string) {}

// nothing is what no resource needs.
type nothing struct{}

func (nothing) NewResource(args pulumi.MockResourceArgs) (string, resource.PropertyMap, error) {
	return args.Name, args.Inputs, nil
}

func (nothing) Call(pulumi.MockCallArgs) (resource.PropertyMap, error) {
	return nil, errors.New("nothing is called")
}

// inProgram runs something with the context of a program.
func inProgram(t *testing.T, dry bool, run func(ctx *pulumi.Context)) {
	t.Helper()

	require.NoError(t, pulumi.RunErr(func(ctx *pulumi.Context) error {
		run(ctx)

		return nil
	}, pulumi.WithMocks("p", "s", nothing{}), func(info *pulumi.RunInfo) { info.DryRun = dry }))
}

// guests are what runs in VMs, and what was done to it.
type guests struct {
	done []string

	// held is why a node is not drained, lost why it does not rejoin.
	held, lost error
	kube       *kubeapi.Client
	// apis are the Kubernetes of each node.
	apis map[string]*fake.Clientset
}

func (g *guests) restart(n plan.Node) rollout.Cluster { return &restartedGuest{g, n} }

// restartedGuest is one of them.
type restartedGuest struct {
	*guests

	node plan.Node
}

func (g *restartedGuest) Evaluate(context.Context) (rollout.Change, error) {
	if g.held == nil {
		g.done = append(g.done, "evaluate "+g.node.Name)
	}

	return rollout.Change{Effect: lifecycle.Reboot}, g.held
}

func (g *restartedGuest) CheckDisruption(context.Context, lifecycle.Effect) error { return nil }

func (g *restartedGuest) Backup(context.Context) error { return nil }

// Kubernetes has the node, and notes when it is uncordoned.
func (g *restartedGuest) Kubernetes(ctx context.Context) (*kubeapi.Client, error) {
	if g.apis == nil {
		g.apis = map[string]*fake.Clientset{}
	}

	if _, there := g.apis[g.node.Name]; !there {
		api := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: g.node.Name}})
		g.apis[g.node.Name] = api

		api.PrependReactor("patch", "nodes", func(a k8stesting.Action) (bool, runtime.Object, error) {
			if patch := a.(k8stesting.PatchAction); strings.Contains(string(patch.GetPatch()), `"unschedulable":false`) {
				g.done = append(g.done, "uncordon "+patch.GetName())
			}

			return false, nil, nil
		})
	}

	return kubeapi.Of(g.apis[g.node.Name]), ctx.Err()
}

func (g *restartedGuest) WaitRejoined(context.Context) error {
	g.done = append(g.done, "rejoined "+g.node.Name)

	return g.lost
}

func (g *guests) outage(_ context.Context, n plan.Node) string {
	g.done = append(g.done, "outage "+n.Name)

	return "2 of 3, 2 needed"
}

func (g *guests) api(context.Context) (*kubeapi.Client, error) {
	if g.kube == nil {
		return nil, errors.New("no Kubernetes API answers")
	}

	return g.kube, nil
}

// larger is a VM that gets more memory.
func larger(name string) *pulumi.ResourceHookArgs {
	return changedVM(name, map[string]any{"memory": map[string]any{"dedicated": 2048.0}}, map[string]any{"memory": map[string]any{"dedicated": 4096.0}})
}

func changedVM(name string, before, after map[string]any) *pulumi.ResourceHookArgs {
	return &pulumi.ResourceHookArgs{Name: name, OldInputs: resource.NewPropertyMapFromMap(before), NewInputs: resource.NewPropertyMapFromMap(after)}
}

// restarting is the change of VMs of two control planes and a worker, all of which run.
func restarting(ctx *pulumi.Context, g *guests, change ...func(*restarts)) *restarts {
	p := &plan.Plan{DrainTimeout: time.Minute, SettleTimeout: time.Minute}
	r := &restarts{
		ctx: ctx, plan: p, rollout: rollout.New(p, rollout.NewLimiter(1), silent), say: silent, under: map[string]underWay{},
		nodes: map[string]plan.Node{
			"a-vm": {Name: "a", VMID: 401, Role: spec.RoleControlPlane}, "b-vm": {Name: "b", VMID: 402, Role: spec.RoleControlPlane},
			"w-vm": {Name: "w", VMID: 501, Role: spec.RoleWorker},
		},
		proxmox: running{},
	}
	if g != nil {
		r.inside = g
	}

	for _, f := range change {
		f(r)
	}

	r.identities = proxmoxvm.NewIdentities(ctx, r.plan, r.proxmox, r.report.VM)
	for _, n := range r.nodes {
		r.identities.Record(proxmoxvm.Machine{VMID: n.VMID, Name: n.Name, UUID: runningUUID,
			Tags: proxmoxvm.OwnerTags(r.plan)})
	}

	return r
}

// runningUUID is that of every VM of running.
const runningUUID = "6c84fb90-12c4-11e1-840d-7b25c5ee775a"

func (v running) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	if v.foreign {
		return proxmoxapi.VMConfig{UUID: "110ec58a-a0f2-4ac4-8393-c866d813b8d1"}, nil
	}

	return proxmoxapi.VMConfig{UUID: runningUUID}, nil
}

// running is a Proxmox VE all of whose VMs run.
type running struct {
	Proxmox

	off, gone bool
	// foreign: its VMs are not those of the state.
	foreign bool
	// pending are settings that wait for a restart, stuck is why there is none.
	pending []string
	stuck   error
	// again, where there is one, notes a restart, which takes what is pending.
	again *bool
	// kept VMs run on; others are restarted each time they are asked for.
	kept bool
	err  error
}

func (v running) Find(_ context.Context, vmid int) (proxmoxapi.VM, bool, error) {
	return proxmoxapi.VM{ID: vmid, Host: "pve", Stopped: v.off}, !v.gone, v.err
}

func (v running) Process(context.Context, proxmoxapi.VM) (int, error) {
	if v.off {
		return 0, nil
	}

	if v.kept {
		return 4711, nil
	}

	return int(time.Now().UnixNano()), nil
}

func (v running) Settings(context.Context, proxmoxapi.VM) (proxmoxapi.Settings, error) {
	found := proxmoxapi.Settings{Pending: map[string]string{}}
	for _, key := range v.pending {
		if v.again != nil && *v.again {
			break
		}

		found.Pending[key] = "?"
	}

	return found, nil
}

func (v running) Start(context.Context, proxmoxapi.VM) error { return v.stuck }

func (v running) Restart(context.Context, proxmoxapi.VM) error {
	if v.again != nil {
		*v.again = true
	}

	return v.stuck
}

// TestRestartIsOwed: an update failed before the VM was restarted, and the provider takes it for done. The next one makes up for that in
// the node's turn, before the provider is asked: while it fails, the update has failed.
func TestRestartIsOwed(t *testing.T) {
	same := func() *pulumi.ResourceHookArgs { return changedVM("a-vm", map[string]any{}, map[string]any{}) }

	for name, c := range map[string]struct {
		vm   running
		args *pulumi.ResourceHookArgs
		want string
		done []string
	}{
		"nothing else changes": {vm: running{pending: []string{"cores", "memory"}}, args: same(), done: []string{"evaluate a", "rejoined a", "uncordon a"}},
		"it was to change":     {vm: running{pending: []string{"memory"}}, args: larger("a-vm"), done: []string{"evaluate a", "rejoined a", "uncordon a"}},
		"it does not restart": {
			vm: running{pending: []string{"memory"}, stuck: errors.New("no")}, args: same(), want: "the VM of a is not restarted: no",
			done: []string{"evaluate a", "uncordon a"},
		},
		"it is off":        {vm: running{pending: []string{"memory"}, off: true}, args: same()},
		"nothing is owed":  {args: same()},
		"nothing restarts": {vm: running{stuck: errors.New("not asked")}, args: larger("a-vm"), done: []string{"evaluate a", "rejoined a", "uncordon a"}},
	} {
		t.Run(name, func(t *testing.T) {
			inProgram(t, false, func(ctx *pulumi.Context) {
				g := &guests{}
				c.vm.again = new(bool)
				r := restarting(ctx, g, func(r *restarts) { r.proxmox = c.vm })

				if err := r.before(t.Context(), c.args); c.want == "" {
					assert.NoError(t, err)
					assert.NoError(t, r.rollout.Limiter.Stopped())
					assert.NoError(t, r.after(t.Context(), c.args))
				} else {
					assert.EqualError(t, err, c.want)
					assert.EqualError(t, r.rollout.Limiter.Stopped(), "not begun: a failed")
				}

				assert.Equal(t, c.done, g.done)
				assert.Empty(t, r.under)
			})
		})
	}

	inProgram(t, true, func(ctx *pulumi.Context) {
		g := &guests{}
		r := restarting(ctx, g, func(r *restarts) { r.proxmox = running{pending: []string{"memory"}} })
		require.NoError(t, r.before(t.Context(), same()))
		assert.Equal(t, []string{"outage a"}, g.done, "a preview says so")

		r.proxmox = running{err: proxmoxapi.ErrUnreachable}
		require.NoError(t, r.before(t.Context(), same()), "and stops for nobody")
	})
}

// TestRestartIsNotNeeded: an update that failed half-way had restarted the VM already. The next one of it does not, and nobody waits
// for that.
func TestRestartIsNotNeeded(t *testing.T) {
	inProgram(t, false, func(ctx *pulumi.Context) {
		g := &guests{}
		r := restarting(ctx, g, func(r *restarts) { r.proxmox = running{kept: true} })

		require.NoError(t, r.before(t.Context(), larger("a-vm")))
		require.NoError(t, r.after(t.Context(), larger("a-vm")))
		require.NoError(t, r.before(t.Context(), larger("b-vm")))
		assert.Equal(t, []string{"evaluate a", "uncordon a", "evaluate b"}, g.done)
	})
}

func TestRestartTakesItsTurn(t *testing.T) {
	inProgram(t, false, func(ctx *pulumi.Context) {
		g := &guests{}
		r := restarting(ctx, g)

		require.NoError(t, r.before(t.Context(), larger("a-vm")))

		began := make(chan error)
		go func() { began <- r.before(t.Context(), larger("b-vm")) }()

		require.NoError(t, r.after(t.Context(), larger("a-vm")))
		require.NoError(t, <-began)
		require.NoError(t, r.after(t.Context(), larger("b-vm")))
		assert.Equal(t, []string{"evaluate a", "rejoined a", "uncordon a", "evaluate b", "rejoined b", "uncordon b"}, g.done)
		assert.Empty(t, r.under)
	})
}

// TestRestartOfNothing: what does not restart a running VM asks nobody and waits for nobody.
func TestRestartOfNothing(t *testing.T) {
	same := changedVM("a-vm", map[string]any{"memory": map[string]any{"dedicated": 1.0}}, map[string]any{"memory": map[string]any{"dedicated": 1.0, "__defaults": []any{}}, "tags": []any{"x"}})
	same.OldInputs["disks"] = resource.NewProperty([]resource.PropertyValue{resource.NewProperty(resource.PropertyMap{"size": resource.NewProperty(10.0)})})
	same.NewInputs["disks"] = resource.NewProperty([]resource.PropertyValue{resource.NewProperty(resource.PropertyMap{"size": resource.NewProperty(20.0)})})

	for name, c := range map[string]struct {
		args *pulumi.ResourceHookArgs
		vm   running
		want string
	}{
		"a change that needs no restart": {args: same},
		"a VM that is off":               {args: larger("a-vm"), vm: running{off: true}},
		"a VM that is gone":              {args: larger("a-vm"), vm: running{gone: true}},
		"no Proxmox VE":                  {args: larger("a-vm"), vm: running{err: proxmoxapi.ErrUnreachable}, want: "cannot be reached"},
		"a stranger":                     {args: larger("x-vm"), want: "x-vm is the VM of no node of the plan"},
	} {
		t.Run(name, func(t *testing.T) {
			inProgram(t, false, func(ctx *pulumi.Context) {
				g := &guests{}
				r := restarting(ctx, g, func(r *restarts) { r.proxmox = c.vm })

				if err := r.before(t.Context(), c.args); c.want == "" {
					assert.NoError(t, err)
				} else {
					assert.EqualError(t, err, c.want)
				}

				if c.want == "" {
					assert.NoError(t, r.after(t.Context(), c.args))
				}

				again, err := r.failed(t.Context(), &pulumi.ErrorHookArgs{Name: c.args.Name})
				assert.NoError(t, err)
				assert.False(t, again)
				assert.Empty(t, g.done)
				assert.NoError(t, r.rollout.Limiter.Stopped())
			})
		})
	}
}

// TestForeignVMIsNotStarted: a VM that the state says is on and that is off is started where it is ours, and no other.
func TestForeignVMIsNotStarted(t *testing.T) {
	args := changedVM("a-vm", nil, map[string]any{"started": true, "tags": []any{"x"}})
	args.OldOutputs = resource.PropertyMap{"started": resource.NewProperty(true)}

	for name, c := range map[string]struct {
		vm   running
		want string
	}{
		// Its start is refused: that is how it is seen here.
		"ours":    {running{off: true, stuck: errors.New("no memory")}, "VM 401 of a is off, and does not start: no memory"},
		"foreign": {running{off: true, foreign: true, stuck: errors.New("no memory")}, "VM 401 is off, and is not started: VMID 401 is "},
	} {
		t.Run(name, func(t *testing.T) {
			inProgram(t, false, func(ctx *pulumi.Context) {
				r := restarting(ctx, nil, func(r *restarts) { r.proxmox = c.vm })
				assert.ErrorContains(t, r.before(t.Context(), args), c.want)
			})
		})
	}
}

// TestRestartFails: whatever fails is said, and nobody is begun after it.
func TestRestartFails(t *testing.T) {
	for name, c := range map[string]struct {
		guests guests
		run    func(t *testing.T, r *restarts) error
		want   string
		done   []string
	}{
		"its pods stay": {
			guests: guests{held: errors.New("a pod stays")},
			run:    func(t *testing.T, r *restarts) error { return r.before(t.Context(), larger("a-vm")) },
			want:   "the VM of a is not changed: a pod stays",
		},
		"it does not come back": {
			guests: guests{lost: errors.New("gave up")},
			run: func(t *testing.T, r *restarts) error {
				require.NoError(t, r.before(t.Context(), larger("a-vm")))

				return r.after(t.Context(), larger("a-vm"))
			},
			want: "a has not rejoined since its VM was restarted: gave up",
			done: []string{"evaluate a", "rejoined a"},
		},
		"Proxmox VE refuses": {
			run: func(t *testing.T, r *restarts) error {
				require.NoError(t, r.before(t.Context(), larger("a-vm")))

				again, err := r.failed(t.Context(), &pulumi.ErrorHookArgs{Name: "a-vm"})
				assert.False(t, again)

				return err
			},
			done: []string{"evaluate a", "uncordon a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inProgram(t, false, func(ctx *pulumi.Context) {
				r := restarting(ctx, &c.guests)

				if err := c.run(t, r); c.want == "" {
					assert.NoError(t, err)
				} else {
					assert.EqualError(t, err, c.want)
				}

				assert.EqualError(t, r.before(t.Context(), larger("b-vm")), "b: not begun: a failed")
				assert.EqualError(t, r.before(t.Context(), larger("w-vm")), "w: not begun: a failed")
				assert.Equal(t, c.done, c.guests.done)
				assert.Empty(t, r.under)
			})
		})
	}
}

func TestRestartIsRefused(t *testing.T) {
	for _, apply := range []spec.Apply{spec.ApplyNoReboot, spec.ApplyStaged} {
		for _, dry := range []bool{true, false} {
			inProgram(t, dry, func(ctx *pulumi.Context) {
				r := restarting(ctx, &guests{}, func(r *restarts) { r.plan.Apply = apply })
				assert.EqualError(t, r.before(t.Context(), larger("a-vm")),
					"a: lifecycle.apply: this change of its VM (memory) restarts it, which "+string(apply)+" does not allow; set auto")
			})
		}
	}
}

func TestRestartInAPreview(t *testing.T) {
	inProgram(t, true, func(ctx *pulumi.Context) {
		g := &guests{}
		r := restarting(ctx, g, func(r *restarts) { r.proxmox = running{err: proxmoxapi.ErrUnreachable} })

		require.NoError(t, r.before(t.Context(), larger("a-vm")))
		assert.Equal(t, []string{"outage a"}, g.done)
		assert.Empty(t, r.under)

		r.inside = nil
		require.NoError(t, r.before(t.Context(), larger("a-vm")))
	})
}

// TestRestartOfStrangersNodes: where somebody else looks after the nodes, VMs go in turns and nobody else is asked.
func TestRestartOfStrangersNodes(t *testing.T) {
	inProgram(t, false, func(ctx *pulumi.Context) {
		var said []string

		r := restarting(ctx, nil, func(r *restarts) { r.say = func(text string) { said = append(said, text) } })

		require.NoError(t, r.before(t.Context(), larger("a-vm")))
		assert.Equal(t, []string{"the VM of a restarts (memory); its pods are not drained with bootstrap: external"}, said)

		_, err := r.rollout.Limiter.Acquire(t.Context(), "b", spec.RoleControlPlane, time.Millisecond, silent)
		require.EqualError(t, err, "b: gave up after 1ms, waiting for its turn")

		require.NoError(t, r.after(t.Context(), larger("a-vm")))
		require.NoError(t, r.before(t.Context(), larger("b-vm")))

		again, err := r.failed(t.Context(), &pulumi.ErrorHookArgs{Name: "b-vm"})
		require.NoError(t, err)
		assert.False(t, again)
	})
}

func TestLater(t *testing.T) {
	l := newFuture[string]()

	_, known := l.get(t.Context(), time.Millisecond)
	assert.False(t, known)

	ended, cancel := context.WithCancel(t.Context())
	cancel()

	_, known = l.get(ended, time.Hour)
	assert.False(t, known)

	l.set("a")
	l.set("b")

	value, known := l.get(t.Context(), time.Hour)
	assert.True(t, known)
	assert.Equal(t, "a", value)
}

// kubernetesWith is a Kubernetes with nodes: "cordoned" by this program, "theirs" by somebody else.
func kubernetesWith(t *testing.T, nodes map[string]string) (*kubeapi.Client, func() []string) {
	t.Helper()

	api := fake.NewClientset()

	for name, state := range nodes {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.NodeSpec{Unschedulable: state != "" && state != "lost"},
			Status: corev1.NodeStatus{
				NodeInfo:   corev1.NodeSystemInfo{BootID: "first"},
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: map[bool]corev1.ConditionStatus{true: "Unknown", false: "True"}[state == "lost"]}},
			},
		}
		if state == "cordoned" {
			n.Annotations = map[string]string{"talos-proxmox/cordoned": "true"}
		}

		_, err := api.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
		require.NoError(t, err)
	}

	kube := kubeapi.Of(api)

	return kube, func() []string {
		all, err := kube.Nodes(t.Context())
		require.NoError(t, err)

		var closed []string

		for _, n := range all {
			if n.Cordoned {
				closed = append(closed, n.Name)
			}
		}

		slices.Sort(closed)

		return closed
	}
}

// TestEnding: what an earlier run has left cordoned takes pods again, and nothing else does.
func TestEnding(t *testing.T) {
	p := &plan.Plan{ReadyTimeout: time.Millisecond, Pools: []plan.PlannedPool{{Role: spec.RoleWorker, Nodes: []plan.Node{{Name: "a"}, {Name: "b"}}}}}

	of := func(ctx *pulumi.Context, kube *kubeapi.Client) *ending {
		return &ending{ctx: ctx, plan: p, limiter: rollout.NewLimiter(1), inside: &guests{kube: kube}, say: silent}
	}

	inProgram(t, false, func(ctx *pulumi.Context) {
		kube, closed := kubernetesWith(t, map[string]string{"a": "cordoned", "b": "theirs", "stranger": "cordoned"})
		require.NoError(t, of(ctx, kube).look(t.Context()))
		assert.Equal(t, []string{"b", "stranger"}, closed())

		failed := of(ctx, nil)
		require.NoError(t, failed.look(t.Context()), "a cluster that does not answer stops nobody")
	})

	inProgram(t, false, func(ctx *pulumi.Context) {
		kube, closed := kubernetesWith(t, map[string]string{"a": "cordoned"})

		failed := of(ctx, kube)
		failed.limiter.Stop("a")
		require.EqualError(t, failed.look(t.Context()), "a failed: the messages say why; fix it, then run 'pulumi up' again")
		assert.Equal(t, []string{"a"}, closed())
	})

	inProgram(t, true, func(ctx *pulumi.Context) {
		kube, closed := kubernetesWith(t, map[string]string{"a": "cordoned"})
		require.NoError(t, of(ctx, kube).look(t.Context()))
		assert.Equal(t, []string{"a"}, closed(), "a preview changes nothing")
	})
}
