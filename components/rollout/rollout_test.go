package rollout

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

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
	"talos-proxmox/components/spec"
)

// recordingCluster is a cluster that notes what is asked of it, and fails where it is told to.
type recordingCluster struct {
	work Work
	// fails is the step that fails: its name, and after a "#" which time.
	fails string

	steps []string
	kube  *kubeapi.Client
}

func newRecordingCluster(work Work, fails string) *recordingCluster {
	c := &recordingCluster{work: work, fails: fails}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}

	// A run that was cut off has left it cordoned.
	if len(work.DisruptiveSteps) == 0 || work.KeepPods || work.Unreachable {
		n.Annotations = map[string]string{"talos-proxmox/cordoned": "true"}
	}

	api := fake.NewClientset(n)
	api.PrependReactor("patch", "nodes", func(a k8stesting.Action) (bool, runtime.Object, error) {
		if strings.Contains(string(a.(k8stesting.PatchAction).GetPatch()), `"unschedulable":true`) {
			return false, nil, c.step("cordon")
		}

		return false, nil, c.step("uncordon")
	})
	// A drain asks for the pods of the node.
	api.PrependReactor("list", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		err := c.step("drain")

		return err != nil, nil, err
	})

	c.kube = kubeapi.Of(api)

	return c
}

// step notes one.
func (c *recordingCluster) step(name string) error {
	c.steps = append(c.steps, name)

	times := len(slices.DeleteFunc(slices.Clone(c.steps), func(s string) bool { return s != name }))
	if c.fails == name || c.fails == name+"#"+string(rune('0'+times)) {
		return errors.New("no " + name)
	}

	return nil
}

func (c *recordingCluster) Evaluate(context.Context) (Work, error) { return c.work, c.step("evaluate") }

func (c *recordingCluster) WaitDisruptable(_ context.Context, e impact.Effect) error {
	return c.step("check " + string(e))
}

func (c *recordingCluster) Backup(context.Context) error { return c.step("back up") }

func (c *recordingCluster) Kubernetes(context.Context) (*kubeapi.Client, error) { return c.kube, nil }

func (c *recordingCluster) WaitRejoined(context.Context) error { return c.step("rejoin") }

// TestDisrupt: every step in its order, and none after one that has failed.
func TestDisrupt(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		role spec.Role
		// effects are those of the acts; the second is not needed where idle.
		effects                                  []impact.Effect
		idle, online, keep, joined, down, forced bool

		fails string
		want  string
		err   string
	}{
		"a worker": {
			role: spec.RoleWorker, effects: []impact.Effect{impact.EffectReboot},
			want: "evaluate, check reboot, cordon, drain, check reboot, act reboot, rejoin, uncordon",
		},
		"a control plane": {
			role: spec.RoleControlPlane, effects: []impact.Effect{impact.EffectReboot}, online: true,
			want: "evaluate, check reboot, back up, cordon, drain, check reboot, act reboot, rejoin, uncordon, online",
		},
		"two acts": {
			role: spec.RoleWorker, effects: []impact.Effect{impact.EffectUpgrade, impact.EffectReboot},
			want: "evaluate, check upgrade, cordon, drain, check upgrade, act upgrade, check reboot, act reboot, rejoin, " +
				"uncordon",
		},
		"the second act is not needed": {
			role: spec.RoleWorker, effects: []impact.Effect{impact.EffectUpgrade, impact.EffectReboot}, idle: true,
			want: "evaluate, check upgrade, cordon, drain, check upgrade, act upgrade, rejoin, uncordon",
		},
		"online alone": {
			role: spec.RoleControlPlane, online: true, want: "evaluate, check none, back up, rejoin, uncordon, online",
		},
		"all is done": {role: spec.RoleControlPlane, want: "evaluate, rejoin, uncordon"},
		"its pods stay": {
			role: spec.RoleWorker, effects: []impact.Effect{impact.EffectUpgrade}, keep: true,
			want: "evaluate, check upgrade, act upgrade, rejoin, uncordon",
		},
		"it does not answer": {
			role: spec.RoleControlPlane, effects: []impact.Effect{impact.EffectReboot}, down: true,
			want: "evaluate, act reboot, rejoin, uncordon",
		},
		"it has not joined": {
			role: spec.RoleControlPlane, effects: []impact.Effect{impact.EffectReboot}, joined: true,
			want: "evaluate, act reboot",
		},
		"a removal": {
			role: spec.RoleControlPlane, effects: []impact.Effect{impact.EffectRemove},
			want: "evaluate, check remove, back up, cordon, drain, check remove, act remove",
		},
		"the cluster needs what is removed": {
			role: spec.RoleControlPlane, effects: []impact.Effect{impact.EffectRemove}, fails: "check remove#2",
			want: "evaluate, check remove, back up, cordon, drain, check remove, uncordon",
			err: "n is not changed: it was drained, and is uncordoned again because the cluster has changed in the " +
				"meantime: no check remove",
		},
		"the pods of what is removed are given up": {
			role: spec.RoleWorker, effects: []impact.Effect{impact.EffectRemove}, forced: true,
			want: "evaluate, check remove, cordon, check remove, act remove",
		},
		"the cluster needs it": {
			role: spec.RoleWorker, effects: []impact.Effect{impact.EffectReboot}, fails: "check reboot",
			want: "evaluate, check reboot", err: "n is not changed: no check reboot",
		},
		"no backup": {
			role: spec.RoleControlPlane, effects: []impact.Effect{impact.EffectReboot}, fails: "back up",
			want: "evaluate, check reboot, back up", err: "n is not changed: no back up",
		},
		"it is not drained": {
			role: spec.RoleWorker, effects: []impact.Effect{impact.EffectReboot}, fails: "drain",
			want: "evaluate, check reboot, cordon, drain, uncordon",
			err: "n is not changed: the pods of n cannot be listed: no drain; make room for its pods elsewhere, or raise " +
				"lifecycle.drainTimeout; then run 'pulumi up' again",
		},
		"the cluster needs it after the drain": {
			role: spec.RoleControlPlane, effects: []impact.Effect{impact.EffectReboot}, fails: "check reboot#2",
			want: "evaluate, check reboot, back up, cordon, drain, check reboot, uncordon",
			err: "n is not changed: it was drained, and is uncordoned again because the cluster has changed in the " +
				"meantime: no check reboot",
		},
		"the cluster needs it between two acts": {
			role: spec.RoleWorker, effects: []impact.Effect{impact.EffectUpgrade, impact.EffectReboot}, fails: "check reboot",
			want: "evaluate, check upgrade, cordon, drain, check upgrade, act upgrade, check reboot, uncordon",
			err: "n is not changed: it was drained, and is uncordoned again because the cluster has changed in the " +
				"meantime: no check reboot",
		},
		"it fails": {
			role: spec.RoleWorker, effects: []impact.Effect{impact.EffectReboot}, fails: "act reboot",
			want: "evaluate, check reboot, cordon, drain, check reboot, act reboot", err: "n is not changed: no act reboot",
		},
		"it does not rejoin": {
			role: spec.RoleWorker, effects: []impact.Effect{impact.EffectReboot}, online: true, fails: "rejoin",
			want: "evaluate, check reboot, cordon, drain, check reboot, act reboot, rejoin", err: "n is not changed: no rejoin",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var c *recordingCluster

			work := Work{Effect: impact.EffectNone, KeepPods: test.keep, NotInCluster: test.joined, Unreachable: test.down}

			for _, e := range test.effects {
				work.DisruptiveSteps = append(work.DisruptiveSteps, DisruptiveStep{
					Effect: e,
					Needed: func(context.Context) (bool, error) { return !test.idle, nil },
					Do:     func(context.Context) error { return c.step("act " + string(e)) },
				})
				work.Effect = work.DisruptiveSteps[0].Effect
			}

			if test.forced {
				work.Drain = func(ctx context.Context, d Drain) error { return d.Cordon(ctx) }
			}

			if test.online {
				work.AfterUncordon = func(context.Context) error { return c.step("online") }
			}

			c = newRecordingCluster(work, test.fails)
			p := &plan.Plan{DrainTimeout: time.Minute}
			l := NewLimiter(1)
			err := New(p, l, silent).Disrupt(t.Context(), plan.Node{Name: "n", Role: test.role}, c, "n is not changed")

			assert.Equal(t, test.want, strings.Join(c.steps, ", "))

			if test.err == "" {
				require.NoError(t, err)
				require.NoError(t, l.CheckNoneFailed())
			} else {
				require.EqualError(t, err, test.err)
				require.EqualError(t, l.CheckNoneFailed(), "not started: n failed")
			}

			// Whatever came of it, it is released.
			assert.Zero(t, l.admitted[test.role])
		})
	}
}

// TestPrepare: what others take down is released by them, and a node that was not taken down is uncordoned.
func TestPrepare(t *testing.T) {
	t.Parallel()

	c := newRecordingCluster(Work{Effect: impact.EffectReboot}, "")
	l := NewLimiter(1)

	d, err := New(&plan.Plan{DrainTimeout: time.Minute}, l, silent).
		Prepare(t.Context(), plan.Node{Name: "n", Role: spec.RoleWorker}, c, "n is not changed")
	require.NoError(t, err)
	assert.Equal(t, []string{"evaluate", "check reboot", "cordon", "drain", "check reboot"}, c.steps)
	assert.Equal(t, 1, l.admitted[spec.RoleWorker])

	require.NoError(t, d.Undo(t.Context()))
	assert.Equal(t, "uncordon", c.steps[len(c.steps)-1])

	d.Release(nil)
	assert.Zero(t, l.admitted[spec.RoleWorker])
}

// awaitingCluster does without the node when the missing one has joined.
type awaitingCluster struct {
	*recordingCluster

	check func() error
}

func (c awaitingCluster) WaitDisruptable(context.Context, impact.Effect) error { return c.check() }

// TestDisruptAwaitsJoining: while a node that the update sets up is missing, others have the limiter. They may be what
// it needs.
func TestDisruptAwaitsJoining(t *testing.T) {
	t.Parallel()

	node := func(name string) plan.Node { return plan.Node{Name: name, Role: spec.RoleControlPlane} }

	run := func(joins bool) (*Limiter, error) {
		l := NewLimiter(1)
		r := New(&plan.Plan{DrainTimeout: time.Minute, ReadyTimeout: 2 * time.Second}, l, silent)
		c := newRecordingCluster(Work{Effect: impact.EffectReboot, KeepPods: true}, "")
		checks := 0

		check := func() error {
			if checks++; checks == 1 || !joins {
				return waitingForJoinError{errors.New("c-1 is missing")}
			}

			if checks == 2 { // the limiter is free
				release, err := l.Acquire(t.Context(), "c-1", spec.RoleControlPlane, time.Second, silent)
				if err != nil {
					return err
				}

				release(nil)
			}

			return nil
		}

		return l, r.Disrupt(t.Context(), node("c-2"), awaitingCluster{c, check}, "c-2 is not changed")
	}

	l, err := run(true)
	require.NoError(t, err)
	require.NoError(t, l.CheckNoneFailed())

	l, err = run(false)
	require.EqualError(t, err, "c-2 is not changed: gave up after 2s, waiting for the cluster to tolerate the outage of "+
		"c-2: c-1 is missing")
	require.EqualError(t, l.CheckNoneFailed(), "not started: c-2 failed")
}
