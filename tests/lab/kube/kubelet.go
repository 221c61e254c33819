package kube

import (
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/siderolabs/crypto/x509"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"talos-proxmox/tests/lab/journal"
)

// Kubelet joins one machine to a cluster and reports for it. It knows of the cluster only what the machine's
// configuration says: with a wrong address, CA or token it never gets in, as a real one.
type Kubelet struct {
	// Dial connects; nil: by the host's own network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Servers are the addresses of the API to try, in order: "https://10.0.0.11:6443".
	Servers []string
	// ServerName is what the API server's certificate must be for; empty: the address.
	ServerName string
	// CA is what the API server's certificate must verify against, PEM.
	CA []byte
	// Token is the bootstrap token, used until the kubelet has a certificate.
	Token string
	// Certificate is the kubelet's own, nil before it first joined. It lives on the node's disk.
	Certificate *x509.PEMEncodedCertificateAndKey
	// Node is the object to register: name, labels, annotations, taints and, in its status, addresses and versions. Of a
	// Node that is there already, taints stay as they are.
	Node *corev1.Node
	// RegisterLabels are further labels of a Node that is not there yet: --node-labels.
	RegisterLabels map[string]string
	// UID is what the API calls the machine, known once it has joined.
	UID types.UID
	// StaticPods are mirrored into the API. Nil leaves those that are there alone; an empty list takes them away.
	StaticPods []corev1.Pod
	// Registered says that this kubelet has registered the machine already. It does so once, when it starts: a Node that
	// is deleted afterwards stays away.
	Registered bool
	// Journal has what pods would do that is not played; nil without one.
	Journal *journal.Journal
}

var errNoServer = errors.New("no API server is known yet")

// Join registers the machine. It fails without having changed anything the next try could not repeat.
func (k *Kubelet) Join(ctx context.Context) error {
	if len(k.Servers) == 0 {
		return errNoServer
	}

	var errs []error

	for _, server := range k.Servers {
		if err := k.joinAt(ctx, server); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", server, err))
			continue
		}

		return nil
	}

	return errors.Join(errs...)
}

func (k *Kubelet) joinAt(ctx context.Context, server string) error {
	if k.Certificate == nil {
		cert, err := k.bootstrap(ctx, server)
		if err != nil {
			return err
		}

		k.Certificate = cert
	}

	return k.with(ctx, server, k.register)
}

// Report posts the machine's status: the Ready condition and what Node.Status says.
func (k *Kubelet) Report(ctx context.Context, ready bool, reason string) error {
	var errs []error

	for _, server := range k.Servers {
		err := k.with(ctx, server, func(ctx context.Context,
			api kubernetes.Interface,
		) error {
			// The controllers write to the Node of a cluster as well.
			return retry.RetryOnConflict(retry.DefaultBackoff, func() error { return k.post(ctx, api, ready, reason) })
		})
		if err == nil {
			return nil
		}

		errs = append(errs, fmt.Errorf("%s: %w", server, err))
	}

	return errors.Join(errs...)
}

// ControlPlanes asks which addresses serve the API, as the operating system does to find the control planes of a
// cluster whose discovery is off.
func (k *Kubelet) ControlPlanes(ctx context.Context) ([]string, error) {
	var (
		out  []string
		errs []error
	)

	for _, server := range k.Servers {
		err := k.with(ctx, server, func(ctx context.Context, api kubernetes.Interface) error {
			slice, err := api.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
			if err != nil {
				return err
			}

			for _, e := range slice.Endpoints {
				out = append(out, e.Addresses...)
			}

			return nil
		})
		if err == nil {
			return out, nil
		}

		errs = append(errs, fmt.Errorf("%s: %w", server, err))
	}

	return nil, errors.Join(errs...)
}

// with runs a function with a client that authenticates with the kubelet's certificate.
func (k *Kubelet) with(ctx context.Context, server string, f func(context.Context, kubernetes.Interface) error) error {
	return k.as(ctx, k.Certificate, server, f)
}

// as runs a function with a client that authenticates with a certificate.
func (k *Kubelet) as(ctx context.Context, certificate *x509.PEMEncodedCertificateAndKey, server string,
	f func(context.Context, kubernetes.Interface) error,
) error {
	pair, err := tls.X509KeyPair(certificate.Crt, certificate.Key)
	if err != nil {
		return err
	}

	api, done, err := k.client(server, "", &pair)
	if err != nil {
		return err
	}
	defer done()

	return f(ctx, api)
}

// client returns a client that shares nothing with others, so that nothing of it is left once it is done.
func (k *Kubelet) client(server, token string, cert *tls.Certificate) (kubernetes.Interface, func(), error) {
	pool := stdx509.NewCertPool()
	if !pool.AppendCertsFromPEM(k.CA) {
		return nil, nil, errors.New("no certificate in the cluster's CA")
	}

	conf := &tls.Config{RootCAs: pool, ServerName: k.ServerName, MinVersion: tls.VersionTLS12}
	if cert != nil {
		conf.Certificates = []tls.Certificate{*cert}
	}

	dial := k.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 5 * time.Second}).DialContext
	}

	transport := &http.Transport{TLSClientConfig: conf, DialContext: dial, ForceAttemptHTTP2: true}

	var rt http.RoundTripper = transport
	if token != "" {
		rt = bearer{token, transport}
	}

	api, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: server, QPS: -1},
		&http.Client{Transport: rt, Timeout: 10 * time.Second})

	return api, transport.CloseIdleConnections, err
}

type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)

	return b.next.RoundTrip(r)
}

// signedWithin is how long a kubelet waits here for its certificate; the lab's own controllers sign at once.
const signedWithin = 20 * time.Second

// bootstrap gets the kubelet a client certificate for its bootstrap token.
func (k *Kubelet) bootstrap(ctx context.Context, server string) (*x509.PEMEncodedCertificateAndKey, error) {
	api, done, err := k.client(server, k.Token, nil)
	if err != nil {
		return nil, err
	}
	defer done()

	csr, pair, err := x509.NewECDSACSRAndIdentity(x509.CommonName("system:node:"+k.Node.Name),
		x509.Organization("system:nodes"))
	if err != nil {
		return nil, err
	}

	client := api.CertificatesV1().CertificateSigningRequests()

	req, err := client.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: csr.X509CertificateRequestPEM, SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}

	// The controllers of a cluster approve and sign it, some time later.
	for since := time.Now(); len(req.Status.Certificate) == 0; {
		if time.Since(since) > signedWithin {
			return nil, fmt.Errorf("certificate signing request %s was not approved", req.Name)
		}

		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}

		if req, err = client.Get(ctx, req.Name, metav1.GetOptions{}); err != nil {
			return nil, err
		}
	}

	pair.Crt = req.Status.Certificate

	return pair, nil
}

// register creates the Node, or brings labels and annotations of the one that is there in line, and mirrors the static
// pods.
func (k *Kubelet) register(ctx context.Context, api kubernetes.Interface) error {
	now, err := api.CoreV1().Nodes().Get(ctx, k.Node.Name, metav1.GetOptions{})

	switch {
	case apierrors.IsNotFound(err) && !k.Registered:
		n := k.Node.DeepCopy()
		n.Labels = overlay(n.Labels, k.RegisterLabels)
		n.Status.Conditions = conditions(false, "kubelet has just started", nil)

		if now, err = api.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		want := now.DeepCopy()
		want.Labels = overlay(want.Labels, k.Node.Labels)
		want.Annotations = overlay(want.Annotations, k.Node.Annotations)

		if !equal(now, want) {
			if now, err = patchNode(ctx, api, now, want); err != nil {
				return err
			}
		}
	}

	k.UID = now.UID

	if err := k.lease(ctx, api); err != nil {
		return err
	}

	for i := range k.StaticPods {
		if err := k.mirror(ctx, api, now, &k.StaticPods[i]); err != nil {
			return err
		}
	}

	if k.StaticPods == nil {
		return nil
	}

	return k.dropMirrors(ctx, api)
}

// patchNode changes what differs, as kubelets do: whoever writes a whole Node also writes taints, which others set.
func patchNode(ctx context.Context, api kubernetes.Interface, now, want *corev1.Node) (*corev1.Node, error) {
	was, err := json.Marshal(now)
	if err != nil {
		return nil, err
	}

	will, err := json.Marshal(want)
	if err != nil {
		return nil, err
	}

	patch, err := strategicpatch.CreateTwoWayMergePatch(was, will, corev1.Node{})
	if err != nil {
		return nil, err
	}

	return api.CoreV1().Nodes().Patch(ctx, want.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
}

// Drain evicts the pods of the machine that would run elsewhere as well, and asks again until the context ends while a
// disruption budget holds one (Talos: pkg/kubernetes/kubernetes.go, Drain).
func (k *Kubelet) Drain(ctx context.Context) error {
	for {
		held, err := k.drainOnce(ctx)
		if held == nil || err != nil {
			return err
		}

		select {
		case <-ctx.Done():
			return held
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// drainOnce evicts what can be, and returns what holds the rest.
func (k *Kubelet) drainOnce(ctx context.Context) (held, err error) {
	var errs []error

	for _, server := range k.Servers {
		err := k.with(context.WithoutCancel(ctx), server, func(ctx context.Context, api kubernetes.Interface) error {
			held = nil

			list, err := api.CoreV1().Pods(metav1.NamespaceAll).List(ctx,
				metav1.ListOptions{FieldSelector: "spec.nodeName=" + k.Node.Name})
			if err != nil {
				return err
			}

			for _, p := range list.Items {
				if owner := metav1.GetControllerOf(&p); owner == nil || owner.Kind == "DaemonSet" || owner.Kind == "Node" {
					continue
				}

				err := api.CoreV1().Pods(p.Namespace).EvictV1(ctx,
					&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}})
				if apierrors.IsTooManyRequests(err) {
					held = errors.Join(held, fmt.Errorf("%s/%s: %w", p.Namespace, p.Name, err))
				}
			}

			return nil
		})
		if err == nil {
			return held, nil
		}

		errs = append(errs, fmt.Errorf("%s: %w", server, err))
	}

	return nil, errors.Join(errs...)
}

// dropMirrors deletes the mirrors of static pods that the machine has no more.
func (k *Kubelet) dropMirrors(ctx context.Context, api kubernetes.Interface) error {
	list, err := api.CoreV1().Pods(metav1.NamespaceAll).List(ctx,
		metav1.ListOptions{FieldSelector: "spec.nodeName=" + k.Node.Name})
	if err != nil {
		return err
	}

	for _, p := range list.Items {
		_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
		if !mirror || slices.ContainsFunc(k.StaticPods,
			func(s corev1.Pod) bool { return s.Namespace == p.Namespace && s.Name == p.Name }) {
			continue
		}

		if err := api.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, atOnce()); err != nil &&
			!apierrors.IsNotFound(err) {
			return err
		}
	}

	return nil
}

// lease is how nodes show that they live. It is made and not renewed: the lab knows which machines run.
func (k *Kubelet) lease(ctx context.Context, api kubernetes.Interface) error {
	seconds, now := int32(40), metav1.NowMicro()
	_, err := api.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: k.Node.Name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &k.Node.Name, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}, metav1.CreateOptions{})

	if apierrors.IsAlreadyExists(err) {
		return nil
	}

	return err
}

func overlay(base, over map[string]string) map[string]string {
	out := maps.Clone(base)
	if out == nil {
		out = map[string]string{}
	}

	maps.Copy(out, over)

	return out
}

// mirror shows one static pod in the API, running.
func (k *Kubelet) mirror(ctx context.Context, api kubernetes.Interface, owner *corev1.Node, static *corev1.Pod) error {
	yes := true
	client := api.CoreV1().Pods(static.Namespace)
	p := static.DeepCopy()
	p.Spec.NodeName, p.Spec.HostNetwork = k.Node.Name, true
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Node", Name: owner.Name, UID: owner.UID,
		Controller: &yes,
	}}
	runPod(p, k.Node)
	k.hold(p, static)

	// A kubelet cannot ask for a pod that is not there.
	list, err := client.List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + k.Node.Name})
	if err != nil {
		return err
	}

	i := slices.IndexFunc(list.Items, func(there corev1.Pod) bool { return there.Name == p.Name })
	if i < 0 {
		return k.createMirror(ctx, client, p)
	}

	now := &list.Items[i]

	switch {
	case now.Annotations[corev1.MirrorPodAnnotationKey] != p.Annotations[corev1.MirrorPodAnnotationKey]:
		// the manifest changed, say to another version: the kubelet deletes the mirror and makes a new one
		if err = client.Delete(ctx, p.Name, atOnce()); err == nil {
			err = k.createMirror(ctx, client, p)
		}
	case podReady(now) != podReady(p):
		now.Status = p.Status
		_, err = client.UpdateStatus(ctx, now, metav1.UpdateOptions{})
	}

	return err
}

// createMirror creates a mirror, and then says how its pod is: both cannot be sent at once.
func (k *Kubelet) createMirror(ctx context.Context, client typedcorev1.PodInterface, p *corev1.Pod) error {
	now, err := client.Create(ctx, p, metav1.CreateOptions{})
	if err != nil {
		return err
	}

	now.Status = p.Status
	_, err = client.UpdateStatus(ctx, now, metav1.UpdateOptions{})

	return err
}

// atOnce are the options by which kubelets delete the mirrors of their pods.
func atOnce() metav1.DeleteOptions {
	none := int64(0)

	return metav1.DeleteOptions{GracePeriodSeconds: &none}
}

// hold shows that a static pod does not run, if it does not.
func (k *Kubelet) hold(p, static *corev1.Pod) {
	for _, cs := range static.Status.ContainerStatuses {
		if w := cs.State.Waiting; w != nil {
			p.Status.Phase = corev1.PodPending
			setReady(p, false)
			waiting(p, cs.Name, w.Reason, w.Message)
		}
	}
}

func (k *Kubelet) post(ctx context.Context, api kubernetes.Interface, ready bool, reason string) error {
	now, err := api.CoreV1().Nodes().Get(ctx, k.Node.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}

	was := now.Status.Conditions
	now.Status = k.Node.Status
	now.Status.Conditions = conditions(ready, reason, was)
	_, err = api.CoreV1().Nodes().UpdateStatus(ctx, now, metav1.UpdateOptions{})

	return err
}

// conditions are those a kubelet reports; transitions keep their time where nothing changed.
func conditions(ready bool, reason string, was []corev1.NodeCondition) []corev1.NodeCondition {
	now := metav1.Now()
	out := []corev1.NodeCondition{
		{
			Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory",
			Message: "kubelet has sufficient memory available",
		},
		{
			Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure",
			Message: "kubelet has no disk pressure",
		},
		{
			Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID",
			Message: "kubelet has sufficient PID available",
		},
		{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: reason},
	}

	if ready {
		r := &out[len(out)-1]
		r.Status, r.Reason, r.Message = corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"
	}

	for i := range out {
		out[i].LastHeartbeatTime, out[i].LastTransitionTime = now, now

		for _, old := range was {
			if old.Type == out[i].Type && old.Status == out[i].Status {
				out[i].LastTransitionTime = old.LastTransitionTime
			}
		}
	}

	return out
}
