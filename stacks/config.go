package stacks

import (
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

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
	// Key that lets nodes join the tailnet. Set it with --secret. HEADSCALE_AUTH_KEY in the environment takes
	// precedence.
	TailscaleAuthKey string `json:"tailscaleAuthKey,omitempty"`

	// Secrets are secrets that are not known when the program begins.
	Secrets Secrets `json:"-"`
	// Dir is where paths of the configuration begin, the project's directory; the working directory when empty.
	Dir string `json:"-"`
	// Offline is why previews do not ask Proxmox VE; empty: they do.
	Offline string `json:"-"`
	// Destroying says that the run destroys the stack, by 'ops run destroy'.
	Destroying bool `json:"-"`
}

// Secrets are secrets of a program's own, such as outputs of other resources or pulumi config secrets. Each stands for
// the field of Config that has its name, which comes first. The credentials for Proxmox VE are not among them: they are
// used before anything is registered.
type Secrets struct {
	TailscaleAuthKey, MachineSecrets, K3sToken pulumi.StringInput
}

// Plan decides everything about the cluster (plan.New). It says which secrets are set, and holds none.
func (c Config) Plan() (*plan.Plan, error) {
	s := c.Spec
	s.Provided = spec.SecretsProvided{
		RootPassword: c.Proxmox.Username == "root@pam" && c.ProxmoxPassword != "", SSHKey: c.SSHPrivateKey != "",
		TailscaleKey:   c.TailscaleAuthKey != "" || c.Secrets.TailscaleAuthKey != nil,
		MachineSecrets: c.MachineSecrets != "" || c.Secrets.MachineSecrets != nil,
		K3sToken:       c.K3sToken != "" || c.Secrets.K3sToken != nil,
		K3sIdentity:    c.K3sIdentity != "",
	}

	return plan.New(s)
}

// Access is how Proxmox VE is reached.
func (c Config) Access() proxmoxapi.Access {
	timeout, _ := time.ParseDuration(c.Lifecycle.TaskTimeout) // the plan refuses what is none; absent: 0

	return proxmoxapi.Access{
		TaskTimeout: timeout,
		Endpoint:    c.Proxmox.Endpoint, Insecure: c.Proxmox.Insecure,
		TokenID: c.Proxmox.TokenID, TokenSecret: c.ProxmoxTokenSecret,
		Username: c.Proxmox.Username, Password: c.ProxmoxPassword, Offline: c.Offline,
	}
}
