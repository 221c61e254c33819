package talos_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"talos-proxmox/tests/lab/talos"
	"talos-proxmox/tests/upstream"
)

// released has nodes run etcd and Kubernetes as they are released, which takes its time.
func released(t *testing.T) func(*talos.Options) {
	t.Helper()

	binary, err := upstream.Open(t.Context())
	require.NoError(t, err)

	return func(o *talos.Options) { o.Upstream, o.Dir = binary, t.TempDir() }
}

// web is a deployment whose pods take a while to end.
func web(t *testing.T, api kubernetes.Interface) {
	t.Helper()

	labels, replicas, grace := map[string]string{"app": "web"}, int32(2), int64(30)

	_, err := api.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: &grace,
					Containers: []corev1.Container{{Name: "web", Image: "nginx", Lifecycle: &corev1.Lifecycle{
						PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}},
					}}},
				},
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func (r *harness) webRuns(api kubernetes.Interface) {
	r.Helper()
	r.until("the deployment runs", func(ctx context.Context) error {
		d, err := api.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
		if err == nil && d.Status.AvailableReplicas != *d.Spec.Replicas {
			err = fmt.Errorf("%+v", d.Status)
		}

		return err
	})
}

// Control planes run real members of etcd and real API servers: they come, restart, leave and are recovered from a
// snapshot as the lab's models do.
func TestReleasedControlPlanes(t *testing.T) {
	r := newHarness(t, released(t))

	worker := r.machine(21, template()).on()
	c, cps := three(r, "", nil)
	c.apply(worker, c.config(configmachine.TypeWorker, "worker-1"))

	api := c.kubernetes(cps[0])
	nodesReady(r, api.CoreV1().Nodes().List, "cp-1", "cp-2", "cp-3", "worker-1")
	require.Len(t, c.etcdMembers(cps[1]), 3)

	version, err := api.Discovery().ServerVersion()
	require.NoError(t, err)
	require.Equal(t, "v"+kubeVersion, version.GitVersion, "that of the control plane that is played")

	web(t, api)
	r.webRuns(api)
	note(t, api, "kept")

	t.Run("a member is killed and comes back with its data", func(t *testing.T) {
		ids := c.memberIDs(cps[0])

		cps[2].off()
		r.until("Kubernetes notices", func(ctx context.Context) error {
			n, err := api.CoreV1().Nodes().Get(ctx, "cp-3", metav1.GetOptions{})
			if err == nil && len(n.Spec.Taints) < 3 {
				err = fmt.Errorf("%v", n.Spec.Taints)
			}

			return err
		})
		note(t, api, "two-of-three")
		cps[2].on().ready()
		require.Equal(t, ids, c.memberIDs(cps[2]))

		all := r.fw.Quorum(time.Time{})
		require.Equal(t, []string{"vm-13: etcd stops (power cut)", "vm-13: etcd starts"},
			[]string{all[len(all)-2].Cause, all[len(all)-1].Cause})
		require.Equal(t, 3, all[len(all)-1].Healthy)
	})

	t.Run("a member leaves, and its node joins again", func(t *testing.T) {
		ids := c.memberIDs(cps[0])

		_, err := c.client(cps[2]).EtcdForfeitLeadership(t.Context(), &machineapi.EtcdForfeitLeadershipRequest{})
		require.NoError(t, err)
		require.NoError(t, c.leave(cps[2]))
		require.Len(t, c.etcdMembers(cps[0]), 2)

		before := cps[2].bootID(c)
		require.NoError(t, c.client(cps[2]).Reboot(t.Context()))
		cps[2].rebooted(c, before)
		cps[2].ready()
		require.NotEqual(t, ids["cp-3"], c.memberIDs(cps[0])["cp-3"])
	})

	t.Run("a worker reports again within the second in which it went", func(t *testing.T) {
		for range 5 {
			worker.off()
			worker.on().ready()
		}
	})

	t.Run("a kubelet ends with a flag that it does not know", func(t *testing.T) {
		c.live(worker, configmachine.TypeWorker, "worker-1", "machine: { kubelet: { extraArgs: { no-such-flag: '1' } } }")
		r.until("the kubelet ends", func(context.Context) error {
			if state, _ := c.service(worker, "kubelet"); state != "Waiting" {
				return errors.New(state)
			}

			return nil
		})
		r.until("its node is not ready", func(ctx context.Context) error {
			n, err := api.CoreV1().Nodes().Get(ctx, "worker-1", metav1.GetOptions{})
			if err == nil && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			}) {
				err = errors.New("it is")
			}

			return err
		})

		c.live(worker, configmachine.TypeWorker, "worker-1", "machine: { kubelet: { extraArgs: { v: '3' } } }")
		nodesReady(r, api.CoreV1().Nodes().List, "cp-1", "cp-2", "cp-3", "worker-1")
	})

	data := c.snapshot(cps[0])
	note(t, api, "lost")

	t.Run("recovered from a snapshot", func(t *testing.T) {
		for _, v := range cps[1:] {
			v.off()
		}

		require.NotEmpty(t, c.snapshot(cps[0]), "without a quorum")
		c.wipe(cps[0])
		c.recover(cps[0], data)
		r.until("is recovered", func(ctx context.Context) error {
			return c.client(cps[0]).Bootstrap(ctx, &machineapi.BootstrapRequest{RecoverEtcd: true})
		})
		cps[0].ready()

		_, err := api.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
		require.NoError(t, err)

		_, err = api.CoreV1().ConfigMaps("default").Get(t.Context(), "lost", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "%v", err)

		require.Len(t, c.etcdMembers(cps[0]), 1)
		worker.ready()
		r.webRuns(api)
	})

	t.Run("a pod ends when its hook has", func(t *testing.T) {
		require.NoError(t, api.AppsV1().Deployments("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
		r.until("its pods are gone", func(ctx context.Context) error {
			list, err := api.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
			if err == nil && len(list.Items) > 0 {
				err = errors.New("there are some")
			}

			return err
		})
	})
}
