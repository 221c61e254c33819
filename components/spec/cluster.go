package spec

// Cluster describes the Kubernetes cluster.
type Cluster struct {
	// Distribution: Talos Linux, or K3s on Ubuntu.
	Distribution Distribution `json:"kind,omitempty" jsonschema:"default=talos,enum=talos,enum=k3s"`
	// Name of the cluster: a DNS label, part of node names, MAC addresses and tags.
	Name string `json:"name"`
	// Require an odd number of control planes, at least three.
	HA bool `json:"ha,omitempty" jsonschema:"default=false"`
	// Who bootstraps the cluster. With external, the program creates VMs and the contract, and does not connect to
	// any node.
	Bootstrap BootstrapMode `json:"bootstrap,omitempty" jsonschema:"default=pulumi,enum=pulumi,enum=external"`
	// Software versions of the cluster.
	Versions Versions `json:"versions"`
	// How the Kubernetes API is reached.
	Endpoint Endpoint `json:"endpoint,omitempty"`
	// The pod network.
	CNI CNI `json:"cni,omitempty"`
	// Region of the nodes in Kubernetes, any name for this Proxmox VE. Nodes get it as topology.kubernetes.io/region,
	// their Proxmox VE host as topology.kubernetes.io/zone, and on Talos the provider ID proxmox://region/vmid. Absent:
	// none of them.
	Region string `json:"region,omitempty"`
	// Let control planes run pods, which a cluster without workers needs. Absent: true if there are no workers and no
	// patch decides it, else false. K3s always lets them; taint their pool instead.
	SchedulableControlPlanes *bool `json:"schedulableControlPlanes,omitempty"`
	// Parts to install from their own manifests, in the versions that platform.md lists. metrics-server brings serving
	// certificates for kubelets, and approves them. K3s takes longhorn, openebs, flux, argo-cd and proxmox-csi.
	Addons []Addon `json:"addons,omitempty" jsonschema:"enum=metrics-server,enum=local-path,enum=longhorn,enum=openebs,enum=flux,enum=argo-cd,enum=gateway-api,enum=proxmox-csi,enum=proxmox-ccm"`
	// Repository that the addon flux or argo-cd keeps the cluster in step with. Absent: none.
	GitOps *GitOps `json:"gitOps,omitempty"`
	// URL of a copy of the manifests that addons are fetched from, for clusters without the internet: below it, each has
	// the path of its own URL without https://. Absent: their own URLs.
	ManifestMirror string `json:"manifestMirror,omitempty"`
	// How nodes discover each other: service, the discovery service, which only sees encrypted data; kubernetes,
	// annotations in Kubernetes, up to version 1.31; none, only through the Kubernetes API.
	Discovery Discovery `json:"discovery,omitempty" jsonschema:"default=service,enum=service,enum=kubernetes,enum=none"`
	// Talos machine configuration patches for every node: each a path relative to the project, or the patch itself.
	Patches []Patch `json:"patches,omitempty"`
	// Kubernetes manifests that Talos applies, such as those of a GitOps tool: each a path relative to the project,
	// a URL that control planes fetch, or the manifest itself. Existing objects are never changed. With K3s, the program
	// applies them, also when they change, and a URL is refused.
	Manifests []InlineOrFile `json:"manifests,omitempty"`
	// URLs of mirrors, by registry: docker.io, or * for any.
	RegistryMirrors map[string][]string `json:"registryMirrors,omitempty"`
	// How the mirrors of a registry are asked, by registry.
	RegistryOptions map[string]RegistryOptions `json:"registryOptions,omitempty"`
	// HTTP proxy that nodes fetch images and other files through. Absent: none.
	Proxy *Proxy `json:"proxy,omitempty"`
	// Authentication, audit and admission of the Kubernetes API servers.
	APIServer APIServer `json:"apiServer,omitempty"`
	// Additional certificate authorities that nodes trust: each a path relative to the project, or PEM.
	TrustedCAs []InlineOrFile `json:"trustedCAs,omitempty"`
	// Where nodes send their logs. Absent: nowhere.
	Logs Logs `json:"logs,omitempty"`
	// A snapshot of etcd that new control planes start from, instead of an empty etcd: a path relative to the
	// project. It has no effect while etcd has its quorum.
	RecoverFrom string `json:"recoverFrom,omitempty"`
	// Encrypt the disks of nodes, with a key derived from the node's identity, or one that its TPM keeps, which
	// needs tpm and image.secureBoot. Nodes that run keep what they were created with: a change is refused for them.
	// Absent: no encryption.
	Encryption Encryption `json:"encryption,omitempty" jsonschema:"enum=nodeID,enum=tpm"`
}

// Logs are where nodes send their logs.
type Logs struct {
	// URLs that receive the logs of services as JSON lines, for example tcp://10.0.0.5:5044.
	Services []string `json:"services,omitempty"`
	// URLs that receive the kernel's log.
	Kernel []string `json:"kernel,omitempty"`
}

// Encryption says where the key of a node's disks comes from.
type Encryption string

// The keys of disks.
const (
	EncryptionNodeID Encryption = "nodeID"
	EncryptionTPM    Encryption = "tpm"
)

// BootstrapMode says who bootstraps the cluster.
type BootstrapMode string

// The owners.
const (
	BootstrapPulumi   BootstrapMode = "pulumi"
	BootstrapExternal BootstrapMode = "external"
)

// Versions of Talos and Kubernetes, or of K3s, with or without the leading v.
type Versions struct {
	// Talos Linux, for example v1.12.4. Required with kind talos.
	Talos string `json:"talos,omitempty"`
	// Kubernetes, for example v1.34.2. Required with kind talos and bootstrap pulumi, not allowed with external.
	Kubernetes string `json:"kubernetes,omitempty"`
	// K3s, for example v1.34.2+k3s1. Required with kind k3s; it contains the Kubernetes version.
	K3s string `json:"k3s,omitempty"`
	// Talos version whose defaults the machine configuration uses. Absent: the version that the cluster was created
	// with, so that an upgrade changes the running software and nothing else. A later one, up to versions.talos,
	// changes all nodes to the defaults of that version.
	Contract string `json:"contract,omitempty"`
}

// Endpoint is how the Kubernetes API is reached.
type Endpoint struct {
	// Address of the Kubernetes API.
	Mode EndpointMode `json:"mode,omitempty" jsonschema:"default=firstControlPlane,enum=firstControlPlane,enum=vip,enum=dns,enum=kubeVip"`
	// The virtual IP address, with mode vip and kubeVip.
	Address string `json:"address,omitempty"`
	// The DNS name, with mode dns. It must resolve to the control planes.
	Host string `json:"host,omitempty"`
	// The network interface of the virtual IP address, with mode kubeVip; for example eth0.
	Interface string `json:"interface,omitempty"`
	// Additional names and addresses in the certificates of the Kubernetes and Talos APIs.
	Names []string `json:"names,omitempty"`
	// Version of kube-vip, with mode kubeVip. Update a running cluster with talosctl upgrade-k8s.
	Version string `json:"version,omitempty" jsonschema:"default=v1.2.3"`
}

// EndpointMode says which address stands for the Kubernetes API.
type EndpointMode string

// The endpoint modes.
const (
	EndpointFirstControlPlane EndpointMode = "firstControlPlane"
	EndpointVIP               EndpointMode = "vip"
	EndpointDNS               EndpointMode = "dns"
	EndpointKubeVIP           EndpointMode = "kubeVip"
)

// Discovery says where nodes find each other.
type Discovery string

// The ways of discovery.
const (
	DiscoveryService    Discovery = "service"
	DiscoveryKubernetes Discovery = "kubernetes"
	DiscoveryNone       Discovery = "none"
)

// CNI is the network between pods.
type CNI struct {
	// The CNI; with none, you install one.
	Name CNIName `json:"name,omitempty" jsonschema:"default=flannel,enum=flannel,enum=cilium,enum=none"`
	// Version of Cilium, for example 1.18.4. Flannel comes with Talos.
	Version string `json:"version,omitempty"`
	// Run kube-proxy.
	KubeProxy *bool `json:"kubeProxy,omitempty" jsonschema:"default=true"`
	// Helm values of Cilium; they override those that Talos needs.
	Values map[string]any `json:"values,omitempty"`
	// Addresses for Services of type LoadBalancer, from Cilium, or from MetalLB with Flannel. Absent: none.
	LoadBalancer *LoadBalancer `json:"loadBalancer,omitempty"`
}

// CNIName is the name of a network between pods.
type CNIName string

// The networks between pods.
const (
	CNIFlannel CNIName = "flannel"
	CNICilium  CNIName = "cilium"
	CNINone    CNIName = "none"
)
