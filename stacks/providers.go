package stacks

import (
	"maps"
	"slices"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

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

func proxmoxArgs(c Config, ssh *spec.SSH) *proxmoxve.ProviderArgs {
	args := &proxmoxve.ProviderArgs{
		Endpoint: pulumi.String(c.Proxmox.Endpoint),
		Insecure: pulumi.Bool(c.Proxmox.Insecure),
	}

	if c.Proxmox.TokenID != "" {
		token := pulumi.String(c.Proxmox.TokenID + "=" + c.ProxmoxTokenSecret)
		args.ApiToken = pulumi.ToSecret(token).(pulumi.StringOutput)
	} else {
		args.Username = pulumi.String(c.Proxmox.Username)
		args.Password = pulumi.ToSecret(pulumi.String(c.ProxmoxPassword)).(pulumi.StringOutput)
	}

	if ssh != nil {
		args.Ssh = sshArgs(c, ssh)
	}

	return args
}

// sshArgs are the login for the import of disk images. Nothing of the operator's own SSH configuration is used.
func sshArgs(c Config, ssh *spec.SSH) proxmoxve.ProviderSshArgs {
	nodes := proxmoxve.ProviderSshNodeArray{}
	for _, name := range slices.Sorted(maps.Keys(ssh.Addresses)) {
		nodes = append(nodes, proxmoxve.ProviderSshNodeArgs{
			Name: pulumi.String(name), Address: pulumi.String(ssh.Addresses[name]), Port: pulumi.Int(ssh.Port),
		})
	}

	return proxmoxve.ProviderSshArgs{
		Agent: pulumi.Bool(false), Username: pulumi.String(ssh.Username), Nodes: nodes,
		PrivateKey: pulumi.ToSecret(pulumi.String(c.SSHPrivateKey)).(pulumi.StringOutput),
	}
}
