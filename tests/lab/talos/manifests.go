package talos

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"talos-proxmox/tests/lab/kube"
)

// inlineManifest is one of the manifests in a control plane's configuration.
type inlineManifest struct {
	name    string
	objects []runtime.Object
	// trees are all objects, those of kinds that are not stored included.
	trees []map[string]any
}

// inlineManifests are those that can be read. Talos leaves out what it cannot read and goes on, and so does the lab;
// but it also leaves out what a real API server would take with fields that do nothing.
func (n *node) inlineManifests() ([]inlineManifest, error) {
	var (
		out  []inlineManifest
		errs []error
	)

	for _, inline := range n.config().K8sInlineManifestConfigs() {
		m, err := decodeManifest(inline.Contents())
		if err != nil {
			errs = append(errs, fmt.Errorf("inline manifest %s: %w", inline.Name(), err))

			continue
		}

		m.name = inline.Name()
		out = append(out, m)
	}

	return out, errors.Join(errs...)
}

// manifestText is what there is of manifests, to compare.
func (n *node) manifestText() string {
	var b strings.Builder
	for _, m := range n.extraManifests() {
		b.WriteString(m.name + "\n")
	}

	for _, inline := range n.config().K8sInlineManifestConfigs() {
		b.WriteString(inline.Name() + "\n" + inline.Contents() + "\n")
	}

	return b.String()
}

// decodeManifest reads the objects of a manifest.
func decodeManifest(text string) (inlineManifest, error) {
	var (
		m   inlineManifest
		err error
	)

	m.objects, m.trees, err = kube.DecodeManifest(text)

	return m, err
}

// publishManifests shows Talos' own manifests and the inline ones, and that they were applied.
func (n *node) publishManifests(b *board) {
	trees := map[string][]map[string]any{}

	for id, objects := range n.manifests().Own() {
		for _, obj := range objects {
			if tree, err := tree(obj); err == nil {
				trees[id] = append(trees[id], tree)
			}
		}
	}

	inlines, _ := n.inlineManifests() // logged when they were applied
	for _, m := range append(inlines, n.extraManifests()...) {
		trees["99-"+m.name] = m.trees
	}

	for id, items := range trees {
		show(b, k8s.NewManifest(k8s.ControlPlaneNamespaceName, id), func(s *k8s.ManifestSpec) {
			for _, item := range items {
				s.Items = append(s.Items, k8s.SingleManifest{Object: item})
			}
		})
	}

	applied := slices.Sorted(maps.Keys(trees))
	show(b, k8s.NewManifestStatus(k8s.ControlPlaneNamespaceName),
		func(s *k8s.ManifestStatusSpec) { s.ManifestsApplied = applied })
}

// publishManifestsConfig shows what Talos' own manifests are made of. Newer health checks ask it whether nodes wait for
// a network plugin that is not Talos' own (Talos: controllers/k8s, control_plane.go).
func (n *node) publishManifestsConfig(b *board) {
	cfg, own := n.config(), n.ownManifests()
	c := clusterOf(cfg)

	show(b, k8s.NewBootstrapManifestsConfig(), func(s *k8s.BootstrapManifestsConfigSpec) {
		s.Server, s.ClusterDomain, s.PodCIDRs = c.Endpoint().String(), c.DNSDomain(), prefixTexts(c.PodCIDRs())
		s.ProxyEnabled, s.ProxyImage = own.ProxyImage != "", own.ProxyImage
		s.CoreDNSEnabled, s.CoreDNSImage = own.CoreDNSImage != "", own.CoreDNSImage
		s.FlannelEnabled, s.FlannelImage = own.FlannelImage != "", own.FlannelImage
		s.DNSServiceIP, s.TalosAPIServiceEnabled = own.DNSIP.String(), cfg.K8sTalosAPIAccessConfig() != nil

		if prism := cfg.K8sKubePrismConfig(); prism != nil {
			s.Server = fmt.Sprintf("https://127.0.0.1:%d", prism.Port())

			if s.FlannelEnabled {
				s.FlannelKubeServiceHost, s.FlannelKubeServicePort = "127.0.0.1", strconv.Itoa(prism.Port())
			}
		}

		switch {
		case !n.atLeast(13): // which has no name of it
		case s.FlannelEnabled:
			s.CNIName = constants.FlannelCNI
		default:
			s.CNIName = constants.NoneCNI
		}
	})
}

// tree is an object as a manifest has it.
func tree(obj runtime.Object) (map[string]any, error) {
	kinds, _, err := scheme.Scheme.ObjectKinds(obj)
	if err != nil {
		return nil, err
	}

	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}

	out["apiVersion"], out["kind"] = kinds[0].GroupVersion().String(), kinds[0].Kind
	delete(out, "status")

	return out, nil
}
