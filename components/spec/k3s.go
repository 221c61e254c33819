package spec

// Distribution is what the nodes of a cluster run.
type Distribution string

// The kinds.
const (
	DistributionTalos Distribution = "talos"
	DistributionK3s   Distribution = "k3s"
)

// K3s is what is particular to a cluster of kind k3s: K3s on Ubuntu, set up by cloud-init. A control plane is a server
// of K3s, a worker an agent.
type K3s struct {
	// Components of K3s to disable.
	Disable []string `json:"disable,omitempty" jsonschema:"enum=coredns,enum=local-storage,enum=metrics-server,enum=runtimes,enum=servicelb,enum=traefik"`
	// Network of pods, for example 10.100.0.0/16; it cannot change. Each node has a /24 of it, with IPv6 a /64.
	// Absent: 10.42.0.0/16.
	ClusterCIDR string `json:"clusterCIDR,omitempty"`
	// Network of services, for example 10.101.0.0/16; it cannot change. The cluster's DNS has its tenth address.
	// Absent: 10.43.0.0/16.
	ServiceCIDR string `json:"serviceCIDR,omitempty"`
	// Additional arguments of servers, for example --kube-apiserver-arg=audit-log-maxage=30. Arguments that the
	// program sets itself are refused.
	ServerArgs []string `json:"serverArgs,omitempty"`
	// Additional arguments of agents.
	AgentArgs []string `json:"agentArgs,omitempty"`
	// Checksum of the k3s binary, as sha256:<64 hexadecimal digits>, in addition to that of its release, which is
	// always verified.
	Checksum string `json:"checksum,omitempty"`
	// Checksum of install.sh of the release, as sha256:<64 hexadecimal digits>, which nodes verify before they run it.
	// Absent: nodes run what they download. Applies to new nodes, and to upgrades of nodes created by a program that
	// has the key.
	InstallChecksum string `json:"installChecksum,omitempty"`
	// User that may log in to the nodes over SSH, and become root.
	User string `json:"user,omitempty" jsonschema:"default=ubuntu"`
	// Public SSH keys of that user, as in authorized_keys.
	SSHKeys []string `json:"sshKeys,omitempty"`
	// Generate an additional key pair for that user. The private key is kept in the state, and is the secret output
	// ssh_private_key.
	GenerateSSHKey bool `json:"generateSSHKey,omitempty" jsonschema:"default=false"`
	// Ubuntu packages to install in addition to the guest agent.
	Packages []string `json:"packages,omitempty"`
	// Upgrade Ubuntu's packages at the first boot of a node.
	UpgradePackages *bool `json:"upgradePackages,omitempty" jsonschema:"default=true"`
	// URL to get K3s from: below it, each version has a directory such as v1.34.2+k3s1 with install.sh, k3s and
	// sha256sum-amd64.txt of the release, and k3s-airgap-images-amd64.tar.zst if nodes should import the images.
	// Absent: GitHub. Applies to new nodes.
	Mirror string `json:"mirror,omitempty"`
	// URL of a mirror of Ubuntu's packages. Absent: the sources of the image. Applies to new nodes.
	AptMirror string `json:"aptMirror,omitempty"`
	// Timeout of each attempt of a node to start K3s, and of the first server to be told which cluster it belongs to;
	// at least 1m. The node tries again afterwards. Applies to new nodes.
	StartTimeout string `json:"startTimeout,omitempty" jsonschema:"default=10m"`
}
