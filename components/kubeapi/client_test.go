package kubeapi

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
)

func quiet(string) {}

func node(name string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1.34.2", BootID: "boot"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
		},
	}
}

func TestNodes(t *testing.T) {
	c := &Client{api: fake.NewClientset(node("a", corev1.ConditionTrue), node("b", corev1.ConditionUnknown))}

	all, err := c.Nodes(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []Node{
		{Name: "a", Ready: true, Kubelet: "v1.34.2", Boot: "boot"},
		{Name: "b", Kubelet: "v1.34.2", Boot: "boot"},
	}, all)

	_, there, err := c.Node(t.Context(), "c")
	require.NoError(t, err)
	assert.False(t, there)

	require.NoError(t, c.WaitReady(t.Context(), "a", "", time.Minute, quiet))
	require.NoError(t, c.WaitReady(t.Context(), "a", "boot", time.Minute, quiet))
	assert.EqualError(t, c.WaitReady(t.Context(), "a", "next", time.Millisecond, quiet),
		"gave up after 1ms, waiting for a to be ready in Kubernetes")
	assert.EqualError(t, c.WaitReady(t.Context(), "b", "", time.Millisecond, quiet),
		"gave up after 1ms, waiting for b to be ready in Kubernetes")
	assert.EqualError(t, c.WaitReady(t.Context(), "c", "", time.Millisecond, quiet),
		"gave up after 1ms, waiting for c to join Kubernetes")
}

func TestCordon(t *testing.T) {
	theirs := node("b", corev1.ConditionTrue)
	theirs.Spec.Unschedulable = true

	c := &Client{api: fake.NewClientset(node("a", corev1.ConditionTrue), theirs)}

	cordoned := func(name string) bool {
		n, there, err := c.Node(t.Context(), name)
		require.NoError(t, err)
		require.True(t, there)

		return n.Cordoned
	}

	for _, name := range []string{"a", "b", "gone"} {
		require.NoError(t, c.Cordon(t.Context(), name))
		require.NoError(t, c.Cordon(t.Context(), name), "twice is once")
	}

	assert.True(t, cordoned("a"))
	assert.True(t, cordoned("b"))

	for _, name := range []string{"a", "b", "gone"} {
		require.NoError(t, c.Uncordon(t.Context(), name))
	}

	assert.False(t, cordoned("a"))
	assert.True(t, cordoned("b"), "a node cordoned by others stays cordoned")

	n, err := c.api.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Empty(t, n.Annotations, "nothing is left behind")
}

// A run that was cut off has left its cordon. An operator has uncordoned the node, and cordons it for a reason of theirs.
func TestCordonAfterOperator(t *testing.T) {
	c := &Client{api: fake.NewClientset(node("a", corev1.ConditionTrue))}
	operator := func(cordoned string) {
		_, err := c.api.CoreV1().Nodes().Patch(t.Context(), "a", types.MergePatchType,
			[]byte(`{"spec":{"unschedulable":`+cordoned+`}}`), metav1.PatchOptions{FieldManager: "kubectl-cordon"})
		require.NoError(t, err)
	}

	require.NoError(t, c.Cordon(t.Context(), "a"))

	n, _, err := c.Node(t.Context(), "a")
	require.NoError(t, err)
	assert.True(t, n.Ours)

	operator("null")
	operator("true")

	n, _, err = c.Node(t.Context(), "a")
	require.NoError(t, err)
	assert.False(t, n.Ours)

	require.NoError(t, c.Uncordon(t.Context(), "a"))

	left, err := c.api.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	assert.True(t, left.Spec.Unschedulable)
	assert.Empty(t, left.Annotations)

	// The mark of a run that was cut off is there still, by the name that an earlier version had.
	operator("null")

	_, err = c.api.CoreV1().Nodes().Patch(t.Context(), "a", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+cordonedBy+`":"true"}}}`), metav1.PatchOptions{FieldManager: "pulumi-go.1"})
	require.NoError(t, err)
	require.NoError(t, c.Cordon(t.Context(), "a"))

	n, _, err = c.Node(t.Context(), "a")
	require.NoError(t, err)
	assert.True(t, n.Cordoned)
	assert.True(t, n.Ours)
}

func TestDeleteNode(t *testing.T) {
	api := fake.NewClientset(node("a", corev1.ConditionTrue))
	c := &Client{api: api}
	fine := func(Node) error { return nil }

	require.EqualError(t, c.DeleteNode(t.Context(), "a", func(n Node) error {
		return errors.New(n.Name + " is another's")
	}), "a is another's")

	// Another machine joins by the name between the check and the deletion.
	asked := 0

	api.PrependReactor("delete", "nodes", func(action core.Action) (bool, runtime.Object, error) {
		assert.NotNil(t, action.(core.DeleteActionImpl).DeleteOptions.Preconditions.UID)
		assert.NotNil(t, action.(core.DeleteActionImpl).DeleteOptions.Preconditions.ResourceVersion)

		if asked++; asked == 1 {
			return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), "a", errors.New("it has changed"))
		}

		return false, nil, nil
	})

	checks := 0

	require.EqualError(t, c.DeleteNode(t.Context(), "a", func(Node) error {
		if checks++; checks == 2 {
			return errors.New("it is another's by now")
		}

		return nil
	}), "it is another's by now")

	require.NoError(t, c.DeleteNode(t.Context(), "a", fine))
	require.NoError(t, c.DeleteNode(t.Context(), "a", fine), "gone is gone")

	all, err := c.Nodes(t.Context())
	require.NoError(t, err)
	assert.Empty(t, all)
}

// evictable is a cluster that evicts pods, but for those that a budget holds.
func evictable(held string, objects ...runtime.Object) *Client {
	api := fake.NewClientset(objects...)
	api.Resources = []*metav1.APIResourceList{{
		GroupVersion: "v1", APIResources: []metav1.APIResource{{
			Name: "pods/eviction", Kind: "Eviction", Group: "policy",
			Version: "v1",
		}},
	}}

	api.PrependReactor("create", "pods", func(action core.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "eviction" {
			return false, nil, nil
		}

		eviction := action.(core.CreateAction).GetObject().(*policyv1.Eviction)
		if eviction.Name == held {
			return true, nil, apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.",
				0)
		}

		return true, nil, api.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), eviction.Namespace,
			eviction.Name)
	})

	return &Client{api: api}
}

func pod(name, kind string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeName: "a", Volumes: []corev1.Volume{{
				Name:         "v",
				VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
			}},
		},
	}

	if kind != "" {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, Controller: new(true)}}
	}

	return p
}

func TestDrain(t *testing.T) {
	static := pod("static", "")
	static.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}

	agent := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: "shop"}}

	c := evictable("", agent, pod("web", "ReplicaSet"), pod("bare", ""), pod("agent", "DaemonSet"), static)

	require.NoError(t, c.Drain(t.Context(), "a", time.Minute, quiet))

	left, err := c.api.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)

	var names []string
	for _, p := range left.Items {
		names = append(names, p.Name)
	}

	assert.Equal(t, []string{"agent", "static"}, names)
}

func TestDrainNamesTheBudgetThatHoldsAPod(t *testing.T) {
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "always", Namespace: "shop"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 1, DesiredHealthy: 1},
	}

	c := evictable("web", pod("web", "ReplicaSet"), pod("bare", ""), budget)

	assert.EqualError(t, c.Drain(t.Context(), "a", 10*time.Millisecond, quiet),
		"a could not be drained within 10ms: pod shop/web is blocked by the disruption budget always (1 healthy, 1 "+
			"required)")
}

// TestDrainOutlivesAWebhook: what denies an eviction is asked again, and named when it still denies it in the end,
// without what a terminal would obey.
func TestDrainOutlivesAWebhook(t *testing.T) {
	const says = `admission webhook "drain.example.com" denied the request: it is moved first`

	denied := func(times int) *Client {
		c := evictable("", pod("web", "ReplicaSet"), pod("bare", ""))
		c.api.(*fake.Clientset).PrependReactor("create", "pods/eviction",
			func(a core.Action) (bool, runtime.Object, error) {
				if a.(core.CreateAction).GetObject().(*policyv1.Eviction).Name != "web" || times == 0 {
					return false, nil, nil
				}

				times--

				return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "web", errors.New("\x1b"+says+"\r"))
			})

		return c
	}

	var said []string

	require.NoError(t, denied(1).Drain(t.Context(), "a", time.Minute, func(m string) { said = append(said, m) }))
	assert.Equal(t, []string{
		"draining a of 2 pods (at most 1m0s)",
		`waiting to evict pods of a again: error when evicting pods/"web" -n "shop": pods "web" is forbidden: ` + says,
	}, said)

	assert.EqualError(t, denied(-1).Drain(t.Context(), "a", 100*time.Millisecond, quiet),
		`a could not be drained within 100ms: pod shop/web is not evicted: pods "web" is forbidden: `+says)
}

var kubeconfig = []byte(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "https://a", insecure-skip-tls-verify: true}}], users: [{name: u, user: {}}]}`)

// serve has an API server at an address.
func serve(t *testing.T, address string, handle http.HandlerFunc) {
	t.Helper()

	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address+":"+port)
	require.NoError(t, err)

	server := httptest.NewUnstartedServer(handle)
	server.Listener = listener
	server.StartTLS()
	t.Cleanup(server.Close)
}

// TestAnotherServer: where the server in use is down, refuses or is silent, another one is asked, and asked first
// from then on.
func TestAnotherServer(t *testing.T) {
	const refuses, hangs, dies, works = "127.83.6.1", "127.83.6.2", "127.83.6.5", "127.83.6.3"

	var refused, hung, died atomic.Int32

	serve(t, refuses, func(w http.ResponseWriter, _ *http.Request) {
		refused.Add(1)
		http.Error(w, "etcdserver: request timed out", http.StatusInternalServerError)
	})
	serve(t, hangs, func(_ http.ResponseWriter, r *http.Request) {
		hung.Add(1)

		_, _ = io.Copy(io.Discard, r.Body) // only then it notices that its client is gone
		<-r.Context().Done()
	})
	serve(t, dies, func(w http.ResponseWriter, _ *http.Request) {
		died.Add(1)
		w.Header().Set("Content-Length", "1000")

		_, _ = io.WriteString(w, "{") // it ends in the middle of its answer
	})
	serve(t, works, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.Contains(t, string(body), cordonedBy)

		w.Header().Set("Content-Type", "application/json")
		assert.NoError(t, json.NewEncoder(w).Encode(node("a", corev1.ConditionTrue)))
	})

	c, err := New(kubeconfig, refuses)
	require.NoError(t, err)

	c, err = c.WithRetry(time.Minute, quiet, "", refuses, "127.83.6.9", hangs, dies, works)
	require.NoError(t, err)

	for range 3 {
		require.NoError(t, c.setCordon(t.Context(), "a", true))
	}

	assert.EqualValues(t, 1, refused.Load())
	assert.EqualValues(t, 1, hung.Load())
	assert.EqualValues(t, 1, died.Load())
}

// TestAServerErrorThatLasts is told in the server's own words.
func TestAServerErrorThatLasts(t *testing.T) {
	const address = "127.83.6.4"

	serve(t, address, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the pod has two disruption budgets", http.StatusInternalServerError)
	})

	c, err := New(kubeconfig, address)
	require.NoError(t, err)

	c, err = c.WithRetry(time.Millisecond, quiet)
	require.NoError(t, err)

	_, err = c.Nodes(t.Context())
	require.ErrorContains(t, err, "the pod has two disruption budgets")
}

// TestRetry: a server that is away for a moment is waited for.
func TestRetry(t *testing.T) {
	const address = "127.83.5.1"

	c, err := New(kubeconfig, address)
	require.NoError(t, err)

	_, err = c.Nodes(t.Context())
	require.ErrorContains(t, err, "connection refused")

	var asked atomic.Int32

	var said []string

	patient, err := c.WithRetry(time.Minute, func(m string) {
		if said = append(said, m); len(said) > 1 {
			return
		}

		// It comes back when it is seen to be waited for.
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1) == 1 {
				panic(http.ErrAbortHandler) // it ends with a question half answered
			}

			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			assert.Contains(t, string(body), cordonedBy)

			w.Header().Set("Content-Type", "application/json")
			assert.NoError(t, json.NewEncoder(w).Encode(node("a", corev1.ConditionTrue)))
		}))

		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address+":"+port)
		assert.NoError(t, err)

		server.Listener = listener
		server.StartTLS()
		t.Cleanup(server.Close)
	})
	require.NoError(t, err)

	require.NoError(t, patient.setCordon(t.Context(), "a", true))
	require.Len(t, said, 2)
	assert.Equal(t, "waiting for the Kubernetes API at 127.83.5.1:6443 (connection refused) (0s of at most 1m0s)", said[0])
	assert.Contains(t, said[1], "waiting for the Kubernetes API at 127.83.5.1:6443 (")

	c, err = New(kubeconfig, "127.83.5.2")
	require.NoError(t, err)

	c, err = c.WithRetry(time.Millisecond, quiet)
	require.NoError(t, err)

	_, err = c.Nodes(t.Context())
	require.ErrorContains(t, err,
		"gave up after 1ms, waiting for the Kubernetes API at 127.83.5.2:6443 (connection refused)")
}

func TestNewRefusesWhatIsNoKubeconfig(t *testing.T) {
	_, err := New([]byte("{"), "10.0.0.1")
	assert.ErrorContains(t, err, "the kubeconfig of 10.0.0.1 cannot be read: ")
}
