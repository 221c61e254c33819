package stacks

import (
	"errors"
	"strings"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve"
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
	"talos-proxmox/stacks/config"
)

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
func Deploy(ctx *pulumi.Context, c Config, opts ...pulumi.ResourceOption) (*Deployment, error) {
	deployments, err := DeployAll(ctx, []Config{c}, opts...)
	if err != nil {
		return nil, err
	}

	return deployments[0], nil
}

// DeployAll creates several clusters, in the order of the configurations. Before anything is registered, it refuses
// clusters with the same name and, on the same Proxmox VE, with the same VMIDs, MAC addresses or addresses.
func DeployAll(ctx *pulumi.Context, configs []Config, opts ...pulumi.ResourceOption) ([]*Deployment, error) {
	var (
		clusters []config.Planned
		problems spec.Problems
	)

	if err := RefuseProtect(opts...); err != nil {
		return nil, err
	}

	for _, c := range configs {
		c.OfThisMachine()

		p, found, err := c.Check(nil)
		if err != nil {
			return nil, err
		}

		if p != nil {
			err = checkFiles(ctx, p, c.Dir)
			if problem, is := errors.AsType[spec.Problem](err); is {
				found = append(found, problem)
			} else if err != nil {
				return nil, err
			}
		}

		if len(configs) > 1 {
			found = config.OfCluster(c.Cluster.Name, found)
		}

		problems = append(problems, found...)
		clusters = append(clusters, config.Planned{Config: c, Plan: p})
	}

	if err := problems.Err(); err != nil {
		return nil, err
	}

	if err := addClusters(ctx, clusters); err != nil {
		return nil, err
	}

	connect := func(c Config) (Proxmox, error) {
		access := c.Access()
		access.Progress, access.Once = hookutil.Progress(ctx, c.Cluster.Name), ctx.DryRun()

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
func deployAll(ctx *pulumi.Context, clusters []config.Planned, connect func(Config) (Proxmox, error),
	network preflight.Network, opts ...pulumi.ResourceOption,
) ([]*Deployment, error) {
	var checked []func() (*Deployment, error)

	for _, c := range clusters {
		api, err := connect(c.Config)
		if err != nil {
			return nil, err
		}

		report, err := preflight.Run(ctx, c.Plan, api, network)
		if err != nil {
			return nil, err
		}

		if !ctx.DryRun() {
			if err := config.TrustHostKeys(c.Config.KnownHosts, c.Plan.SSH); err != nil {
				return nil, err
			}
		}

		checked = append(checked, func() (*Deployment, error) {
			return deploy(ctx, c.Config, c.Plan, api, report, opts...)
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

func deploy(ctx *pulumi.Context, c Config, p *plan.Plan, api Proxmox, report *preflight.Report,
	opts ...pulumi.ResourceOption,
) (*Deployment, error) {
	name := p.Cluster

	proxmox, err := proxmoxve.NewProvider(ctx, name+"-proxmox", proxmoxArgs(c, p.SSH), opts...)
	if err != nil {
		return nil, err
	}

	var secret pulumi.StringInput
	if p.SecretManifests {
		if secret, err = secretManifests(c, p); err != nil {
			return nil, err
		}
	}

	if p.Distribution == spec.DistributionK3s {
		cluster, err := components.NewK3sCluster(ctx, name, &components.K3sClusterArgs{
			Plan: p, Preflight: report, Proxmox: api, Destroying: c.Destroying,
			Token:    secretInput(c.K3sToken, c.Secrets.K3sToken),
			Identity: secretInput(c.K3sIdentity, c.Secrets.K3sIdentity),

			SecretManifests: secret,
			RegistryLogins:  secretInput(c.RegistryLogins, c.Secrets.RegistryLogins),
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
		Plan: p, Preflight: report, Proxmox: api, ProjectDir: c.Dir, Destroying: c.Destroying,
		BackupPassphrase: c.BackupPassphrase,
		TailscaleAuthKey: secretInput(c.TailscaleAuthKey, c.Secrets.TailscaleAuthKey),
		SecretManifests:  secret,
	}

	if p.RegistryLogins {
		args.RegistryLogins = secretInput(c.RegistryLogins, c.Secrets.RegistryLogins)
	}

	if p.ImportSecrets {
		args.MachineSecrets = secretInput(c.MachineSecrets, c.Secrets.MachineSecrets)
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
func secretManifests(c Config, p *plan.Plan) (pulumi.StringInput, error) {
	url := strings.TrimSuffix(strings.TrimSuffix(c.Proxmox.Endpoint, "/"), "/api2/json") + "/api2/json"

	own, err := manifests.ProxmoxLogins(p.Region, url, c.Proxmox.Insecure, c.CSIToken, c.CCMToken)
	if err != nil {
		return nil, err
	}

	if p.GitOps != nil && (p.GitOps.Key || p.GitOps.Age) {
		keys, err := manifests.RepositoryKeys(p.GitOps, c.GitOpsKey, c.AgeKey)
		if err != nil {
			return nil, err
		}

		own = joined(own, keys)
	}

	operators := secretInput(c.SecretManifests, c.Secrets.SecretManifests)
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
