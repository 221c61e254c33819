package k3sconfig

// Where things are on a node.
const (
	// ConfigFile is where K3s reads its options.
	ConfigFile = "/etc/rancher/k3s/config.yaml"
	// manifestsDir is where servers deploy files from (K3s: Auto-Deploying Manifests).
	manifestsDir = "/var/lib/rancher/k3s/server/manifests/"

	tlsDir   = "/var/lib/rancher/k3s/server/tls/"
	stateDir = "/var/lib/k3s-install/"

	// WantedFile holds the version that is to run, where it is another than the node was made with: whatever is written to
	// it is carried out. See Wanted.
	WantedFile = stateDir + "wanted"
	// FatalFile holds why K3s will never be installed, on one line; it is empty while there is hope.
	FatalFile = stateDir + "fatal"
	// InstallLog is what the installation says, CloudInitLog what cloud-init says.
	InstallLog   = "/var/log/k3s-install.log"
	CloudInitLog = "/var/log/cloud-init-output.log"
	// CloudInitStatus is how far cloud-init has come.
	CloudInitStatus = "/run/cloud-init/status.json"

	// installFile is what the installation reads.
	installFile = "/etc/default/k3s-install"
)
