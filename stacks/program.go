// Package stacks turns one stack's configuration into a cluster: it loads and checks the configuration, carries it out
// with the components, and defines what the stack offers to others.
package stacks

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/ciutil"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos"

	"talos-proxmox/components"
	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/machineconfig/manifests"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// Program is the whole Pulumi program: load the stack's configuration, deploy it, export the outputs.
func Program(ctx *pulumi.Context) error {
	return run(ctx, ctx.RootDirectory(), (*Config).OfThisMachine)
}

// OfThisMachine sets what the configuration does not say: whether this is a pipeline, and which hosts the provider
// knows.
func (c *Config) OfThisMachine() {
	c.Pipeline = ciutil.IsCI()

	// Without a home, the provider remembers no host.
	if home, err := os.UserHomeDir(); err == nil {
		c.KnownHosts = filepath.Join(home, ".ssh", "known_hosts")
	}
}

// ProgramIn is Program for the Automation API, whose programs are not told where their project is: in the directory
// dir, which holds the stack's file and the patch files that the configuration names.
func ProgramIn(dir string) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error { return run(ctx, dir, func(*Config) {}) }
}

func run(ctx *pulumi.Context, dir string, here func(*Config)) error {
	config, err := Load(ctx, dir)
	if err != nil {
		return err
	}

	here(&config)

	d, err := Deploy(ctx, config)
	if err != nil {
		return err
	}

	d.WriteFiles(ctx, dir)
	d.Export(ctx, "")

	return nil
}

// Deployment is a cluster that is part of a program.
type Deployment struct {
	// Cluster is there with cluster.kind talos, K3s with k3s; the other is nil.
	Cluster *components.TalosCluster
	K3s     *components.K3sCluster
	// Outputs are the contract outputs by name; Program exports them as they are.
	Outputs pulumi.Map
}

// Export exports the outputs under their names with a prefix, as contract.ReadOutputsOf reads them. A program with one
// cluster needs none.
func (d *Deployment) Export(ctx *pulumi.Context, prefix string) {
	for name, value := range d.Outputs {
		ctx.Export(prefix+name, value)
	}
}

// Proxmox is what is asked of Proxmox VE; *proxmoxapi.Client implements it.
type Proxmox interface {
	checks.Proxmox
	components.K3sProxmox
}

// Deploy creates the cluster that the configuration describes, with providers of its own. The resources take their
// names from the cluster's name. Nothing is registered when the configuration is wrong; the error holds all problems
// (spec.Problems). A program with several clusters uses DeployAll.
func Deploy(ctx *pulumi.Context, config Config, opts ...pulumi.ResourceOption) (*Deployment, error) {
	deployments, err := DeployAll(ctx, []Config{config}, opts...)
	if err != nil {
		return nil, err
	}

	return deployments[0], nil
}

// DeployAll creates several clusters, in the order of the configurations. Before anything is registered, it refuses
// clusters with the same name and, on the same Proxmox VE, with the same VMIDs, MAC addresses or addresses.
func DeployAll(ctx *pulumi.Context, configs []Config, opts ...pulumi.ResourceOption) ([]*Deployment, error) {
	var (
		clusters []planned
		problems spec.Problems
	)

	if err := RefuseProtect(opts...); err != nil {
		return nil, err
	}

	for _, config := range configs {
		p, found, err := config.check(nil)
		if err != nil {
			return nil, err
		}

		problems = append(problems, ofCluster(config, len(configs), found)...)
		clusters = append(clusters, planned{config, p})
	}

	if err := problems.Err(); err != nil {
		return nil, err
	}

	if err := addClusters(ctx, clusters); err != nil {
		return nil, err
	}

	connect := func(config Config) (Proxmox, error) {
		access := config.Access()
		access.Progress, access.Once = hookutil.Progress(ctx, config.Cluster.Name), ctx.DryRun()

		return proxmoxapi.New(access)
	}

	return deployAll(ctx, clusters, connect, preflight.Dialer{}, opts...)
}

// RefuseProtect refuses the option protect for a cluster. Pulumi runs the hooks before a deletion before it looks at
// that option, so a node would be drained and reset, and only then kept.
func RefuseProtect(opts ...pulumi.ResourceOption) error {
	options, err := pulumi.NewResourceOptions(opts...)
	if err != nil || !options.Protect {
		return err
	}

	return errors.New("protect is not an option of a cluster: Pulumi refuses to delete a protected node only after it " +
		"was drained and reset; leave it out, and set protection for the pools")
}

// deployAll checks all clusters before it registers anything of the first.
func deployAll(ctx *pulumi.Context, clusters []planned, connect func(Config) (Proxmox, error),
	network preflight.Network, opts ...pulumi.ResourceOption,
) ([]*Deployment, error) {
	var checked []func() (*Deployment, error)

	for _, c := range clusters {
		api, err := connect(c.config)
		if err != nil {
			return nil, err
		}

		report, err := preflight.Run(ctx, c.plan, api, network)
		if err != nil {
			return nil, err
		}

		if !ctx.DryRun() {
			if err := trustHostKeys(c.config.KnownHosts, c.plan.SSH); err != nil {
				return nil, err
			}
		}

		checked = append(checked, func() (*Deployment, error) {
			return deploy(ctx, c.config, c.plan, api, report, opts...)
		})
	}

	var deployments []*Deployment

	for _, register := range checked {
		d, err := register()
		if err != nil {
			return nil, err
		}

		deployments = append(deployments, d)
	}

	return deployments, nil
}

func deploy(ctx *pulumi.Context, config Config, p *plan.Plan, api Proxmox, report *preflight.Report,
	opts ...pulumi.ResourceOption,
) (*Deployment, error) {
	name := p.Cluster

	proxmox, err := proxmoxve.NewProvider(ctx, name+"-proxmox", proxmoxArgs(config, p.SSH), opts...)
	if err != nil {
		return nil, err
	}

	var secret pulumi.StringInput
	if p.SecretManifests {
		if secret, err = secretManifests(config, p); err != nil {
			return nil, err
		}
	}

	if p.Distribution == spec.DistributionK3s {
		cluster, err := components.NewK3sCluster(ctx, name, &components.K3sClusterArgs{
			Plan: p, Preflight: report, Proxmox: api, Destroying: config.Destroying,
			Token:    secretInput(config.K3sToken, config.Secrets.K3sToken),
			Identity: secretInput(config.K3sIdentity, config.Secrets.K3sIdentity),

			SecretManifests: secret,
			RegistryLogins:  secretInput(config.RegistryLogins, config.Secrets.RegistryLogins),
		}, append(opts, pulumi.Providers(proxmox))...)
		if err != nil {
			return nil, err
		}

		return &Deployment{K3s: cluster, Outputs: k3sOutputs(cluster, ctx.Stack())}, nil
	}

	talosProvider, err := talos.NewProvider(ctx, name+"-talos", talosArgs(p), opts...)
	if err != nil {
		return nil, err
	}

	args := &components.TalosClusterArgs{
		Plan: p, Preflight: report, Proxmox: api, ProjectDir: config.Dir, Destroying: config.Destroying,
		BackupPassphrase: config.BackupPassphrase,
		TailscaleAuthKey: secretInput(config.TailscaleAuthKey, config.Secrets.TailscaleAuthKey),
		SecretManifests:  secret,
	}

	if p.RegistryLogins {
		args.RegistryLogins = secretInput(config.RegistryLogins, config.Secrets.RegistryLogins)
	}

	if p.ImportSecrets {
		args.MachineSecrets = secretInput(config.MachineSecrets, config.Secrets.MachineSecrets)
	}

	cluster, err := components.NewTalosCluster(ctx, name, args,
		append(opts, pulumi.Providers(proxmox, talosProvider))...)
	if err != nil {
		return nil, err
	}

	exported, err := outputs(cluster, ctx.Stack())

	return &Deployment{Cluster: cluster, Outputs: exported}, err
}

// secretInput is a secret that is known when the program begins, else one that is an input; nil without either.
func secretInput(known string, input pulumi.StringInput) pulumi.StringInput {
	if known != "" {
		input = pulumi.String(known)
	}

	if input == nil {
		return nil
	}

	return pulumi.ToSecret(input).(pulumi.StringOutput)
}

// secretManifests are the operator's, the logins of what speaks to Proxmox VE, and the keys of the repository.
func secretManifests(config Config, p *plan.Plan) (pulumi.StringInput, error) {
	url := strings.TrimSuffix(strings.TrimSuffix(config.Proxmox.Endpoint, "/"), "/api2/json") + "/api2/json"

	own, err := manifests.ProxmoxLogins(p.Region, url, config.Proxmox.Insecure, config.CSIToken, config.CCMToken)
	if err != nil {
		return nil, err
	}

	if p.GitOps != nil && (p.GitOps.Key || p.GitOps.Age) {
		keys, err := manifests.RepositoryKeys(p.GitOps, config.GitOpsKey, config.AgeKey)
		if err != nil {
			return nil, err
		}

		own = joined(own, keys)
	}

	operators := secretInput(config.SecretManifests, config.Secrets.SecretManifests)
	if operators == nil {
		return pulumi.ToSecret(pulumi.String(own)).(pulumi.StringOutput), nil
	}

	return operators.ToStringOutput().ApplyT(func(text string) string {
		return joined(own, text)
	}).(pulumi.StringOutput), nil
}

// joined are the manifests of two texts, of which the first may be empty.
func joined(first, second string) string {
	if first == "" {
		return second
	}

	return first + "---\n" + second
}

// talosArgs names the factory that schematics are made at.
func talosArgs(p *plan.Plan) *talos.ProviderArgs {
	args := &talos.ProviderArgs{}

	for _, pool := range p.Pools {
		if pool.Image.FactoryURL != "" {
			args.ImageFactoryUrl = pulumi.String(pool.Image.FactoryURL)
		}
	}

	return args
}

func proxmoxArgs(config Config, ssh *spec.SSH) *proxmoxve.ProviderArgs {
	args := &proxmoxve.ProviderArgs{
		Endpoint: pulumi.String(config.Proxmox.Endpoint),
		Insecure: pulumi.Bool(config.Proxmox.Insecure),
	}

	if config.Proxmox.TokenID != "" {
		token := pulumi.String(config.Proxmox.TokenID + "=" + config.ProxmoxTokenSecret)
		args.ApiToken = pulumi.ToSecret(token).(pulumi.StringOutput)
	} else {
		args.Username = pulumi.String(config.Proxmox.Username)
		args.Password = pulumi.ToSecret(pulumi.String(config.ProxmoxPassword)).(pulumi.StringOutput)
	}

	if ssh != nil {
		args.Ssh = sshArgs(config, ssh)
	}

	return args
}

// sshArgs are the login for the import of disk images. Nothing of the operator's own SSH configuration is used.
func sshArgs(config Config, ssh *spec.SSH) proxmoxve.ProviderSshArgs {
	nodes := proxmoxve.ProviderSshNodeArray{}
	for _, name := range slices.Sorted(maps.Keys(ssh.Addresses)) {
		nodes = append(nodes, proxmoxve.ProviderSshNodeArgs{
			Name: pulumi.String(name), Address: pulumi.String(ssh.Addresses[name]), Port: pulumi.Int(ssh.Port),
		})
	}

	return proxmoxve.ProviderSshArgs{
		Agent: pulumi.Bool(false), Username: pulumi.String(ssh.Username), Nodes: nodes,
		PrivateKey: pulumi.ToSecret(pulumi.String(config.SSHPrivateKey)).(pulumi.StringOutput),
	}
}
