package talos

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"talos-proxmox/tests/lab/kube"
	"talos-proxmox/tests/lab/realkube"
	"talos-proxmox/tests/upstream"
)

// newRealKubernetes is the Kubernetes of a cluster of etcd that begins on the node, with the authorities of its
// configuration.
func (n *node) newRealKubernetes(recovered bool) (*realkube.Cluster, error) {
	c := clusterOf(n.config())

	if c.ClusterCA == nil || c.ClusterAggregatorCA == nil || c.ClusterServiceAccount == nil {
		return nil, fmt.Errorf("the configuration of %s lacks an authority of Kubernetes", n.name())
	}

	return realkube.New(realkube.Config{
		Binary: n.fw.opts.Upstream, Dir: filepath.Join(n.fw.opts.Dir, fmt.Sprintf("kubernetes-%x", randomID())),
		PKI:      upstream.TalosPKI(c.ClusterCA, c.ClusterAggregatorCA, c.ClusterServiceAccount),
		Services: strings.Join(prefixTexts(c.ServiceCIDRs()), ","), Pods: strings.Join(prefixTexts(c.PodCIDRs()), ","),
		Issuer: c.Endpoint().String(), Recovered: recovered, Log: n.sys.log,
	}), nil
}

// startAPIServer starts a real API server, again and again until it is ready: it is not without a quorum.
func (n *node) startAPIServer(ctx context.Context, c *realkube.Cluster) *realkube.Server {
	args, files, err := n.apiServerFlags()
	if err != nil {
		n.sys.log("kube-apiserver: %v", err)
		<-ctx.Done()

		return nil
	}

	m := realkube.Machine{
		Address: n.address().String(), Version: imageTag(clusterOf(n.config()).APIServer().Image()), Args: args,
		File: func(path string) (string, bool) {
			text, there := files[path]
			if !there {
				text, there = n.machineFile(path)
			}

			return text, there
		},
	}

	for delay := retry; ; delay = min(2*delay, restartMax) {
		s, err := c.Serve(ctx, m)
		if err == nil {
			return s
		}

		n.sys.log("kube-apiserver: %v", err)

		if !pause(ctx, delay) {
			return nil
		}
	}
}

// restartMax is the longest time until an API server that ends is started again. A kubelet begins with ten seconds, and
// waits up to five minutes.
const restartMax = 2 * time.Second

// The files that Talos renders for an API server (Talos: controllers/k8s/render_config_static_pods.go).
const (
	apiServerFiles = "/system/config/kubernetes/kube-apiserver/"
	admissionFile  = apiServerFiles + "admission-control-config.yaml"
	auditFile      = apiServerFiles + "auditpolicy.yaml"
)

// apiServerFlags are the flags of an API server that the machine configuration decides on, and the files that they name
// (Talos: controllers/k8s/control_plane_static_pod.go).
func (n *node) apiServerFlags() (args []string, files map[string]string, err error) {
	cfg := n.config()
	files = map[string]string{}
	all := map[string][]string{}

	plugins := map[string]any{}
	for _, p := range cfg.K8sAdmissionControlPluginConfigs() {
		plugins[p.Name()] = p.Configuration()
	}

	if len(plugins) > 0 {
		text, err := upstream.Admission(plugins)
		if err != nil {
			return nil, nil, err
		}

		files[admissionFile], all[upstream.AdmissionFlag] = string(text), []string{admissionFile}
	}

	if policy := cfg.K8sAuditPolicyConfig(); policy != nil {
		text, err := yaml.Marshal(policy.Configuration())
		if err != nil {
			return nil, nil, err
		}

		files[auditFile] = string(text)
		all["audit-policy-file"], all["audit-log-path"] = []string{auditFile}, []string{"/var/log/audit/kube/kube-apiserver.log"}
	}

	maps.Copy(all, clusterOf(cfg).APIServer().ExtraArgs())

	return flags(all), files, nil
}

// machineFile is a file that the machine configuration has Talos write.
func (n *node) machineFile(path string) (text string, there bool) {
	all, err := n.config().Machine().Files()
	if err != nil {
		return "", false
	}

	for _, f := range all {
		if f.Path() == path {
			return f.Content(), true
		}
	}

	return "", false
}

// trees are the objects of manifests as a real API server takes them, those of kinds that the lab does not know
// included.
func trees(inline []inlineManifest) []runtime.Object {
	var out []runtime.Object

	for _, m := range inline {
		for _, tree := range m.trees {
			out = append(out, &unstructured.Unstructured{Object: tree})
		}
	}

	return out
}

// install creates what Talos installs and is missing.
func (n *node) install(ctx context.Context, in clusterState) error {
	switch state := in.(type) {
	case *realkube.Cluster:
		return state.Apply(ctx, n.manifests())
	case *kube.Cluster:
		return state.Apply(n.manifests())
	default:
		return fmt.Errorf("nothing is installed into a %T", in)
	}
}

// installForever does so until it succeeds.
func (n *node) installForever(ctx context.Context, in clusterState) {
	for {
		err := n.install(ctx, in)
		if err == nil {
			return
		}

		n.logOnce("manifests: " + err.Error())

		if !pause(ctx, manifestsEvery) {
			return
		}
	}
}

// manifestsEvery is how often manifests are tried that a real API server refuses.
const manifestsEvery = time.Second

// runPods runs the pods of the node while its kubelet does, where nothing else says that they run.
func (n *node) runPods(ctx context.Context) {
	if n.fw.opts.Upstream == nil {
		return
	}

	for {
		n.awaitChange(ctx, n.kubeletReports)

		if ctx.Err() != nil {
			return
		}

		round, stop := context.WithCancel(ctx)

		go func() {
			n.awaitChange(round, func() bool { return !n.kubeletReports() })
			stop()
		}()

		if err := n.kubelet().RunPods(round, n.networkReady); err != nil && round.Err() == nil {
			n.logOnce("kubelet: pods: " + err.Error())
		}

		stop()

		if !pause(ctx, retry) {
			return
		}
	}
}

// kubeletReports tells whether the kubelet runs and has registered the machine.
func (n *node) kubeletReports() bool {
	if !n.services.running("kubelet") {
		return false
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	return n.kube.registered
}

// serverFor is an API server on the node, before the lab's model of the objects or before a real one, and what ends what
// is behind it; nil when the context ends first.
func (n *node) serverFor(ctx context.Context, m *membership) (*kube.Server, func(), error) {
	cfg := clusterOf(n.config())
	conf := kube.ServerConfig{
		Node: n.name(), Version: imageTag(cfg.APIServer().Image()), CA: cfg.ClusterCA,
		AcceptedCAs: cfg.ClusterAcceptedCAs, Names: n.apiServerNames(), Journal: n.fw.opts.Journal,
		Touch: n.fw.opts.Timeline.Touch, Now: n.now,
	}
	end := func() {}

	if n.atLeast(14) {
		conf.MinTLS = tls.VersionTLS13
	}

	switch state := m.cluster.kube.(type) {
	case *realkube.Cluster:
		s := n.startAPIServer(ctx, state)
		if s == nil {
			return nil, end, ctx.Err()
		}

		conf.Backend, end = s, s.Stop

		go n.installForever(ctx, state)
	case *kube.Cluster:
		conf.Cluster, conf.Writable = state, m.cluster.etcdMembers.(*etcdModel).writable
		conf.Healthy = func() error { return m.cluster.answers(m.id) }

		if err := n.install(ctx, state); err != nil {
			return nil, end, err
		}
	}

	srv, err := kube.NewServer(conf)

	return srv, end, err
}
