package stacks

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
	"talos-proxmox/stacks/schema"
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
	// Pipeline says that the program runs in a pipeline, where host keys (proxmox.ssh.hostKeys) are required.
	Pipeline bool `json:"-"`
	// KnownHosts is the file of known hosts of the user that runs the provider, which updates add
	// proxmox.ssh.hostKeys to; empty: none.
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

// Set sets the secret that stands for a key of the configuration, and says whether there is one.
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

// Plan decides everything about the cluster (planner.Plan). It says which secrets are set, and holds none.
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

// Access is how Proxmox VE is reached.
func (c Config) Access() proxmoxapi.Access {
	timeout, _ := time.ParseDuration(c.Lifecycle.TaskTimeout) // the plan refuses what is none; absent: 0
	grace, _ := time.ParseDuration(c.Lifecycle.SettleTimeout)

	return proxmoxapi.Access{
		TaskTimeout: timeout, GracePeriod: grace,
		Endpoint: c.Proxmox.Endpoint, Insecure: c.Proxmox.Insecure,
		TokenID: c.Proxmox.TokenID, TokenSecret: c.ProxmoxTokenSecret,
		Username: c.Proxmox.Username, Password: c.ProxmoxPassword, Offline: c.Offline,
	}
}

// Parse reads a configuration from its values as Pulumi keeps them: text as it is, anything else as JSON. Patch files
// are read from below root. The secrets are those that are not among the values.
func Parse(values map[string]string, secrets Secrets, root string) (Config, error) {
	return parse(values, secrets, nil, root)
}

// parse is Parse, and adds its problems to those of the keys. What lies below a wrong key is checked all the same.
func parse(values map[string]string, secrets Secrets, keys spec.Problems, root string) (Config, error) {
	tree, problems, err := decode(values)
	if err != nil {
		return Config{}, err
	}

	found, err := schema.CheckConfig(tree)
	if err != nil {
		return Config{}, err
	}

	problems = append(problems, found...)

	text, err := json.Marshal(tree)
	if err != nil {
		return Config{}, err
	}

	c := Config{Dir: root, Offline: offline(), Secrets: secrets, Destroying: os.Getenv(DestroyVariable) != ""}

	// What has the wrong type is in the problems already; the rest is read all the same, so that it can be checked too.
	var mismatch *json.UnmarshalTypeError
	if err := json.Unmarshal(text, &c); err != nil && !errors.As(err, &mismatch) {
		return Config{}, err
	}

	unread, err := readTexts(&c, root)
	if err != nil {
		return Config{}, err
	}

	problems = merge(problems, append(unread, checkSnapshot(&c, root)...))

	if _, problems, err = c.check(problems); err != nil {
		return Config{}, err
	}

	return c, slices.Concat(keys, problems).Err()
}

// check plans the cluster, and adds everything that is wrong to what reading the configuration has shown. The patches
// are checked where something else is wrong; otherwise the preflight checks do it, and give Talos' warnings, too.
func (c Config) check(found spec.Problems) (*plan.Plan, spec.Problems, error) {
	var planned, patches spec.Problems

	p, err := c.Plan()
	if err != nil && !errors.As(err, &planned) {
		return nil, nil, err
	}

	more := slices.Concat(c.checkAccess(), c.checkSecrets(), c.checkPipeline(p), planned)
	if len(found)+len(more) == 0 {
		return p, nil, nil
	}

	if p == nil {
		patches, err = machineconfig.CheckPatches(c.Spec)
	} else if _, err = machineconfig.Check(p); errors.As(err, &patches) {
		err = nil
	}

	return p, merge(found, append(more, patches...)), err
}

// merge adds what was found in the values to what was found in the keys and in reading files, without what only follows
// from it.
func merge(keys, values spec.Problems) spec.Problems {
	all := keys

	for _, v := range values {
		follows := slices.ContainsFunc(keys, func(k spec.Problem) bool {
			return v.Path == k.Path || within(v.Path, k.Path) || within(k.Path, v.Path)
		})
		if !follows {
			all = append(all, v)
		}
	}

	return all.Unique()
}

// within says whether a path lies below another.
func within(path, above string) bool {
	rest, ok := strings.CutPrefix(path, above)

	return ok && (strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "["))
}

// decode parses what is not text.
func decode(values map[string]string) (map[string]any, spec.Problems, error) {
	var problems spec.Problems

	tree := map[string]any{}

	types, err := schema.KeyTypes()
	if err != nil {
		return nil, nil, err
	}

	for _, key := range slices.Sorted(maps.Keys(values)) {
		if t, known := types[key]; !known || t == "string" {
			tree[key] = values[key]

			continue
		}

		var v any
		if err := json.Unmarshal([]byte(values[key]), &v); err != nil {
			problems.Add(key, "must be "+schema.TypeNames([]string{types[key]}), "", "write it as YAML below the key")
			// Reported once, not as missing too.
			v = map[string]any{}
		}

		tree[key] = v
	}

	return tree, problems, nil
}
