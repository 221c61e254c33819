package plan

import "encoding/json"

// Cluster describes the Kubernetes cluster.
type Cluster struct {
	// Name of the cluster: a DNS label, part of node names, MAC addresses and tags.
	Name string `json:"name"`
	// Demand at least three control planes, and an odd number of them.
	HA bool `json:"ha,omitempty" jsonschema:"default=false"`
	// Who turns the VMs into a cluster. With external, VMs and the contract are made and no node is touched.
	Bootstrap Owner `json:"bootstrap,omitempty" jsonschema:"default=pulumi,enum=pulumi,enum=external"`
	// Versions of what runs in the cluster.
	Versions Versions `json:"versions"`
	// How the Kubernetes API is reached.
	Endpoint Endpoint `json:"endpoint,omitempty"`
	// The network between pods.
	CNI CNI `json:"cni,omitempty"`
	// Where nodes find each other: the discovery service, which sees encrypted data only; annotations in Kubernetes, up to
	// version 1.31; or nowhere, so that they know no more than the Kubernetes API tells them.
	Discovery Discovery `json:"discovery,omitempty" jsonschema:"default=service,enum=service,enum=kubernetes,enum=none"`
	// Talos machine configuration patches for every node: each a path relative to the project, or the patch itself.
	Patches []Patch `json:"patches,omitempty"`
}

// Owner says who bootstraps the cluster.
type Owner string

// The owners.
const (
	ByPulumi Owner = "pulumi"
	External Owner = "external"
)

// Versions of Talos and Kubernetes, with or without the leading v.
type Versions struct {
	// Talos Linux, for example v1.12.4.
	Talos string `json:"talos"`
	// Kubernetes, for example v1.34.2. Required with bootstrap pulumi, excluded by external.
	Kubernetes string `json:"kubernetes,omitempty"`
}

// Endpoint is how the Kubernetes API is reached.
type Endpoint struct {
	// Which address stands for the Kubernetes API.
	Mode EndpointMode `json:"mode,omitempty" jsonschema:"default=firstControlPlane,enum=firstControlPlane,enum=vip,enum=dns,enum=kubeVip"`
	// The virtual address, with mode vip and kubeVip.
	Address string `json:"address,omitempty"`
	// The DNS name, with mode dns. It must lead to the control planes.
	Host string `json:"host,omitempty"`
	// The network interface of the virtual address, with mode kubeVip; for example tailscale0.
	Interface string `json:"interface,omitempty"`
	// Version of kube-vip, with mode kubeVip. A running cluster changes to another with talosctl upgrade-k8s.
	Version string `json:"version,omitempty" jsonschema:"default=v1.2.3"`
}

// EndpointMode says which address stands for the Kubernetes API.
type EndpointMode string

// The endpoint modes.
const (
	FirstControlPlane EndpointMode = "firstControlPlane"
	VIP               EndpointMode = "vip"
	DNS               EndpointMode = "dns"
	KubeVIP           EndpointMode = "kubeVip"
)

// Discovery says where nodes find each other.
type Discovery string

// The ways of discovery.
const (
	DiscoveryService    Discovery = "service"
	DiscoveryKubernetes Discovery = "kubernetes"
	NoDiscovery         Discovery = "none"
)

// CNI is the network between pods.
type CNI struct {
	// Which one; none leaves it to you.
	Name CNIName `json:"name,omitempty" jsonschema:"default=flannel,enum=flannel,enum=cilium,enum=none"`
	// Version of Cilium, for example 1.18.4. Flannel comes with Talos.
	Version string `json:"version,omitempty"`
	// Run kube-proxy.
	KubeProxy *bool `json:"kubeProxy,omitempty" jsonschema:"default=true"`
	// Helm values of Cilium, over those that Talos needs.
	Values map[string]any `json:"values,omitempty"`
}

// CNIName is the name of a network between pods.
type CNIName string

// The networks between pods.
const (
	Flannel CNIName = "flannel"
	Cilium  CNIName = "cilium"
	NoCNI   CNIName = "none"
)

// Patch is a Talos machine configuration patch (a strategic merge or a JSON patch, as Talos defines them). In the
// configuration it is a text: the patch itself, or the path of a file that holds it, which is read before planning.
type Patch struct {
	Path   string // the configuration key it came from
	Origin string // the file it was read from, or the key again
	Text   string
}

// UnmarshalJSON reads the text.
func (p *Patch) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &p.Text) }
