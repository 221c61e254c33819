package components

import (
	"errors"
	"fmt"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/k3sconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/tokens"
	"talos-proxmox/components/wait"
)

// k3sIdentity is the identity of a K3s cluster, and the administrator's certificate that it has issued. The state keeps
// both.
type k3sIdentity struct {
	plan *plan.Plan
	// keeps is the resource that keeps the identity, issued the one that keeps the administrator's certificate.
	keeps, issued *pulumi.Stash
	// identity is what k3sconfig.ReadIdentity reads, administrator what ReadAdministrator reads. Both are secret.
	identity, administrator pulumi.StringOutput
	// known is the identity, and anyServer a kubeconfig that names no server in particular, as hooks read them.
	known     *wait.Future[k3sconfig.Identity]
	anyServer *wait.Future[string]
}

// newK3sIdentity creates the identity of a cluster, or takes it from a token or the files of an existing server. The
// state keeps the first: what later runs generate is dropped.
func newK3sIdentity(ctx *pulumi.Context, name string, p *plan.Plan, token, existing pulumi.StringInput,
	parent pulumi.ResourceOption,
) (*k3sIdentity, error) {
	now := time.Now()
	id := &k3sIdentity{
		plan: p, known: wait.NewFuture[k3sconfig.Identity](), anyServer: wait.NewFuture[string](),
	}

	made, err := k3sconfig.NewIdentity(p.Cluster, now)
	if err != nil {
		return nil, err
	}

	k := p.K3s

	if token == nil {
		token = pulumi.String("")
	}

	if existing == nil {
		existing = pulumi.String("")
	}

	text := pulumi.All(token, existing).ApplyT(func(both []any) (string, error) {
		first := made

		if given := both[0].(string); given != "" {
			if err := k3sconfig.CheckToken(given); err != nil {
				return "", fmt.Errorf("k3sToken: %w", err)
			}

			first.Token = given
		}

		if files := both[1].(string); files != "" {
			var err error
			if first, err = k3sconfig.ReadServerFiles(files); err != nil {
				return "", fmt.Errorf("k3sIdentity: %w", err)
			}

			first.SSH = made.SSH
		}

		first.ClusterCIDR, first.ServiceCIDR = k.Pods.String(), k.Services.String()

		return first.Text()
	}).(pulumi.StringOutput)

	// Without it a cluster is as lost as without its servers.
	id.keeps, err = newSecretStash(ctx, name+tokens.IdentitySuffix, text, parent, pulumi.Protect(p.Protected()))
	if err != nil {
		return nil, err
	}

	known := pulumi.All(stashedText(id.keeps), token, existing)
	id.identity = pulumi.ToSecret(known.ApplyT(func(all []any) (string, error) {
		kept := all[0].(string)

		return kept, errors.Join(sameNetworks(kept, k), sameToken(kept, all[1].(string)), sameIdentity(kept, all[2].(string)))
	})).(pulumi.StringOutput)

	if id.issued, err = newAdministrator(ctx, name, id.identity, id.keeps, now, parent); err != nil {
		return nil, err
	}

	id.administrator = pulumi.ToSecret(stashedText(id.issued)).(pulumi.StringOutput)

	pulumi.All(id.identity, id.administrator).ApplyT(func(both []any) error {
		text, err := kubeconfig(p.Cluster, both[0].(string), both[1].(string), "https://server:6443")
		if err != nil {
			return err
		}

		id.anyServer.Set(text)

		identity, err := k3sconfig.ReadIdentity(both[0].(string))
		if err == nil {
			id.known.Set(identity)
		}

		return err
	})

	return id, nil
}

// resources keep the identity: what acts on a running node needs them.
func (id *k3sIdentity) resources() []pulumi.Resource { return []pulumi.Resource{id.keeps, id.issued} }

// sameToken checks that the token is the one that the cluster began with. Servers that run know no other, and K3s has
// encrypted with it what they share.
func sameToken(identity, token string) error {
	i, err := k3sconfig.ReadIdentity(identity)
	if err != nil || token == "" || i.Token == token {
		return err
	}

	return spec.Problems{{
		Path: "k3sToken", Rule: "must stay as it was when the cluster was created: its servers accept no other token",
		Remedy: "run 'pulumi config rm k3sToken': the state has the token; a different token needs a new cluster",
	}}
}

// sameIdentity checks that the files of a server are of the cluster that the state knows.
func sameIdentity(identity, files string) error {
	if files == "" {
		return nil
	}

	kept, err := k3sconfig.ReadIdentity(identity)
	if err != nil {
		return err
	}

	given, err := k3sconfig.ReadServerFiles(files)
	if err != nil || kept.Same(given) {
		return err
	}

	return spec.Problems{{
		Path: "k3sIdentity", Rule: "belongs to a different cluster than the one in the state, whose servers accept " +
			"no other identity",
		Remedy: "run 'pulumi config rm k3sIdentity': the state has the identity",
	}}
}

// sameNetworks checks that the networks are those that the cluster was made with: its services and nodes have addresses
// of them.
func sameNetworks(identity string, k *plan.PlannedK3s) error {
	i, err := k3sconfig.ReadIdentity(identity)
	if err != nil {
		return err
	}

	var problems spec.Problems

	hold := func(path, kept, now string) {
		if kept != now {
			problems.Add(path, "must stay as it was when the cluster was created: its nodes and services have "+
				"addresses from this network",
				now, "set "+kept+"; a different network needs a new cluster")
		}
	}

	pods, services := i.Networks()
	hold("k3s.clusterCIDR", pods, k.Pods.String())
	hold("k3s.serviceCIDR", services, k.Services.String())

	return problems.Err()
}

// sshPrivateKey logs in to the nodes, secret; empty where none is generated.
func (id *k3sIdentity) sshPrivateKey() pulumi.StringOutput {
	return pulumi.ToSecret(id.identity.ApplyT(func(text string) (string, error) {
		i, err := k3sconfig.ReadIdentity(text)
		if !id.plan.K3s.GenerateSSHKey {
			i.SSH.Private = ""
		}

		return i.SSH.Private, err
	})).(pulumi.StringOutput)
}

// newAdministrator keeps the administrator's certificate that the identity of a K3s cluster issues. The first update
// of each half year issues another one.
func newAdministrator(ctx *pulumi.Context, name string, identity pulumi.StringOutput, keeps *pulumi.Stash,
	now time.Time, parent pulumi.ResourceOption,
) (*pulumi.Stash, error) {
	issued := identity.ApplyT(func(text string) (string, error) {
		i, err := k3sconfig.ReadIdentity(text)
		if err != nil {
			return "", err
		}

		return i.Administrator(now)
	}).(pulumi.StringOutput)

	return newSecretStash(ctx, name+tokens.AdministratorSuffix, issued, parent,
		// Another authority would not know it.
		pulumi.ReplaceWith([]pulumi.Resource{keeps}), pulumi.ReplacementTrigger(pulumi.String(k3sconfig.Term(now))))
}

// kubeconfig is an administrator's.
func kubeconfig(cluster, identity, administrator, endpoint string) (string, error) {
	i, err := k3sconfig.ReadIdentity(identity)
	if err != nil {
		return "", err
	}

	pair, err := k3sconfig.ReadAdministrator(administrator)
	if err != nil {
		return "", err
	}

	return i.Kubeconfig(cluster, endpoint, pair)
}

// kubeconfigOutput is the administrator's for an endpoint, secret. No node has to answer for it.
func kubeconfigOutput(cluster string, identity, administrator, endpoint pulumi.StringOutput) pulumi.StringOutput {
	return pulumi.ToSecret(pulumi.All(identity, administrator, endpoint).ApplyT(func(all []any) (string, error) {
		return kubeconfig(cluster, all[0].(string), all[1].(string), all[2].(string))
	})).(pulumi.StringOutput)
}

// kubeconfigExpiry is when the administrator's certificate expires.
func kubeconfigExpiry(administrator pulumi.StringOutput) pulumi.StringOutput {
	return pulumi.Unsecret(administrator.ApplyT(func(text string) (string, error) {
		administrator, err := k3sconfig.ReadAdministrator(text)
		if err != nil {
			return "", err
		}

		return administrator.NotAfter()
	})).(pulumi.StringOutput)
}
