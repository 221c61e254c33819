package manifests

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner"
	"talos-proxmox/components/spec"
	"talos-proxmox/tests/golden"
)

// planned is a cluster with the pod network and the endpoint that a test is about.
func planned(t *testing.T, cni spec.CNI, endpoint spec.Endpoint) *plan.Plan {
	t.Helper()

	p, err := planner.Plan(spec.Spec{
		Proxmox: spec.Proxmox{Hosts: []spec.Host{{Name: "atlas"}}},
		Cluster: spec.Cluster{
			Name: "atlas", Versions: spec.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"}, CNI: cni,
			Endpoint: endpoint,
		},
		Network: spec.Network{CIDR: "10.0.0.0/16", Gateway: "10.0.0.1"},
		Pools:   map[string]spec.Pool{"control": {Role: spec.RoleControlPlane, Count: new(3), Addresses: "10.0.0.11-13"}},
	})
	if err != nil {
		t.Fatal(err)
	}

	return p
}

var (
	ciliumAlone  = spec.CNI{Name: spec.CNICilium, Version: "1.18.4", KubeProxy: new(false)}
	ciliumNextTo = spec.CNI{Name: spec.CNICilium, Version: "v1.16.5", Values: map[string]any{
		"hubble": map[string]any{"relay": map[string]any{"enabled": true}}, "operator": map[string]any{"replicas": 2.0},
		"cgroup": nil,
	}}
	onLAN = spec.Endpoint{Mode: spec.EndpointKubeVIP, Address: "10.0.0.20", Interface: "eth0", Version: "1.0.4"}
)

// TestManifests: what is rendered, and that each document is a whole object of k8s.io/api without a field that its type
// does not have.
func TestManifests(t *testing.T) {
	for name, p := range map[string]*plan.Plan{
		"cilium":            planned(t, ciliumAlone, spec.Endpoint{}),
		"cilium-kube-proxy": planned(t, ciliumNextTo, spec.Endpoint{}),
		"kube-vip":          planned(t, spec.CNI{}, onLAN),
	} {
		t.Run(name, func(t *testing.T) {
			all, err := Inline(p)
			if err != nil || len(all) != 1 || !strings.HasPrefix(name, all[0].Name) {
				t.Fatal(all, err)
			}

			golden.Check(t, "testdata/"+name+".yaml", all[0].Contents)
			objects(t, all[0].Contents)
		})
	}
}

// TestNone: what Talos brings along needs no manifest.
func TestNone(t *testing.T) {
	if all, err := Inline(planned(t, spec.CNI{},
		spec.Endpoint{Mode: spec.EndpointVIP, Address: "10.0.0.20"})); err != nil || all != nil {
		t.Error(all, err)
	}
}

// TestCiliumJobs: another version or other values are another job, which finds its own values; the same are the same
// job.
func TestCiliumJobs(t *testing.T) {
	names := map[string]string{}

	for of, cni := range map[string]spec.CNI{
		"1.18.4":  ciliumAlone,
		"v1.18.4": {Name: spec.CNICilium, Version: "v1.18.4", KubeProxy: new(false)},
		"1.18.5":  {Name: spec.CNICilium, Version: "1.18.5", KubeProxy: new(false)},
		"next to": {Name: spec.CNICilium, Version: "1.18.4"},
		"with a value": {
			Name: spec.CNICilium, Version: "1.18.4", KubeProxy: new(false),
			Values: map[string]any{"debug": map[string]any{"enabled": true}},
		},
		"without again": {Name: spec.CNICilium, Version: "1.18.4", KubeProxy: new(false), Values: map[string]any{}},
	} {
		all, err := Inline(planned(t, cni, spec.Endpoint{}))
		if err != nil {
			t.Fatal(err)
		}

		found := objects(t, all[0].Contents)
		settings, job := found[2].(*corev1.ConfigMap), found[3].(*batchv1.Job)

		if job.Name != settings.Name || job.Spec.Template.Spec.Volumes[0].ConfigMap.Name != settings.Name ||
			len(job.Name) > 63 {
			t.Errorf("%s: job %s, values %s", of, job.Name, settings.Name)
		}

		names[of] = job.Name
	}

	if names["1.18.4"] != names["v1.18.4"] || names["1.18.4"] != names["without again"] {
		t.Errorf("the same content has several names: %v", names)
	}

	different := map[string]bool{}
	for _, name := range names {
		different[name] = true
	}

	if len(different) != 4 {
		t.Errorf("different content has the same name: %v", names)
	}
}

// TestCiliumValues: the operator's values lie over the documented ones, key by key; null is Helm's way to take one out.
func TestCiliumValues(t *testing.T) {
	all, err := Inline(planned(t, ciliumNextTo, spec.Endpoint{}))
	if err != nil {
		t.Fatal(err)
	}

	var got map[string]any
	if err := yaml.Unmarshal([]byte(objects(t, all[0].Contents)[2].(*corev1.ConfigMap).Data["values.yaml"]),
		&got); err != nil {
		t.Fatal(err)
	}

	delete(got, "securityContext")

	want := map[string]any{
		"ipam": map[string]any{"mode": "kubernetes"}, "kubeProxyReplacement": false, "k8sServiceHost": "localhost",
		"k8sServicePort": 7445.0,
		"cgroup":         nil, "rollOutCiliumPods": true, "operator": map[string]any{"replicas": 2.0, "rollOutPods": true},
		"hubble": map[string]any{"relay": map[string]any{"enabled": true}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestLoadBalancer: the kinds with which Cilium and MetalLB take addresses and announce them.
func TestLoadBalancer(t *testing.T) {
	bgp := &spec.LoadBalancer{
		Addresses: []string{"10.9.0.0/24"}, Mode: spec.LoadBalancerBGP, ASN: 64512,
		Peers: []spec.BGPPeer{{Address: "10.0.0.1", ASN: 64500}},
	}
	l2 := &spec.LoadBalancer{Addresses: []string{"10.0.0.200-10.0.0.220"}}

	for name, c := range map[string]struct {
		cni  spec.CNI
		want []string
	}{
		"Cilium, l2": {
			spec.CNI{Name: spec.CNICilium, Version: "1.18.4", KubeProxy: new(false), LoadBalancer: l2},
			[]string{"CiliumLoadBalancerIPPool", "CiliumL2AnnouncementPolicy", "start: 10.0.0.200", "stop: 10.0.0.220"},
		},
		"Cilium, bgp": {
			spec.CNI{Name: spec.CNICilium, Version: "1.18.4", LoadBalancer: bgp},
			[]string{
				"CiliumLoadBalancerIPPool", "CiliumBGPClusterConfig", "CiliumBGPPeerConfig", "CiliumBGPAdvertisement",
				"localASN: 64512", "peerASN: 64500", "peerAddress: 10.0.0.1", "stop: 10.9.0.255",
			},
		},
		"MetalLB, l2": {
			spec.CNI{LoadBalancer: l2},
			[]string{"metallb-native.yaml", "IPAddressPool", "L2Advertisement", "10.0.0.200-10.0.0.220"},
		},
		"MetalLB, bgp": {
			spec.CNI{LoadBalancer: bgp}, []string{"IPAddressPool", "BGPPeer", "BGPAdvertisement", "myASN: 64512"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := Inline(planned(t, c.cni, spec.Endpoint{}))
			if err != nil {
				t.Fatal(err)
			}

			last := all[len(all)-1]
			if last.Name != "addon-load-balancer" {
				t.Fatal(last.Name)
			}

			files := objects(t, last.Contents)[0].(*corev1.ConfigMap).Data

			for _, want := range c.want {
				if all := strings.Join(slices.Collect(maps.Values(files)), "\n"); !strings.Contains(all, want) {
					t.Errorf("there is no %s in\n%s", want, all)
				}
			}
		})
	}
}

// TestProxmoxLogins: what speaks to Proxmox VE gets its login where it looks for it.
func TestProxmoxLogins(t *testing.T) {
	text, err := ProxmoxLogins("lan", "https://pve.lan:8006/api2/json", true, "csi@pve!csi=s1", "ccm@pve!ccm=s2")
	if err != nil {
		t.Fatal(err)
	}

	found := objects(t, text)
	csi, ccm := found[1].(*corev1.Secret), found[2].(*corev1.Secret)

	if csi.Namespace != "csi-proxmox" || ccm.Namespace != "kube-system" ||
		!strings.Contains(csi.StringData["config.yaml"], "token_id: csi@pve!csi\n  token_secret: s1") ||
		!strings.Contains(ccm.StringData["config.yaml"], "region: lan") {
		t.Error(text)
	}
}

// TestCheck: what Talos could not apply is found, and not shown.
func TestCheck(t *testing.T) {
	const whole = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"

	for name, test := range map[string]struct{ text, want string }{
		"one":               {text: whole},
		"several":           {text: "# first\n---\n" + whole + "---\n" + whole + "---\n# last\n"},
		"a kind of its own": {text: "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a}\nspec: {secret: b}\n"},
		"a list":            {text: "apiVersion: v1\nkind: List\nitems: []\n"},
		"a URL":             {text: "https://example.com/flux.yaml"},
		"no kind": {
			text: whole + "---\napiVersion: v1\nmetadata: {name: b}\npassword: hunter2\n",
			want: "document 2 has no kind",
		},
		"no version": {text: "kind: ConfigMap\nmetadata: {name: a}\n", want: "document 1 has no apiVersion"},
		"no name":    {text: "apiVersion: v1\nkind: ConfigMap\n", want: "document 1 has no metadata.name"},
		"no YAML":    {text: "password: [hunter2", want: "document 1 cannot be read as YAML"},
		"a text":     {text: "just a text", want: "document 1 cannot be read as YAML"},
		"nothing":    {text: "", want: "no manifest found"},
		"a list without names": {
			text: "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: ConfigMap}]\n",
			want: "document 1 has no metadata.name",
		},
		"a number in a Secret": {
			text: "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {pin: 4711}\n",
			want: "document 1 is a Secret, and stringData has a value that is not a string: put it in quotes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := planned(t, spec.CNI{}, spec.Endpoint{})
			p.Manifests = []spec.InlineOrFile{{Path: "cluster.manifests[0]", Origin: "flux.yaml", Text: test.text}}

			want := spec.Problems(nil)
			if test.want != "" {
				want.Add("cluster.manifests[0]", "must be Kubernetes manifests: "+test.want, "flux.yaml", "correct the manifest")
			}

			if diff := cmp.Diff(want, Check(p)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// objects decodes a manifest strictly.
func objects(t *testing.T, text string) []runtime.Object {
	t.Helper()

	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme,
		json.SerializerOptions{Yaml: true, Strict: true})

	var found []runtime.Object

	for doc := range strings.SplitSeq(text, "---\n") {
		object, kind, err := strict.Decode([]byte(doc), nil, nil)
		if err != nil {
			t.Fatalf("%v: %v\n%s", kind, err, doc)
		}

		found = append(found, object)
	}

	return found
}

// TestAddonsOfOthers: what another manager owns is refused, not taken over.
func TestAddonsOfOthers(t *testing.T) {
	p := planned(t, spec.CNI{}, spec.Endpoint{})

	all, err := addonsOf[spec.AddonLonghorn].install(p, "longhorn")
	if err != nil {
		t.Fatal(err)
	}

	got := all[1].(*batchv1.Job).Spec.Template.Spec.Containers[0].Command

	want := []string{"kubectl", "apply", "--server-side", "--field-manager", "talos-proxmox", "--kustomize", "/addon"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestCiliumAddresses: kinds are of the version that this Cilium has, and each peer has a name.
func TestCiliumAddresses(t *testing.T) {
	for cni, want := range map[string]string{"1.17.9": "v2alpha1", "1.18.0": "v2", "1.20.1": "v2"} {
		p := &plan.Plan{CNI: spec.CNICilium, CNIVersion: cni, LoadBalancer: &plan.PlannedLoadBalancer{}}
		p.LoadBalancer.Mode, p.LoadBalancer.Peers = spec.LoadBalancerBGP, make([]spec.BGPPeer, 30)

		objects := ciliumAddresses(p)
		for _, object := range objects {
			if object["apiVersion"] != "cilium.io/"+want {
				t.Errorf("Cilium %s: %v", cni, object)
			}
		}

		text, err := yaml.Marshal(objects)
		if err != nil || !strings.Contains(string(text), "name: peer-30\n") {
			t.Errorf("%v: %s", err, text)
		}

		p.LoadBalancer.Mode = spec.LoadBalancerL2
		if objects := ciliumAddresses(p); objects[0]["apiVersion"] != "cilium.io/"+want ||
			objects[1]["apiVersion"] != "cilium.io/v2alpha1" {
			t.Errorf("Cilium %s: %v", cni, objects)
		}
	}
}

// TestStorageAddons: OpenEBS runs a release and keeps its data where Talos can write, and Longhorn its data on the volume
// that is its own.
func TestStorageAddons(t *testing.T) {
	p := planned(t, spec.CNI{}, spec.Endpoint{})
	p.Addons = []spec.Addon{spec.AddonLonghorn, spec.AddonOpenEBS}

	kustomization := func(name string) string {
		all, err := jobs(p)[name].install(p, name)
		if err != nil {
			t.Fatal(err)
		}

		return all[0].(*corev1.ConfigMap).Data[kustomizationFile]
	}

	for _, want := range []string{
		"dynamic-localpv-provisioner/v4.0.0/deploy/kubectl/hostpath-operator.yaml",
		"image: openebs/provisioner-localpv:4.0.0", "value: openebs/linux-utils:4.0.0", "value: /var/mnt/openebs",
		"pod-security.kubernetes.io/enforce: privileged", "kind: StorageClass",
	} {
		if got := kustomization("openebs"); !strings.Contains(got, want) {
			t.Errorf("there is no %s in\n%s", want, got)
		}
	}

	const data = "default-data-path: /var/mnt/longhorn"

	if got := kustomization("longhorn"); strings.Contains(got, data) {
		t.Error(got)
	}

	node := &p.Pools[0].Nodes[0]
	node.Disks = append(node.Disks, plan.Disk{Volume: &spec.Volume{Name: "longhorn"}})

	if got := kustomization("longhorn"); !strings.Contains(got, data) ||
		!strings.Contains(got, "target:\n    kind: ConfigMap\n    name: longhorn-default-setting") {
		t.Error(got)
	}

	if len(addonsOf[spec.AddonLonghorn].patches) != 1 {
		t.Error("the addon itself changed")
	}
}
