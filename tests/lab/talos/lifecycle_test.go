package talos_test

import (
	"context"
	"errors"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/talos"
)

// one is a bootstrapped cluster of one.
func one(r *harness) (*cluster, *vm) {
	r.Helper()

	cp := r.machine(11, template()).on()
	c := r.cluster(cp.addr())
	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1"))
	c.bootstrap(cp)
	cp.ready()

	return c, cp
}

func (v *vm) ready() {
	v.Helper()
	v.until("is ready", func(context.Context) error {
		if s := v.status(); !s.Ready {
			return errors.New(strings.Join(s.Unmet, ", "))
		}

		return nil
	})
}

func TestReboot(t *testing.T) {
	r := newHarness(t)
	c, cp := one(r)
	before := cp.bootID(c)

	events := make(chan client.EventResult, 100)
	require.NoError(t, c.client(cp).EventsWatchV2(t.Context(), events))

	require.NoError(t, c.client(cp).Reboot(t.Context()))

	for {
		event := (<-events).Event
		if sequence, ok := event.Payload.(*machineapi.SequenceEvent); ok {
			require.Equal(t, "reboot", sequence.GetSequence())
			require.NotEmpty(t, event.ActorID)

			break
		}
	}

	cp.rebooted(c, before)
	cp.ready()
	nodesReady(r, c.kubernetes(cp).CoreV1().Nodes().List, "cp-1")
}

// A power cut is survived as well.
func TestPowerCut(t *testing.T) {
	r := newHarness(t)
	c, cp := one(r)

	cp.off()
	require.Nil(t, c.serverCertificate(cp.addr()+":50000"))
	cp.on()
	cp.ready()
	nodesReady(r, c.kubernetes(cp).CoreV1().Nodes().List, "cp-1")
}

func TestShutdown(t *testing.T) {
	r := newHarness(t)
	c, cp := one(r)

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	require.NoError(t, cp.sys.Shutdown(ctx))
	require.Nil(t, c.serverCertificate(cp.addr()+":50000"))
	require.Empty(t, r.fw.Nodes())

	// by the API the machine switches itself off
	cp.on()
	cp.ready()
	require.NoError(t, c.client(cp).Shutdown(t.Context()))
	cp.stage("off")
}

func TestReset(t *testing.T) {
	wipe := func(labels ...string) (out []*machineapi.ResetPartitionSpec) {
		for _, l := range labels {
			out = append(out, &machineapi.ResetPartitionSpec{Label: l, Wipe: true})
		}

		return out
	}

	for name, tc := range map[string]struct {
		partitions []*machineapi.ResetPartitionSpec
		cd         bool
		want       string
	}{
		"state and ephemeral":           {partitions: wipe("STATE", "EPHEMERAL"), want: "maintenance"},
		"the whole disk":                {want: "no bootable device"},
		"the whole disk, before an ISO": {cd: true, want: "maintenance"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newHarness(t)
			c, cps := three(r, "", nil)
			v := cps[2]

			if tc.cd {
				v.cd = agentISO(talos.Metal)
			}

			require.NoError(t, c.client(v).ResetGeneric(t.Context(),
				&machineapi.ResetRequest{Graceful: true, Reboot: true, SystemPartitionsToWipe: tc.partitions}))
			v.stage(tc.want)

			// a graceful reset leaves etcd
			names, err := c.members(cps[0])
			require.NoError(t, err)
			require.ElementsMatch(t, []string{"cp-1", "cp-2"}, names)
		})
	}
}

func TestFaults(t *testing.T) {
	r := newHarness(t)
	cp := r.machine(11, template()).on()
	c := r.cluster(cp.addr())
	cp.maintained()

	// nothing is done by a call that is refused or reset
	for _, kind := range []journal.Kind{journal.Refuse, journal.Reset} {
		r.journal.Plant(journal.Fault{
			Face: journal.Talos, Call: regexp.MustCompile("ApplyConfiguration"), Kind: kind,
			Message: "out of order",
		})

		_, err := cp.insecure().ApplyConfiguration(t.Context(),
			&machineapi.ApplyConfigurationRequest{Data: c.config(configmachine.TypeControlPlane, "cp-1")})
		require.Equal(t, codes.Unavailable, client.StatusCode(err))
		require.Equal(t, "maintenance", cp.status().Stage)
	}

	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1"))
	cp.until("can be bootstrapped", func(ctx context.Context) error {
		services, err := c.client(cp).ServiceInfo(ctx, "cri")
		if err == nil && (len(services) == 0 || services[0].Service.GetState() != "Running") {
			err = errors.New("no container runtime yet")
		}

		return err
	})

	// all is done by a call whose reply is lost
	r.journal.Plant(journal.Fault{
		Face: journal.Talos, Call: regexp.MustCompile("Bootstrap"), Subject: "vm-11",
		Kind: journal.LoseReply,
	})

	err := c.client(cp).Bootstrap(t.Context(), &machineapi.BootstrapRequest{})
	require.Equal(t, codes.Unavailable, client.StatusCode(err))
	err = c.client(cp).Bootstrap(t.Context(), &machineapi.BootstrapRequest{})
	require.Equal(t, codes.AlreadyExists, client.StatusCode(err))
	require.ErrorContains(t, err, "etcd data directory is not empty")
	cp.ready()
}

// What had to take time did, and one thing after the other.
func TestLatencies(t *testing.T) {
	const ms = time.Millisecond

	r := newHarness(t, func(o *talos.Options) {
		o.Latencies = talos.Latencies{
			Boot: 40 * ms, Install: 70 * ms, Apply: 20 * ms, Services: 10 * ms, Etcd: 50 * ms,
			APIServer: 60 * ms, Kubelet: 30 * ms,
		}
	})
	cp, worker := r.machine(11, nil), r.machine(21, template())
	cp.cd = agentISO(talos.Metal)
	began := time.Now()

	cp.on()
	worker.on()

	c := r.cluster(cp.addr())
	c.apply(worker, c.config(configmachine.TypeWorker, "worker-1"))
	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1"))
	c.bootstrap(cp)
	cp.ready()
	worker.ready()

	elapsed := time.Since(began)
	report := r.timeline.Report()

	var chain []string
	for _, s := range report.Chain {
		chain = append(chain, s.Name)
	}

	require.Equal(t, []string{"boot", "apply", "install", "boot", "services", "etcd", "api server", "kubelet"}, chain)
	require.Equal(t, (40+20+70+40+10+50+60+30)*ms, report.CriticalPath)
	require.GreaterOrEqual(t, elapsed, report.CriticalPath)
}

// Nothing is left of a machine that is off.
func TestNothingIsLeft(t *testing.T) {
	before := runtime.NumGoroutine()

	t.Run("cluster", func(t *testing.T) {
		three(newLonelyRig(t), "", nil)
	})

	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > before+2 && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}

	if n := runtime.NumGoroutine(); n > before+2 {
		stacks := make([]byte, 1<<20)
		t.Fatalf("%d goroutines, %d before:\n%s", n, before, stacks[:runtime.Stack(stacks, true)])
	}
}

// A node that is shut down by the API hands its pods over first, one that is cut off does not.
func TestShutdownDrains(t *testing.T) {
	r := newHarness(t)
	c, cps := three(r, "", []string{"cluster: {allowSchedulingOnControlPlanes: true}"})
	api := c.kubernetes(cps[0])
	nodesReady(r, api.CoreV1().Nodes().List, "cp-1", "cp-2", "cp-3")

	replicas, labels := int32(3), map[string]string{"app": "web"}
	_, err := api.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	on := func(node string) int {
		list, err := api.CoreV1().Pods("default").List(t.Context(),
			metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
		require.NoError(t, err)

		return len(list.Items)
	}

	first, name := cps[2], "cp-3"
	require.Equal(t, 1, on(name))
	require.NoError(t, c.client(first).Shutdown(t.Context()))
	first.stage("off")
	require.Zero(t, on(name))

	node, err := api.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.True(t, node.Spec.Unschedulable)
	require.Equal(t, "true", node.Annotations["talos.dev/cordoned"])

	first.on()
	r.until("it is uncordoned", func(ctx context.Context) error {
		node, err := api.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil && node.Spec.Unschedulable {
			err = errors.New("still cordoned")
		}

		return err
	})
}
