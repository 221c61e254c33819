package components

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/k3sconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// identify makes what the cluster is known by, the first time, and has the state keep it: what is made in later runs is
// dropped.
func (b *k3sBuilder) identify(token, existing pulumi.StringInput) error {
	now := time.Now()

	made, err := k3sconfig.NewIdentity(b.Plan.Cluster, now)
	if err != nil {
		return err
	}

	k := b.Plan.K3s

	if token == nil {
		token = pulumi.String("")
	}

	if existing == nil {
		existing = pulumi.String("")
	}

	text := pulumi.All(token, existing).ApplyT(func(both []any) (string, error) {
		first := made
		first.Token = cmp.Or(both[0].(string), made.Token)

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
	b.kept, err = b.stash("identity", text, pulumi.Protect(b.Plan.Protected()))
	if err != nil {
		return err
	}

	b.identity = pulumi.ToSecret(pulumi.All(keptText(b.kept), token, existing).ApplyT(func(all []any) (string, error) {
		kept := all[0].(string)

		return kept, errors.Join(sameNetworks(kept, k), sameToken(kept, all[1].(string)), sameIdentity(kept, all[2].(string)))
	})).(pulumi.StringOutput)

	issued := b.identity.ApplyT(func(text string) (string, error) {
		i, err := k3sconfig.ReadIdentity(text)
		if err != nil {
			return "", err
		}

		return i.Administrator(now)
	}).(pulumi.StringOutput)

	administrator, err := b.stash("administrator", issued,
		// Another authority would not know it.
		pulumi.ReplaceWith([]pulumi.Resource{b.kept}), pulumi.ReplacementTrigger(pulumi.String(k3sconfig.Term(now))))
	if err != nil {
		return err
	}

	b.issued, b.administrator = administrator, keptText(administrator)

	pulumi.All(b.identity, b.administrator).ApplyT(func(both []any) error {
		text, err := kubeconfig(b.Plan.Cluster, both[0].(string), both[1].(string), "https://server:6443")
		if err != nil {
			return err
		}

		b.admin.Set(text)

		identity, err := k3sconfig.ReadIdentity(both[0].(string))
		if err == nil {
			b.secrets.Set(identity)
		}

		return err
	})

	return nil
}

// sameToken holds that the token is the one that the cluster began with. Servers that run know no other, and K3s has
// encrypted with it what they share.
func sameToken(identity, token string) error {
	i, err := k3sconfig.ReadIdentity(identity)
	if err != nil || token == "" || i.Token == token {
		return err
	}

	return spec.Problems{{
		Path: "k3sToken", Rule: "must stay as it was when the cluster was made: its servers accept no other",
		Remedy: "run 'pulumi config rm k3sToken', for the state keeps the token; a cluster with another is a new one",
	}}
}

// sameIdentity holds that the files of a server are of the cluster that the state knows.
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
		Path: "k3sIdentity", Rule: "is of another cluster than the state: its servers accept no other identity",
		Remedy: "run 'pulumi config rm k3sIdentity', for the state keeps the identity",
	}}
}

// sameNetworks holds that the networks are those that the cluster was made with: its services and nodes have addresses
// of them.
func sameNetworks(identity string, k *plan.PlannedK3s) error {
	i, err := k3sconfig.ReadIdentity(identity)
	if err != nil {
		return err
	}

	var problems spec.Problems

	hold := func(path, kept, now string) {
		if kept != now {
			problems.Add(path, "must stay as it was when the cluster was made: its nodes and services have addresses of it",
				now, "state "+kept+"; a cluster with another is a new one")
		}
	}

	pods, services := i.Networks()
	hold("k3s.clusterCIDR", pods, k.Pods.String())
	hold("k3s.serviceCIDR", services, k.Services.String())

	return problems.Err()
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

// stash keeps a secret text in state: the one that was there first.
func (b *k3sBuilder) stash(name string, text pulumi.StringInput, opts ...pulumi.ResourceOption) (*pulumi.Stash, error) {
	return pulumi.NewStash(b.ctx, b.name+"-"+name, &pulumi.StashArgs{Input: pulumi.ToSecret(text)}, append(opts, b.child,
		pulumi.IgnoreChanges([]string{"input"}), pulumi.AdditionalSecretOutputs([]string{"input", "output"}))...)
}

func keptText(s *pulumi.Stash) pulumi.StringOutput {
	return pulumi.ToSecret(s.Output.ApplyT(func(value any) (string, error) {
		text, ok := value.(string)
		if !ok {
			return "", errors.New("what the state keeps is no text")
		}

		return text, nil
	})).(pulumi.StringOutput)
}

// credentials writes the kubeconfig, for which no node has to answer.
func (b *k3sBuilder) credentials() {
	b.Kubeconfig = pulumi.ToSecret(pulumi.All(b.identity, b.administrator,
		b.Endpoint).ApplyT(func(all []any) (string, error) {
		return kubeconfig(b.Plan.Cluster, all[0].(string), all[1].(string), all[2].(string))
	})).(pulumi.StringOutput)

	b.KubeconfigExpiry = pulumi.Unsecret(b.administrator.ApplyT(func(text string) (string, error) {
		administrator, err := k3sconfig.ReadAdministrator(text)
		if err != nil {
			return "", err
		}

		return administrator.NotAfter()
	})).(pulumi.StringOutput)

	b.SSHPrivateKey = pulumi.ToSecret(b.identity.ApplyT(func(text string) (string, error) {
		i, err := k3sconfig.ReadIdentity(text)
		if !b.Plan.K3s.GenerateSSHKey {
			i.SSH.Private = ""
		}

		return i.SSH.Private, err
	})).(pulumi.StringOutput)
}
