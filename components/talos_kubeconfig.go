package components

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/cluster"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/tokens"
)

// newTalosKubeconfig fetches the kubeconfig of a cluster from its first control plane. The provider fetches another one
// in any update of the last month before it expires, or within lifecycle.kubeconfigRenewal.
func newTalosKubeconfig(ctx *pulumi.Context, name string, p *plan.Plan, credentials machine.ClientConfigurationOutput,
	first pulumi.StringOutput, opts ...pulumi.ResourceOption,
) (*cluster.Kubeconfig, error) {
	// Where nothing is set, the provider's default is no input.
	var renewal pulumi.StringPtrInput
	if p.KubeconfigRenewal > 0 {
		renewal = pulumi.String(p.KubeconfigRenewal.String())
	}

	return cluster.NewKubeconfig(ctx, name+tokens.KubeconfigSuffix, &cluster.KubeconfigArgs{
		ClientConfiguration: cluster.KubeconfigClientConfigurationArgs{
			CaCertificate:     credentials.CaCertificate(),
			ClientCertificate: credentials.ClientCertificate(),
			ClientKey:         credentials.ClientKey(),
		},
		Node: first, Endpoint: first, CertificateRenewalDuration: renewal,
		// It is never replaced: that it is in the state says that the cluster has been bootstrapped.
	}, append(opts, pulumi.AdditionalSecretOutputs(
		[]string{"kubeconfigRaw", "kubernetesClientConfiguration", "clientConfiguration"}))...)
}
