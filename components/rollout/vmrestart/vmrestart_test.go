package vmrestart

import (
	"context"
	"errors"
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

	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
)

func silent(string) {}

// noResources is a program that registers nothing.
type noResources struct{ pulumi.MockResourceMonitor }

// inProgram runs something with the context of a program.
func inProgram(t *testing.T, dry bool, run func(ctx *pulumi.Context)) {
	t.Helper()

	require.NoError(t, pulumi.RunErr(func(ctx *pulumi.Context) error {
		run(ctx)

		return nil
	}, pulumi.WithMocks("p", "s", noResources{}), func(info *pulumi.RunInfo) { info.DryRun = dry }))
}

// program is a run in which nothing is shown.
func program(dry bool) rollout.Program {
	return rollout.Program{
		DryRun: dry, Progress: silent, Warn: silent, Preview: func(impact.NodeImpact) error { return nil },
	}
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

func (g *guests) Restart(n plan.Node) rollout.Node { return &restartedGuest{g, n} }

// restartedGuest is one of them.
type restartedGuest struct {
	*guests

	node plan.Node
}

func (g *restartedGuest) Evaluate(context.Context) (rollout.Work, error) {
	if g.held == nil {
		g.done = append(g.done, "evaluate "+g.node.Name)
	}

	return rollout.Work{Effect: impact.EffectReboot}, g.held
}

func (g *restartedGuest) WaitDisruptable(context.Context, impact.Effect) error { return nil }

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

func (g *guests) PreviewRestart(_ context.Context, n plan.Node) string {
	g.done = append(g.done, "outage "+n.Name)

	return "2 of 3, 2 needed"
}

func (*guests) EtcdMembers(context.Context, *kubeapi.Client) ([]string, error) { return nil, nil }

func (g *guests) Kubernetes(context.Context) (*kubeapi.Client, error) {
	if g.kube == nil {
		return nil, errors.New("no Kubernetes API answers")
	}

	return g.kube, nil
}

// larger is a VM that gets more memory.
func larger(name string) *pulumi.ResourceHookArgs {
	return changedVM(name, map[string]any{"memory": map[string]any{"dedicated": 2048.0}},
		map[string]any{"memory": map[string]any{"dedicated": 4096.0}})
}

func changedVM(name string, before, after map[string]any) *pulumi.ResourceHookArgs {
	return &pulumi.ResourceHookArgs{
		Name: name, OldInputs: resource.NewPropertyMapFromMap(before),
		NewInputs: resource.NewPropertyMapFromMap(after),
	}
}

// restarting is the change of VMs of two control planes and a worker, all of which run.
func restarting(ctx *pulumi.Context, g *guests, change ...func(*Hooks)) *Hooks {
	p := &plan.Plan{DrainTimeout: time.Minute, SettleTimeout: time.Minute}
	limiter := rollout.NewLimiter(1)
	r := New(Options{
		Scope:   rollout.Scope{Program: program(ctx.DryRun()), Plan: p, Limiter: limiter},
		Rollout: rollout.New(p, limiter, silent),
		Nodes: map[string]plan.Node{
			"a-vm": {Name: "a", VMID: 401, Role: spec.RoleControlPlane},
			"b-vm": {Name: "b", VMID: 402, Role: spec.RoleControlPlane},
			"w-vm": {Name: "w", VMID: 501, Role: spec.RoleWorker},
		},
		Proxmox: running{}, Permissions: (*preflight.Report)(nil),
	})
	r.grace, r.offGrace = 0, 0

	if g != nil {
		r.System = g
	}

	for _, f := range change {
		f(r)
	}

	r.Identities = vmidentity.NewIdentities(ctx, r.Plan, r.Proxmox, (*preflight.Report)(nil).VM)
	for _, n := range r.Nodes {
		r.Identities.Record(vmidentity.Machine{
			VMID: n.VMID, Name: n.Name, UUID: runningUUID,
			Tags: vmidentity.OwnerTags(r.Plan),
		})
	}

	return r
}

// runningUUID is that of every VM of running.
const runningUUID = "6c84fb90-12c4-11e1-840d-7b25c5ee775a"

func (running) VMs(context.Context) ([]proxmoxapi.VM, error) { return nil, nil }

func (v running) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	if v.foreign {
		return proxmoxapi.VMConfig{UUID: "110ec58a-a0f2-4ac4-8393-c866d813b8d1"}, nil
	}

	if v.unchanged {
		return proxmoxapi.VMConfig{UUID: runningUUID, Settings: map[string]string{"memory": "2048"}}, nil
	}

	return proxmoxapi.VMConfig{UUID: runningUUID, Settings: map[string]string{
		"memory": "4096", "scsi1": "local:vm-401-disk-1,cache=writeback",
	}}, nil
}

// running is a Proxmox VE all of whose VMs run.
type running struct {
	Proxmox

	off, gone bool
	// foreign: its VMs are not those of the state.
	foreign bool
	// unchanged VMs keep the memory that they have, whatever is asked for.
	unchanged bool
	// pending are settings that wait for a restart, stuck is why there is none.
	pending []string
	stuck   error
	// again, where there is one, notes a restart, which takes what is pending.
	again *bool
	// kept VMs run on, until they are restarted; others are restarted each time they are asked for.
	kept bool
	err  error
	// drives are settings that it runs with.
	drives map[string]string
}

func (v running) Files(context.Context, string, string) (map[string]int64, error) {
	return map[string]int64{"local:iso/there.iso": 1}, nil
}

func (v running) Find(_ context.Context, vmid int) (proxmoxapi.VM, bool, error) {
	return proxmoxapi.VM{ID: vmid, Host: "pve", Stopped: v.off}, !v.gone, v.err
}

func (v running) Process(context.Context, proxmoxapi.VM) (int, error) {
	if v.off {
		return 0, nil
	}

	if v.kept {
		if v.again != nil && *v.again {
			return 4712, nil
		}

		return 4711, nil
	}

	return int(time.Now().UnixNano()), nil
}

func (v running) Settings(context.Context, proxmoxapi.VM) (proxmoxapi.Settings, error) {
	found := proxmoxapi.Settings{Current: v.drives, Pending: map[string]string{}}
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

// TestDeletedISOFile: a VM that Proxmox VE would not start again is not restarted, and its node is not drained.
func TestDeletedISOFile(t *testing.T) {
	for _, dry := range []bool{true, false} {
		inProgram(t, dry, func(ctx *pulumi.Context) {
			g := &guests{}
			r := restarting(ctx, g, func(r *Hooks) {
				r.Proxmox = running{kept: true, drives: map[string]string{
					"ide2": "local:iso/there.iso,media=cdrom", "ide3": "local:iso/gone.iso,media=cdrom,size=90M",
				}}
			})

			require.EqualError(t, r.Before(t.Context(), larger("a-vm")), "the VM of a is not restarted (memory): "+
				"local:iso/gone.iso is in its drive ide3 and does not exist, so Proxmox VE would not start the VM again. Put "+
				"the file back; or, if the node has installed, run 'qm set 401 --ide3 none,media=cdrom' on host pve; then run "+
				"'pulumi up' again")
			require.Empty(t, g.done)

			r.Proxmox = running{kept: true, drives: map[string]string{
				"ide2": "local:iso/there.iso,media=cdrom", "description": "from local:iso/gone.iso,media=cdrom",
			}}
			require.NoError(t, r.Before(t.Context(), larger("a-vm")))
		})
	}
}

// TestRestartIsOwed: an update failed before the VM was restarted, and the provider takes it for done. The next one
// makes up for that in the node's turn, before the provider is asked: while it fails, the update has failed.
func TestRestartIsOwed(t *testing.T) {
	same := func() *pulumi.ResourceHookArgs { return changedVM("a-vm", map[string]any{}, map[string]any{}) }

	for name, c := range map[string]struct {
		vm   running
		args *pulumi.ResourceHookArgs
		want string
		done []string
	}{
		"nothing else changes": {
			vm: running{pending: []string{"cores", "memory"}}, args: same(),
			done: []string{"evaluate a", "rejoined a", "uncordon a"},
		},
		"it was to change": {
			vm: running{pending: []string{"memory"}}, args: larger("a-vm"),
			done: []string{"evaluate a", "rejoined a", "uncordon a"},
		},
		"it does not restart": {
			vm: running{pending: []string{"memory"}, stuck: errors.New("no")}, args: same(),
			want: "the VM of a is not restarted: no",
			done: []string{"evaluate a", "uncordon a"},
		},
		"it is off":       {vm: running{pending: []string{"memory"}, off: true}, args: same()},
		"nothing is owed": {args: same()},
		"nothing restarts": {
			vm: running{stuck: errors.New("not asked")}, args: larger("a-vm"),
			done: []string{"evaluate a", "rejoined a", "uncordon a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inProgram(t, false, func(ctx *pulumi.Context) {
				g := &guests{}
				c.vm.again = new(bool)
				r := restarting(ctx, g, func(r *Hooks) { r.Proxmox = c.vm })

				if err := r.Before(t.Context(), c.args); c.want == "" {
					assert.NoError(t, err)
					assert.NoError(t, r.Rollout.Limiter.CheckNoneFailed())
					assert.NoError(t, r.After(t.Context(), c.args))
				} else {
					assert.EqualError(t, err, c.want)
					assert.EqualError(t, r.Rollout.Limiter.CheckNoneFailed(), "not started: a failed")
				}

				assert.Equal(t, c.done, g.done)
				assert.Empty(t, r.underWay)
			})
		})
	}

	inProgram(t, true, func(ctx *pulumi.Context) {
		g := &guests{}
		r := restarting(ctx, g, func(r *Hooks) { r.Proxmox = running{pending: []string{"memory"}} })
		require.NoError(t, r.Before(t.Context(), same()))
		assert.Equal(t, []string{"outage a"}, g.done, "a preview says so")

		r.Proxmox = running{err: proxmoxapi.ErrUnreachable}
		require.NoError(t, r.Before(t.Context(), same()), "and waits for nothing")
	})
}

// TestRestartIsNotNeeded: an update that failed half-way had restarted the VM already. The next one of it does not, and
// nothing waits for that.
func TestRestartIsNotNeeded(t *testing.T) {
	inProgram(t, false, func(ctx *pulumi.Context) {
		g := &guests{}
		r := restarting(ctx, g, func(r *Hooks) { r.Proxmox = running{kept: true} })

		require.NoError(t, r.Before(t.Context(), larger("a-vm")))
		require.NoError(t, r.After(t.Context(), larger("a-vm")))
		require.NoError(t, r.Before(t.Context(), larger("b-vm")))
		assert.Equal(t, []string{"evaluate a", "uncordon a", "evaluate b"}, g.done)
	})
}

// otherCache is a VM whose disk gets another cache.
func otherCache(name string) *pulumi.ResourceHookArgs {
	args := changedVM(name, disks("none"), disks("writeback"))
	args.OldOutputs = args.OldInputs

	return args
}

func disks(cache string) map[string]any {
	return map[string]any{"disks": []any{map[string]any{
		"interface": "scsi1", "cache": cache, "aio": "io_uring", "discard": "on", "iothread": false, "ssd": false,
	}}}
}

// waitingDisk is a VM that keeps a change of a disk pending: it is there once the VM was drained.
type waitingDisk struct {
	running

	changed *bool
}

func (v waitingDisk) Settings(ctx context.Context, vm proxmoxapi.VM) (proxmoxapi.Settings, error) {
	if !*v.changed {
		return proxmoxapi.Settings{Current: map[string]string{
			"scsi1": "tank:x,cache=none,aio=io_uring,discard=on,iothread=0,ssd=0",
		}}, nil
	}

	return v.running.Settings(ctx, vm)
}

// TestRestartForDiskOptions: Proxmox VE keeps options of disks pending, and the provider does not restart the VM.
func TestRestartForDiskOptions(t *testing.T) {
	inProgram(t, true, func(ctx *pulumi.Context) {
		g := &guests{}
		r := restarting(ctx, g, func(r *Hooks) { r.Proxmox = running{err: proxmoxapi.ErrUnreachable} })
		require.NoError(t, r.Before(t.Context(), otherCache("a-vm")))
		assert.Equal(t, []string{"outage a"}, g.done, "a preview says so")
	})

	for name, c := range map[string]struct {
		external bool
		stuck    error
		want     string
		done     []string
		restart  bool
	}{
		"drained":             {restart: true, done: []string{"evaluate a", "rejoined a", "uncordon a"}},
		"bootstrap: external": {restart: true, external: true},
		"it cannot be restarted": {
			stuck: errors.New("VM is locked (backup)"), restart: true, done: []string{"evaluate a"},
			want: "a does not run with the change of its VM: VM is locked (backup)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inProgram(t, false, func(ctx *pulumi.Context) {
				g, again, changed := &guests{}, false, false
				vm := waitingDisk{running{kept: true, pending: []string{"scsi1"}, again: &again, stuck: c.stuck}, &changed}
				r := restarting(ctx, g, func(r *Hooks) { r.Proxmox = vm })

				if c.external {
					r.System = nil
				}

				require.NoError(t, r.Before(t.Context(), otherCache("a-vm")))
				assert.False(t, again, "the change comes first")

				changed = true

				if err := r.After(t.Context(), otherCache("a-vm")); c.want == "" {
					require.NoError(t, err)
				} else {
					require.EqualError(t, err, c.want)
					require.EqualError(t, r.Before(t.Context(), otherCache("b-vm")), "b: not started: a failed")
				}

				assert.Equal(t, c.restart, again)
				assert.Equal(t, c.done, g.done)
			})
		})
	}

	inProgram(t, false, func(ctx *pulumi.Context) {
		g := &guests{}
		r := restarting(ctx, g, func(r *Hooks) {
			n := r.Nodes["a-vm"]
			n.Template = "9000"
			r.Nodes["a-vm"] = n
		})
		require.NoError(t, r.Before(t.Context(), otherCache("a-vm")))
		assert.Empty(t, g.done, "the system disk of a clone keeps the options of its template")
	})
}

func TestRestartTakesItsTurn(t *testing.T) {
	inProgram(t, false, func(ctx *pulumi.Context) {
		g := &guests{}
		r := restarting(ctx, g)

		require.NoError(t, r.Before(t.Context(), larger("a-vm")))

		began := make(chan error)
		go func() { began <- r.Before(t.Context(), larger("b-vm")) }()

		require.NoError(t, r.After(t.Context(), larger("a-vm")))
		require.NoError(t, <-began)
		require.NoError(t, r.After(t.Context(), larger("b-vm")))
		assert.Equal(t, []string{"evaluate a", "rejoined a", "uncordon a", "evaluate b", "rejoined b", "uncordon b"}, g.done)
		assert.Empty(t, r.underWay)
	})
}

// TestRestartOfNothing: what does not restart a running VM asks and waits for nothing.
func TestRestartOfNothing(t *testing.T) {
	same := changedVM("a-vm", map[string]any{"memory": map[string]any{"dedicated": 1.0}},
		map[string]any{"memory": map[string]any{"dedicated": 1.0, "__defaults": []any{}}, "tags": []any{"x"}})
	same.OldInputs["disks"] = resource.NewProperty(
		[]resource.PropertyValue{resource.NewProperty(resource.PropertyMap{"size": resource.NewProperty(10.0)})})
	same.NewInputs["disks"] = resource.NewProperty(
		[]resource.PropertyValue{resource.NewProperty(resource.PropertyMap{"size": resource.NewProperty(20.0)})})

	for name, c := range map[string]struct {
		args *pulumi.ResourceHookArgs
		vm   running
		want string
	}{
		"a change that needs no restart": {args: same},
		"a VM that is off":               {args: larger("a-vm"), vm: running{off: true}},
		"a VM that is gone":              {args: larger("a-vm"), vm: running{gone: true}},
		"no Proxmox VE": {
			args: larger("a-vm"), vm: running{err: proxmoxapi.ErrUnreachable},
			want: "cannot be reached",
		},
		"a stranger": {args: larger("x-vm"), want: "x-vm is the VM of no node of the plan"},
	} {
		t.Run(name, func(t *testing.T) {
			inProgram(t, false, func(ctx *pulumi.Context) {
				g := &guests{}
				r := restarting(ctx, g, func(r *Hooks) { r.Proxmox = c.vm })

				if err := r.Before(t.Context(), c.args); c.want == "" {
					assert.NoError(t, err)
				} else {
					assert.EqualError(t, err, c.want)
				}

				if c.want == "" {
					assert.NoError(t, r.After(t.Context(), c.args))
				}

				again, err := r.Failed(t.Context(), &pulumi.ErrorHookArgs{Name: c.args.Name})
				assert.NoError(t, err)
				assert.False(t, again)
				assert.Empty(t, g.done)
				assert.NoError(t, r.Rollout.Limiter.CheckNoneFailed())
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
		"ours": {running{off: true, stuck: errors.New("no memory")}, "VM 401 of a is off, and does not start: no memory"},
		"foreign": {
			running{off: true, foreign: true, stuck: errors.New("no memory")},
			"VM 401 is off, and is not started: VMID 401 is ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inProgram(t, false, func(ctx *pulumi.Context) {
				r := restarting(ctx, nil, func(r *Hooks) { r.Proxmox = c.vm })
				assert.ErrorContains(t, r.Before(t.Context(), args), c.want)
			})
		})
	}
}

// waking is a VM whose state is "off", and that runs when its process is asked for once more.
type waking struct {
	running

	asked *int
}

func (v waking) Process(context.Context, proxmoxapi.VM) (int, error) {
	if *v.asked++; *v.asked < 3 {
		return 0, nil
	}

	return 4711, nil
}

// TestVMInTheMiddleOfARestart: what Proxmox VE starts by itself is not started, for it would lock the VM.
func TestVMInTheMiddleOfARestart(t *testing.T) {
	args := changedVM("a-vm", nil, map[string]any{"started": true, "tags": []any{"x"}})
	args.OldOutputs = resource.PropertyMap{"started": resource.NewProperty(true)}

	inProgram(t, false, func(ctx *pulumi.Context) {
		asked := 0
		r := restarting(ctx, nil, func(r *Hooks) {
			r.Proxmox = waking{running{off: true, stuck: errors.New("it was started")}, &asked}
		})
		r.offGrace = time.Minute

		assert.NoError(t, r.Before(t.Context(), args))
		assert.GreaterOrEqual(t, asked, 3)
	})
}

// TestRestartFails: each failure is reported, and no node is begun after it.
func TestRestartFails(t *testing.T) {
	for name, c := range map[string]struct {
		guests guests
		run    func(t *testing.T, r *Hooks) error
		want   string
		done   []string
	}{
		"its pods stay": {
			guests: guests{held: errors.New("a pod stays")},
			run:    func(t *testing.T, r *Hooks) error { return r.Before(t.Context(), larger("a-vm")) },
			want:   "the VM of a is not changed: a pod stays",
		},
		"it does not come back": {
			guests: guests{lost: errors.New("gave up")},
			run: func(t *testing.T, r *Hooks) error {
				require.NoError(t, r.Before(t.Context(), larger("a-vm")))

				return r.After(t.Context(), larger("a-vm"))
			},
			want: "a has not rejoined since its VM was restarted: gave up",
			done: []string{"evaluate a", "rejoined a"},
		},
		"a proxy answers instead of Proxmox VE": {
			run: func(t *testing.T, r *Hooks) error {
				require.NoError(t, r.Before(t.Context(), larger("a-vm")))

				r.Proxmox = running{unchanged: true}

				return r.After(t.Context(), larger("a-vm"))
			},
			want: `a does not run with the change of its VM: VM 401 on host pve is not as the state says: memory is "2048" ` +
				`instead of "4096", because Proxmox VE, or a proxy in its place, accepted the change but did not apply it. Run 'pulumi up --refresh', which detects this`,
			done: []string{"evaluate a"},
		},
		"Proxmox VE refuses": {
			run: func(t *testing.T, r *Hooks) error {
				require.NoError(t, r.Before(t.Context(), larger("a-vm")))

				again, err := r.Failed(t.Context(), &pulumi.ErrorHookArgs{Name: "a-vm"})
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

				assert.EqualError(t, r.Before(t.Context(), larger("b-vm")), "b: not started: a failed")
				assert.EqualError(t, r.Before(t.Context(), larger("w-vm")), "w: not started: a failed")
				assert.Equal(t, c.done, c.guests.done)
				assert.Empty(t, r.underWay)
			})
		})
	}
}

func TestRestartIsRefused(t *testing.T) {
	for _, apply := range []spec.Apply{spec.ApplyNoReboot, spec.ApplyStaged} {
		for _, dry := range []bool{true, false} {
			inProgram(t, dry, func(ctx *pulumi.Context) {
				r := restarting(ctx, &guests{}, func(r *Hooks) { r.Plan.Apply = apply })
				assert.EqualError(t, r.Before(t.Context(), larger("a-vm")),
					"a: lifecycle.apply: this change of the VM (memory) needs a restart, which "+string(apply)+" "+
						"forbids; set auto")
			})
		}
	}
}

func TestRestartInAPreview(t *testing.T) {
	inProgram(t, true, func(ctx *pulumi.Context) {
		g := &guests{}
		r := restarting(ctx, g, func(r *Hooks) { r.Proxmox = running{err: proxmoxapi.ErrUnreachable} })

		require.NoError(t, r.Before(t.Context(), larger("a-vm")))
		assert.Equal(t, []string{"outage a"}, g.done)
		assert.Empty(t, r.underWay)

		r.System = nil
		require.NoError(t, r.Before(t.Context(), larger("a-vm")))
	})
}

// TestRestartOfStrangersNodes: where others look after the nodes, VMs restart in turns and nothing else is asked.
func TestRestartOfStrangersNodes(t *testing.T) {
	inProgram(t, false, func(ctx *pulumi.Context) {
		var said []string

		r := restarting(ctx, nil, func(r *Hooks) { r.Progress = func(text string) { said = append(said, text) } })

		require.NoError(t, r.Before(t.Context(), larger("a-vm")))
		assert.Equal(t, []string{"the VM of a restarts (memory); its pods are not drained with bootstrap: external"}, said)

		_, err := r.Rollout.Limiter.Acquire(t.Context(), "b", spec.RoleControlPlane, time.Millisecond, silent)
		require.EqualError(t, err, "b: gave up after 1ms, waiting for its turn")

		require.NoError(t, r.After(t.Context(), larger("a-vm")))
		require.NoError(t, r.Before(t.Context(), larger("b-vm")))

		again, err := r.Failed(t.Context(), &pulumi.ErrorHookArgs{Name: "b-vm"})
		require.NoError(t, err)
		assert.False(t, again)
	})
}
