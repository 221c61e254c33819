package spec

// Addon is a part that is installed from its own manifests.
type Addon string

// The addons.
const (
	AddonMetricsServer Addon = "metrics-server"
	AddonLocalPath     Addon = "local-path"
	AddonLonghorn      Addon = "longhorn"
	AddonFlux          Addon = "flux"
	AddonArgoCD        Addon = "argo-cd"
	AddonGatewayAPI    Addon = "gateway-api"
	AddonProxmoxCSI    Addon = "proxmox-csi"
	AddonProxmoxCCM    Addon = "proxmox-ccm"
	AddonOpenEBS       Addon = "openebs"
)

// GitOps is the repository of a cluster. Its keys are gitOpsKey and ageKey.
type GitOps struct {
	// URL of the git repository, https:// or ssh://, for example ssh://git@git.example.com/platform.git.
	Repository string `json:"repository"`
	// Branch to follow. Absent: main.
	Branch string `json:"branch,omitempty"`
	// Directory in the repository with what this cluster is to have, for example clusters/home. Absent: all of it.
	Path string `json:"path,omitempty"`
	// Public host keys of the repository's server, each a line of known_hosts (ssh-keyscan prints them). Required with
	// ssh:// and the addon flux. Absent with argo-cd: those of public services that it brings.
	KnownHosts []string `json:"knownHosts,omitempty"`
}

// RegistryOptions are how the mirrors of one registry are asked.
type RegistryOptions struct {
	// The URLs of the mirrors hold the whole path; /v2 is not added to them. K3s never adds it to a path.
	OverridePath bool `json:"overridePath,omitempty"`
	// Do not ask the registry itself when no mirror has an image. Needs Talos 1.9. With K3s, it is for all registries
	// with mirrors, or for none.
	SkipFallback bool `json:"skipFallback,omitempty"`
}

// Proxy is an HTTP proxy.
type Proxy struct {
	// Proxy for http:// URLs, for example http://proxy.lan:3128.
	HTTP string `json:"http,omitempty"`
	// Proxy for https:// URLs.
	HTTPS string `json:"https,omitempty"`
	// Hosts and networks that are reached without it, in addition to the cluster's own: network.cidr, the networks of
	// pods and services, and the endpoint.
	Except []string `json:"except,omitempty"`
}

// APIServer is who may ask the Kubernetes API servers, and what they write down.
type APIServer struct {
	// OpenID Connect provider whose users may log in. Instead of authentication.
	OIDC *OIDC `json:"oidc,omitempty"`
	// A Kubernetes AuthenticationConfiguration: a path relative to the project, or the configuration itself. Needs
	// Kubernetes 1.30. Nodes that run already must restart for it.
	Authentication *InlineOrFile `json:"authentication,omitempty"`
	// A Kubernetes audit Policy: a path relative to the project, or the policy itself. Absent: Talos' own, which logs
	// metadata; with K3s, nothing is logged.
	Audit *InlineOrFile `json:"audit,omitempty"`
	// Configuration of admission plugins, by the plugin's name, for example PodSecurity.
	Admission map[string]map[string]any `json:"admission,omitempty"`
}

// OIDC is an OpenID Connect provider.
type OIDC struct {
	// URL of the provider, https only.
	Issuer string `json:"issuer"`
	// Client that tokens must be issued for.
	ClientID string `json:"clientID"`
	// Claim with the name of the user. Absent: sub.
	UsernameClaim string `json:"usernameClaim,omitempty"`
	// Prefix of user names, for example oidc:. Absent: Kubernetes' default, the issuer and #.
	UsernamePrefix string `json:"usernamePrefix,omitempty"`
	// Claim with the groups of the user. Absent: none.
	GroupsClaim string `json:"groupsClaim,omitempty"`
	// Prefix of groups, for example oidc:.
	GroupsPrefix string `json:"groupsPrefix,omitempty"`
}

// LoadBalancer gives Services of type LoadBalancer their addresses.
type LoadBalancer struct {
	// Addresses, for example 10.0.0.200-10.0.0.220 or 10.1.0.0/24.
	Addresses []string `json:"addresses"`
	// Networks that the firewall lets in to the addresses. Absent: the network of the nodes.
	From []string `json:"from,omitempty"`
	// How the network learns of them: l2 answers ARP and NDP for addresses of network.cidr, bgp tells routers.
	// Absent: l2.
	Mode LoadBalancerMode `json:"mode,omitempty" jsonschema:"enum=l2,enum=bgp"`
	// Autonomous system of the nodes, with mode bgp.
	ASN int `json:"asn,omitempty" jsonschema:"minimum=1,maximum=4294967295"`
	// Routers that nodes tell the addresses, with mode bgp.
	Peers []BGPPeer `json:"peers,omitempty"`
}

// LoadBalancerMode is how a network learns of addresses of Services.
type LoadBalancerMode string

// The modes.
const (
	LoadBalancerL2  LoadBalancerMode = "l2"
	LoadBalancerBGP LoadBalancerMode = "bgp"
)

// BGPPeer is a router.
type BGPPeer struct {
	// Address of the router.
	Address string `json:"address"`
	// Autonomous system of the router.
	ASN int `json:"asn" jsonschema:"minimum=1,maximum=4294967295"`
}
