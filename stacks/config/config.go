// Package config reads and checks the configuration of one stack: from Pulumi, from a stack file, or from values.
package config

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner"
	"talos-proxmox/components/spec"
)

// Project is the namespace of the configuration's keys, and the name in Pulumi.yaml.
const Project = "talos-proxmox"

// Config is one stack's configuration: a Spec, and its secrets. Its JSON names are the keys below the
// project's namespace; they and the comments here and in package spec are the source of the JSON Schema that editors
// complete from.
type Config struct {
	spec.Spec

	// Secret of the API token. Set it with --secret.
	ProxmoxTokenSecret string `json:"proxmoxTokenSecret,omitempty"`
	// Password of the user. Set it with --secret.
	ProxmoxPassword string `json:"proxmoxPassword,omitempty"`
	// Private key of the SSH login to the hosts. Set it with --secret.
	SSHPrivateKey string `json:"sshPrivateKey,omitempty"`
	// Token that K3s servers join with; it cannot change. Absent: one is generated and kept in the state. Set it
	// with --secret.
	K3sToken string `json:"k3sToken,omitempty"`
	// Files of a K3s server that make its cluster what it is, to import a cluster whose state is lost: a compressed tar
	// archive in base64. Set it with --secret.
	K3sIdentity string `json:"k3sIdentity,omitempty"`
	// A Talos secrets bundle (talosctl gen secrets) to import, instead of generating one. Set it with --secret.
	MachineSecrets string `json:"machineSecrets,omitempty"`
	// Kubernetes manifests that hold secrets, such as the deploy key of a GitOps tool: YAML documents that are applied
	// like cluster.manifests. Set it with --secret.
	SecretManifests string `json:"secretManifests,omitempty"`
	// Logins of registries as YAML, by host: username and password, auth or identityToken; and ca, certificate and key
	// in PEM. Set it with --secret.
	RegistryLogins string `json:"registryLogins,omitempty"`
	// API token for the addon proxmox-csi, user@realm!name=secret. Set it with --secret.
	CSIToken string `json:"csiToken,omitempty"`
	// API token for the addon proxmox-ccm, user@realm!name=secret. Set it with --secret.
	CCMToken string `json:"ccmToken,omitempty"`
	// What reads the repository of cluster.gitOps: a private SSH key (a deploy key), or for https:// a token, also as
	// user:token. Set it with --secret.
	GitOpsKey string `json:"gitOpsKey,omitempty"`
	// Private key of age that Flux decrypts what the repository holds with (SOPS). Set it with --secret.
	AgeKey string `json:"ageKey,omitempty"`
	// Key that lets nodes join the tailnet. Set it with --secret. HEADSCALE_AUTH_KEY in the environment takes
	// precedence.
	TailscaleAuthKey string `json:"tailscaleAuthKey,omitempty"`
	// Passphrase that snapshots of etcd are encrypted with, in the form of age, where lifecycle.backup.recipients is
	// absent. Set it with --secret.
	BackupPassphrase string `json:"backupPassphrase,omitempty"`

	// Secrets are secrets that are not known when the program begins.
	Secrets Secrets `json:"-"`
	// Dir is where paths of the configuration begin, the project's directory; the working directory when empty.
	Dir string `json:"-"`
	// Offline is why previews do not ask Proxmox VE; empty: they do.
	Offline string `json:"-"`
	// Pipeline says that the program runs in a pipeline, where host keys (proxmox.ssh.hostKeys) are required; nil: as
	// the environment says (OfThisMachine).
	Pipeline *bool `json:"-"`
	// KnownHosts is the file of known hosts of the user that runs the provider, which updates add
	// proxmox.ssh.hostKeys to; empty: ~/.ssh/known_hosts. os.DevNull keeps nothing.
	KnownHosts string `json:"-"`
	// Destroying says that the run destroys the stack, by 'ops run destroy'.
	Destroying bool `json:"-"`
}

// Secrets are secrets of a program's own, such as outputs of other resources or pulumi config secrets. Each stands for
// the field of Config that has its name, which comes first. The credentials for Proxmox VE are not among them: they are
// used before anything is registered.
type Secrets struct {
	TailscaleAuthKey, MachineSecrets, K3sToken, K3sIdentity, SecretManifests, RegistryLogins pulumi.StringInput
}

// Set sets the secret that stands for a key of the configuration, and says whether there is one. For other keys it does
// nothing.
func (s *Secrets) Set(key string, value pulumi.StringInput) bool {
	field, ok := map[string]*pulumi.StringInput{
		"tailscaleAuthKey": &s.TailscaleAuthKey, "machineSecrets": &s.MachineSecrets,
		"k3sToken": &s.K3sToken, "k3sIdentity": &s.K3sIdentity,
		"secretManifests": &s.SecretManifests, "registryLogins": &s.RegistryLogins,
	}[key]
	if ok {
		*field = value
	}

	return ok
}

// Plan decides everything about the cluster (planner.Plan), which is told the secrets that are set, and not their
// values. The error holds all problems (spec.Problems).
func (c Config) Plan() (*plan.Plan, error) {
	s := c.Spec
	s.Provided = spec.SecretsProvided{
		RootPassword: c.Proxmox.Username == "root@pam" && c.ProxmoxPassword != "", SSHKey: c.SSHPrivateKey != "",
		TailscaleKey:   c.TailscaleAuthKey != "" || c.Secrets.TailscaleAuthKey != nil,
		MachineSecrets: c.MachineSecrets != "" || c.Secrets.MachineSecrets != nil,
		K3sToken:       c.K3sToken != "" || c.Secrets.K3sToken != nil,
		CSIToken:       c.CSIToken != "", CCMToken: c.CCMToken != "",
		GitOpsKey: c.GitOpsKey != "", AgeKey: c.AgeKey != "",
		SecretManifests:  c.SecretManifests != "" || c.Secrets.SecretManifests != nil,
		RegistryLogins:   c.RegistryLogins != "" || c.Secrets.RegistryLogins != nil,
		BackupPassphrase: c.BackupPassphrase != "",
		K3sIdentity:      c.K3sIdentity != "" || c.Secrets.K3sIdentity != nil,
	}

	return planner.Plan(s)
}
