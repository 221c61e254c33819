package components

import (
	"errors"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/k3s"
	"talos-proxmox/components/spec"
)

// identify makes what the cluster is known by, the first time, and has the state keep it: what is made in later runs is
// dropped.
func (b *k3sBuilder) identify(token pulumi.StringInput) error {
	now := time.Now()

	made, err := k3s.NewIdentity(b.Plan.Cluster, now)
	if err != nil {
		return err
	}

	given := token != nil
	if !given {
		token = pulumi.String(made.Token)
	}

	text := token.ToStringOutput().ApplyT(func(token string) (string, error) {
		first := made
		first.Token = token

		return first.Text()
	}).(pulumi.StringOutput)

	// Without it a cluster is as lost as without its servers.
	b.kept, err = b.stash("identity", text, pulumi.Protect(b.Plan.Protected()))
	if err != nil {
		return err
	}

	b.identity = keptText(b.kept)

	if given {
		b.identity = pulumi.ToSecret(pulumi.All(b.identity, token).ApplyT(func(both []any) (string, error) {
			return both[0].(string), sameToken(both[0].(string), both[1].(string))
		})).(pulumi.StringOutput)
	}

	issued := b.identity.ApplyT(func(text string) (string, error) {
		i, err := k3s.ReadIdentity(text)
		if err != nil {
			return "", err
		}

		return i.Administrator(now)
	}).(pulumi.StringOutput)

	administrator, err := b.stash("administrator", issued,
		// Another authority would not know it.
		pulumi.ReplaceWith([]pulumi.Resource{b.kept}), pulumi.ReplacementTrigger(pulumi.String(k3s.Term(now))))
	if err != nil {
		return err
	}

	b.issued, b.administrator = administrator, keptText(administrator)

	pulumi.All(b.identity, b.administrator).ApplyT(func(both []any) error {
		text, err := kubeconfig(b.Plan.Cluster, both[0].(string), both[1].(string), "https://server:6443")
		if err == nil {
			b.admin.Set(text)
		}

		return err
	})

	return nil
}

// sameToken holds that the token is the one that the cluster began with. Servers that run know no other, and K3s has
// encrypted with it what they share.
func sameToken(identity, token string) error {
	i, err := k3s.ReadIdentity(identity)
	if err != nil || i.Token == token {
		return err
	}

	return spec.Problems{{
		Path: "k3sToken", Rule: "must stay as it was when the cluster was made: its servers accept no other",
		Remedy: "run 'pulumi config rm k3sToken', for the state keeps the token; a cluster with another is a new one",
	}}
}

// kubeconfig is an administrator's.
func kubeconfig(cluster, identity, administrator, endpoint string) (string, error) {
	i, err := k3s.ReadIdentity(identity)
	if err != nil {
		return "", err
	}

	pair, err := k3s.ReadAdministrator(administrator)
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

// credentials writes the kubeconfig, which needs nobody's answer.
func (b *k3sBuilder) credentials() {
	b.Kubeconfig = pulumi.ToSecret(pulumi.All(b.identity, b.administrator,
		b.Endpoint).ApplyT(func(all []any) (string, error) {
		return kubeconfig(b.Plan.Cluster, all[0].(string), all[1].(string), all[2].(string))
	})).(pulumi.StringOutput)

	b.KubeconfigExpiry = pulumi.Unsecret(b.administrator.ApplyT(func(text string) (string, error) {
		administrator, err := k3s.ReadAdministrator(text)
		if err != nil {
			return "", err
		}

		return administrator.NotAfter()
	})).(pulumi.StringOutput)

	b.SSHPrivateKey = pulumi.ToSecret(b.identity.ApplyT(func(text string) (string, error) {
		i, err := k3s.ReadIdentity(text)
		if !b.Plan.K3s.GenerateSSHKey {
			i.SSH.Private = ""
		}

		return i.SSH.Private, err
	})).(pulumi.StringOutput)
}
