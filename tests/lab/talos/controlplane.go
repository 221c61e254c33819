package talos

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/tests/lab/kube"
)

// runControlPlane runs the components of Kubernetes while etcd runs.
func (n *node) runControlPlane(ctx context.Context, m *membership) {
	var parts sync.WaitGroup

	for _, name := range []string{controllerManager, scheduler} {
		parts.Go(func() {
			n.runComponent(ctx, name, func(ctx context.Context) {
				isRunning(ctx)
				<-ctx.Done()
			})
		})
	}

	parts.Go(func() { n.applyManifests(ctx, m) })
	parts.Go(func() { n.fetchManifests(ctx) })

	n.runComponent(ctx, apiServer, func(ctx context.Context) {
		_, api, _ := m.cluster.spans()
		if n.wait("api server", n.fw.opts.Latencies.APIServer, api) {
			n.serveKubernetes(ctx, m)
		}
	})
	parts.Wait()
}

// applyManifests creates what manifests bring that are new.
func (n *node) applyManifests(ctx context.Context, m *membership) {
	for manifests := n.manifestText(); ctx.Err() == nil; {
		n.awaitChange(ctx, func() bool { return n.manifestText() != manifests })

		manifests = n.manifestText()
		if ctx.Err() != nil {
			return
		}

		if err := n.install(ctx, m.cluster.kube); err != nil {
			n.sys.log("manifests: %v", err)
		}
	}
}

// apiServerSpec is what an API server is started with, to compare.
func (n *node) apiServerSpec() string {
	c := clusterOf(n.config())

	args, files, err := n.apiServerFlags()

	return fmt.Sprint(c.APIServer().Image(), n.apiServerNames(), c.ClusterCA, c.LocalAPIServerPort(), args, files, err)
}

// serveKubernetes runs one API server until the context ends.
func (n *node) serveKubernetes(ctx context.Context, m *membership) {
	cfg := clusterOf(n.config())

	srv, end, err := n.serverFor(ctx, m)
	defer end()

	if err != nil {
		n.sys.log("kube-apiserver: %v", err)
		<-ctx.Done()

		return
	}

	defer srv.Close()

	announce := func(l net.Listener) {
		srv.Listen(l)
		m.cluster.setServer(n, n.address().String(), cfg.LocalAPIServerPort(), n.span())
		n.setAPIServer(true)
		isRunning(ctx)
	}
	defer func() {
		m.cluster.setServer(n, "", cfg.LocalAPIServerPort(), nil)
		n.setAPIServer(false)
	}()

	n.serve(ctx, cfg.LocalAPIServerPort(), announce)
}

func (n *node) setAPIServer(running bool) {
	n.mu.Lock()
	n.kube.serving = running
	n.mu.Unlock()
	n.kick.notify()
}

// apiServerNames are the names in the API server's certificate (Talos: controllers/secrets/kubernetes_cert_sans.go).
func (n *node) apiServerNames() []string {
	cfg := clusterOf(n.config())
	host, fqdn := n.fqdn()
	names := append([]string{
		cfg.Endpoint().Hostname(), host, fqdn, "localhost", "127.0.0.1", "kubernetes", "kubernetes.default",
		"kubernetes.default.svc",
		"kubernetes.default.svc." + cfg.DNSDomain(),
	}, cfg.CertSANs()...)

	for _, services := range cfg.ServiceCIDRs() {
		names = append(names, nth(services, 1).String())
	}

	for _, p := range n.ownAddresses() {
		names = append(names, p.Addr().String())
	}

	for ip := range n.virtualIPs() {
		names = append(names, ip.String())
	}

	slices.Sort(names)

	return slices.Compact(names)
}

// ownManifests is what Talos installs into the cluster of itself.
func (n *node) ownManifests() kube.Manifests {
	cfg := clusterOf(n.config())
	m := kube.Manifests{
		CA: cfg.ClusterCA, TokenID: cfg.Token().ID(), TokenSecret: cfg.Token().Secret(), Inventory: n.atLeast(13),
	}

	// The first address of the services is that of the API server, the tenth that of DNS.
	services := cfg.ServiceCIDRs()[0]
	m.APIServerIP, m.DNSIP = nth(services, 1), nth(services, 10)

	if cfg.Proxy().Enabled() {
		m.ProxyImage = cfg.Proxy().Image()
	}

	if cfg.CoreDNS().Enabled() {
		m.CoreDNSImage = cfg.CoreDNS().Image()
	}

	if cfg.CNI().CNIName == constants.FlannelCNI {
		m.FlannelImage = "ghcr.io/siderolabs/flannel:v0.27.4"
	}

	return m
}

// manifests is what Talos installs into the cluster with this node's configuration.
func (n *node) manifests() kube.Manifests {
	m := n.ownManifests()

	inline, err := n.inlineManifests()
	if err != nil {
		n.sys.log("%v", err)
	}

	inline = append(inline, n.extraManifests()...)

	if n.fw.opts.Upstream != nil {
		m.Extra = trees(inline)

		return m
	}

	for _, extra := range inline {
		m.Extra = append(m.Extra, extra.objects...)

		if left := len(extra.trees) - len(extra.objects); left > 0 {
			n.fw.opts.Journal.Ignore(fmt.Sprintf("%d objects of the manifest %s, of kinds that k8s.io/api does not have", left,
				extra.name))
		}
	}

	return m
}

// staticPod is one of them, labelled as Talos does (Talos: controllers/k8s/control_plane_static_pod.go).
func (n *node) staticPod(name string, c component) corev1.Pod {
	sum := sha256.Sum256([]byte(c.image + c.config))
	version := imageTag(c.image)

	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name + "-" + n.nodename(), Namespace: metav1.NamespaceSystem,
			Labels: map[string]string{
				"tier": "control-plane", "k8s-app": name, "component": name,
				"app.kubernetes.io/name": name, "app.kubernetes.io/version": version,
				"app.kubernetes.io/component": "control-plane", "app.kubernetes.io/managed-by": "Talos",
			},
			Annotations: map[string]string{
				corev1.MirrorPodAnnotationKey:              hex.EncodeToString(sum[:16]),
				"kubernetes.io/config.hash":                hex.EncodeToString(sum[:16]),
				"kubernetes.io/config.source":              "http",
				constants.AnnotationStaticPodConfigVersion: c.config,
			},
		},
		Spec: corev1.PodSpec{
			HostNetwork: true, PriorityClassName: "system-cluster-critical",
			Containers: []corev1.Container{{Name: name, Image: c.image, Command: c.command}},
		},
	}

	if !c.running {
		reason := "ContainerCreating"
		if c.problem != "" {
			reason = "ImagePullBackOff"
		}

		pod.Status = corev1.PodStatus{
			Phase:      corev1.PodPending,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: name, Image: c.image, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
					Reason:  reason,
					Message: c.problem,
				}},
			}},
		}
	}

	return pod
}

// flags are arguments as they are given to a command.
func flags(arguments map[string][]string) []string {
	var all []string

	for _, name := range slices.Sorted(maps.Keys(arguments)) {
		for _, value := range arguments[name] {
			all = append(all, "--"+name+"="+value)
		}
	}

	return all
}

// imageTag is the version in an image's name.
func imageTag(ref string) string {
	ref, _, _ = strings.Cut(ref, "@")

	return ref[strings.LastIndex(ref, ":")+1:]
}

// kubernetesCAs are the CAs that a machine's configuration trusts for Kubernetes, PEM.
func kubernetesCAs(cfg *v1alpha1.ClusterConfig) []byte {
	var all [][]byte
	for _, ca := range cfg.ClusterAcceptedCAs {
		all = append(all, ca.Crt)
	}

	if ca := cfg.ClusterCA; ca != nil {
		all = append(all, ca.Crt)
	}

	return bytes.Join(all, []byte("\n"))
}
