package components

import (
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/k3sconfig"
	"talos-proxmox/components/tokens"
)

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
