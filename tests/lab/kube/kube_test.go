package kube_test

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/kube"
)

// fixture is a cluster with one API server and its admin.
type fixture struct {
	*testing.T
	cluster *kube.Cluster
	journal *journal.Journal
	ca      *x509.PEMEncodedCertificateAndKey
	url     string
	api     kubernetes.Interface
	broken  atomic.Bool // etcd has no leader
}

const token, tokenSecret = "abcdef", "0123456789abcdef"

func start(t *testing.T) *fixture {
	t.Helper()

	f := &fixture{T: t, cluster: kube.NewCluster(), journal: &journal.Journal{}, ca: newCA(t)}

	require.NoError(t, f.cluster.Apply(kube.Manifests{
		CA: f.ca, TokenID: token, TokenSecret: tokenSecret,
		APIServerIP: netip.MustParseAddr("10.96.0.1"), DNSIP: netip.MustParseAddr("10.96.0.10"),
		ProxyImage: "kube-proxy:v1.34.2", CoreDNSImage: "coredns:v1", FlannelImage: "flannel:v1",
	}))

	srv, err := kube.NewServer(kube.ServerConfig{
		Node: "cp-1", Cluster: f.cluster, Version: "v1.34.2", CA: f.ca, Names: []string{"127.0.0.1", "kubernetes"},
		Journal: f.journal,
		Healthy: func() error {
			if f.broken.Load() {
				return errors.New("etcdserver: no leader")
			}

			return nil
		},
	})
	require.NoError(t, err)
	t.Cleanup(srv.Close)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv.Listen(l)
	f.url = "https://" + l.Addr().String()
	f.api = f.client("admin", "system:masters")

	return f
}

func newCA(t *testing.T) *x509.PEMEncodedCertificateAndKey {
	t.Helper()

	ca, err := x509.NewSelfSignedCertificateAuthority(x509.Organization("kubernetes"), x509.ECDSA(true))
	require.NoError(t, err)

	return x509.NewCertificateAndKeyFromCertificateAuthority(ca)
}

// config is that of a user whose certificate the cluster's CA signed.
func (f *fixture) config(name, group string) *rest.Config {
	f.Helper()

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(f.ca)
	require.NoError(f, err)
	pair, err := x509.NewKeyPair(ca, x509.CommonName(name), x509.Organization(group),
		x509.NotAfter(time.Now().Add(time.Hour)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}))
	require.NoError(f, err)

	cert := x509.NewCertificateAndKeyFromKeyPair(pair)

	return &rest.Config{
		Host: f.url, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: f.ca.Crt, CertData: cert.Crt, KeyData: cert.Key},
	}
}

func (f *fixture) client(name, group string) kubernetes.Interface {
	f.Helper()

	api, err := kubernetes.NewForConfig(f.config(name, group))
	require.NoError(f, err)

	return api
}

// join registers a node and reports it Ready.
func (f *fixture) join(name string, change ...func(*kube.Kubelet)) *kube.Kubelet {
	f.Helper()

	k := f.kubelet(name, change...)
	require.NoError(f, k.Join(f.Context()))
	require.NoError(f, k.Report(f.Context(), true, ""))

	return k
}

func (f *fixture) kubelet(name string, change ...func(*kube.Kubelet)) *kube.Kubelet {
	k := &kube.Kubelet{
		Servers: []string{f.url}, CA: f.ca.Crt, Token: token + "." + tokenSecret,
		Node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: corev1.NodeStatus{
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.9"}},
				NodeInfo:  corev1.NodeSystemInfo{KubeletVersion: "v1.34.2", OSImage: "Talos (v1.12.4)"},
			},
		},
	}
	for _, c := range change {
		c(k)
	}

	return k
}

func TestNodesJoin(t *testing.T) {
	f := start(t)
	k := f.join("node-1", func(k *kube.Kubelet) {
		k.StaticPods = []corev1.Pod{{
			ObjectMeta: metav1.ObjectMeta{
				Name: "kube-apiserver-node-1", Namespace: "kube-system",
				Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "1"},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "kube-apiserver"}}},
		}}
	})

	require.NotNil(t, k.Certificate)
	require.True(t, f.cluster.HasNode("node-1", k.UID))

	pods, err := f.api.CoreV1().Pods("kube-system").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, pods.Items, 5) // kube-proxy, flannel, two of coredns, the API server

	for _, p := range pods.Items {
		require.Equal(t, corev1.PodRunning, p.Status.Phase, p.Name)
		require.NotEmpty(t, p.Status.PodIP, p.Name)
	}

	// a second time changes nothing
	require.NoError(t, k.Join(t.Context()))

	// a node that is silent is not ready, and neither are its pods
	f.cluster.NodeLost("node-1")

	_, ready := f.cluster.NodeReady("node-1")
	require.False(t, ready)

	taints := func() (found []string) {
		n, err := f.api.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
		require.NoError(t, err)

		for _, taint := range n.Spec.Taints {
			found = append(found, taint.Key+":"+string(taint.Effect))
		}

		return found
	}

	require.Subset(t, taints(), []string{
		corev1.TaintNodeUnreachable + ":NoSchedule", corev1.TaintNodeUnreachable + ":NoExecute",
	})

	ds, err := f.api.AppsV1().DaemonSets("kube-system").Get(t.Context(), "kube-proxy", metav1.GetOptions{})
	require.NoError(t, err)
	require.Zero(t, ds.Status.NumberReady)

	// it comes back
	require.NoError(t, k.Join(t.Context()))
	require.NoError(t, k.Report(t.Context(), true, ""))

	_, ready = f.cluster.NodeReady("node-1")
	require.True(t, ready)
	require.Empty(t, taints())

	require.NoError(t, k.Report(t.Context(), false, "the network is not ready"))
	require.Subset(t, taints(), []string{
		corev1.TaintNodeNotReady + ":NoSchedule", corev1.TaintNodeNotReady + ":NoExecute",
	})

	// it is deleted, and its pods with it
	require.NoError(t, f.api.CoreV1().Nodes().Delete(t.Context(), "node-1", metav1.DeleteOptions{}))

	pods, err = f.api.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, pods.Items)
}

func TestNodesThatDoNotJoin(t *testing.T) {
	f := start(t)

	for name, tc := range map[string]struct {
		change func(*kube.Kubelet)
		text   string
	}{
		"wrong token":    {func(k *kube.Kubelet) { k.Token = token + ".fedcba9876543210" }, "Unauthorized"},
		"wrong CA":       {func(k *kube.Kubelet) { k.CA = newCA(t).Crt }, "certificate"},
		"wrong endpoint": {func(k *kube.Kubelet) { k.Servers = []string{"https://127.0.0.1:1"} }, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			err := f.kubelet("node-1", tc.change).Join(t.Context())
			require.ErrorContains(t, err, tc.text)
		})
	}

	joined, _ := f.cluster.NodeReady("node-1")
	require.False(t, joined)
}

func TestAccess(t *testing.T) {
	f := start(t)

	// no request is anonymous, not even for /readyz
	anonymous := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer anonymous.CloseIdleConnections()

	for _, path := range []string{"/readyz", "/version", "/api/v1/nodes"} {
		resp, err := anonymous.Get(f.url + path)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusUnauthorized, resp.StatusCode, path)
	}

	// users without a group may look at the server and at nothing in it
	bob := f.client("bob", "people")

	_, err := bob.Discovery().ServerVersion()
	require.NoError(t, err)
	_, err = bob.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)

	// a kubelet may change its own node only
	f.join("node-1")
	other := f.client("system:node:node-2", "system:nodes")
	_, err = other.CoreV1().Nodes().Patch(t.Context(), "node-1", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
}

func TestObjects(t *testing.T) {
	f := start(t)
	maps := f.api.CoreV1().ConfigMaps("default")

	made, err := maps.Create(t.Context(),
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"k": "1"}},
			Data:       map[string]string{"x": "1"},
		}, metav1.CreateOptions{})
	require.NoError(t, err)

	again := made.DeepCopy()
	again.ResourceVersion = ""
	_, err = maps.Create(t.Context(), again, metav1.CreateOptions{})
	require.True(t, apierrors.IsAlreadyExists(err), "%v", err)

	made.Data["x"] = "2"
	changed, err := maps.Update(t.Context(), made, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NotEqual(t, made.ResourceVersion, changed.ResourceVersion)

	// who changes an old version is told so
	_, err = maps.Update(t.Context(), made, metav1.UpdateOptions{})
	require.True(t, apierrors.IsConflict(err), "%v", err)

	for _, kind := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType} {
		got, err := maps.Patch(t.Context(), "a", kind, []byte(`{"data":{"`+string(kind[12:17])+`":"y"}}`),
			metav1.PatchOptions{})
		require.NoError(t, err)
		require.Equal(t, "y", got.Data[string(kind[12:17])])
	}

	list, err := maps.List(t.Context(), metav1.ListOptions{LabelSelector: "k=1", FieldSelector: "metadata.name=a"})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)

	require.NoError(t, maps.Delete(t.Context(), "a", metav1.DeleteOptions{}))
	_, err = maps.Get(t.Context(), "a", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)

	_, err = f.api.CoreV1().ConfigMaps("nowhere").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)

	// fields that a kind does not have are refused to who wants them to be
	err = f.api.CoreV1().RESTClient().Post().AbsPath("/api/v1/namespaces/default/configmaps").SetHeader("Content-Type",
		"application/json").Param("fieldValidation", metav1.FieldValidationStrict).
		Body([]byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"b"},"dota":{}}`)).Do(t.Context()).Error()
	require.True(t, apierrors.IsBadRequest(err), "%v", err)
	require.ErrorContains(t, err, "dota")
}

func TestWatch(t *testing.T) {
	f := start(t)

	w, err := f.api.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{LabelSelector: "watched"})
	require.NoError(t, err)
	defer w.Stop()

	next := func(want watch.EventType) {
		t.Helper()

		select {
		case e := <-w.ResultChan():
			require.Equal(t, want, e.Type)
			require.Equal(t, "node-1", e.Object.(*corev1.Node).Name)
		case <-time.After(10 * time.Second):
			t.Fatal("no event")
		}
	}

	patch := func(body string) {
		t.Helper()

		_, err := f.api.CoreV1().Nodes().Patch(t.Context(), "node-1", types.MergePatchType, []byte(body),
			metav1.PatchOptions{})
		require.NoError(t, err)
	}

	f.join("node-1") // does not match
	patch(`{"metadata":{"labels":{"watched":"yes"}}}`)
	next(watch.Added)
	patch(`{"metadata":{"annotations":{"a":"b"}}}`)
	next(watch.Modified)
	patch(`{"metadata":{"labels":{"watched":null}}}`)
	next(watch.Deleted)
}

func TestDeployments(t *testing.T) {
	f := start(t)
	f.join("node-1")
	f.join("node-2", func(k *kube.Kubelet) {
		k.Node.Spec.Taints = []corev1.Taint{{Key: "only", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	})

	replicas := int32(3)
	labels := map[string]string{"app": "web"}
	_, err := f.api.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
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

	pods, err := f.api.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	require.NoError(t, err)
	require.Len(t, pods.Items, 3)

	addresses := map[string]bool{}
	for _, p := range pods.Items {
		require.Equal(t, "node-1", p.Spec.NodeName) // the other one has a taint
		addresses[p.Status.PodIP] = true
	}

	require.Len(t, addresses, 3)

	// a pod that is deleted comes back
	require.NoError(t, f.api.CoreV1().Pods("default").Delete(t.Context(), pods.Items[0].Name, metav1.DeleteOptions{}))

	d, err := f.api.AppsV1().Deployments("default").Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 3, d.Status.ReadyReplicas)
}

func TestTable(t *testing.T) {
	f := start(t)
	f.join("node-1")

	body, err := f.api.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json").DoRaw(t.Context())
	require.NoError(t, err)
	require.Contains(t, string(body), `"kind":"Table"`)
	require.Contains(t, string(body), `"cells":["node-1","Ready","\u003cnone\u003e"`)
	require.Contains(t, string(body), `"Talos (v1.12.4)"`)
}

func TestNoLeader(t *testing.T) {
	f := start(t)
	f.broken.Store(true)

	_, err := f.api.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsInternalError(err), "%v", err)

	body, err := f.api.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
	require.Error(t, err)
	require.Contains(t, string(body), "[-]etcd failed")
}

func TestFaults(t *testing.T) {
	f := start(t)
	maps := f.api.CoreV1().ConfigMaps("default")
	post := regexp.MustCompile("POST .*/configmaps")

	carriedOut := []journal.Kind{journal.LoseReply, journal.Truncate}

	for i, kind := range append([]journal.Kind{journal.Refuse, journal.Reset, journal.Hang}, carriedOut...) {
		f.journal.Plant(journal.Fault{
			Face: journal.Kubernetes, Call: post, Kind: kind, Message: "out of order", For: 50 * time.Millisecond,
		})

		name := string(rune('a' + i))
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		require.Error(t, err, kind)

		_, err = maps.Get(t.Context(), name, metav1.GetOptions{})
		require.Equal(t, slices.Contains(carriedOut, kind), err == nil, "%s: %v", kind, err)
	}
}

// What a real API server has and this one has not is not answered by default.
func TestStrict(t *testing.T) {
	f := start(t)

	_, err := f.api.NetworkingV1().Ingresses("default").List(t.Context(), metav1.ListOptions{})
	require.ErrorContains(t, err, "does not have ingresses")
	require.ErrorContains(t, f.journal.Unknown(), "/ingresses")

	f = start(t)
	err = f.api.CoreV1().RESTClient().Get().AbsPath("/api/v1/nothings").Do(t.Context()).Error()
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	require.NoError(t, f.journal.Unknown())
}
