package components

import (
	"encoding/base64"
	"errors"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/cluster"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/tools/clientcmd"

	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/tokens"
)

// machineSecrets are the machine secrets of a cluster, and what is made with them. All but the contract is secret.
type machineSecrets struct {
	machine machine.MachineSecretsOutput
	// administrator holds credentials for the Talos API.
	administrator machine.ClientConfigurationOutput
	// contract is the Talos version that the cluster was created with.
	contract pulumi.StringOutput
	// resources keep the secrets in the state; none where they are imported.
	resources []pulumi.Resource
}

// newMachineSecrets generates the machine secrets of a cluster and keeps them in the state, or imports a secrets
// bundle; nil: none.
func newMachineSecrets(
	ctx *pulumi.Context, name string, p *plan.Plan, bundle pulumi.StringInput, child pulumi.ResourceOption,
) (machineSecrets, error) {
	if bundle != nil {
		imported, credentials := importSecrets(bundle)

		// Nothing else keeps the version that the cluster was imported with.
		kept, err := pulumi.NewStash(ctx, name+tokens.ContractSuffix,
			&pulumi.StashArgs{Input: pulumi.String(p.ContractVersion())}, child)
		if err != nil {
			return machineSecrets{}, err
		}

		return machineSecrets{machine: imported, administrator: credentials, contract: stashedText(kept)}, nil
	}

	// Without its secrets a cluster is as lost as without its control planes.
	generated, err := machine.NewSecrets(ctx, name+tokens.SecretsSuffix,
		&machine.SecretsArgs{TalosVersion: pulumi.String(p.ContractVersion())}, child,
		pulumi.AdditionalSecretOutputs([]string{"machineSecrets", "clientConfiguration"}),
		// An older version here would replace the identity of the cluster, a newer one change its contract.
		pulumi.IgnoreChanges([]string{"talosVersion"}),
		pulumi.Protect(p.Protected()))
	if err != nil {
		return machineSecrets{}, err
	}

	return machineSecrets{
		machine:       pulumi.ToSecret(generated.MachineSecrets).(machine.MachineSecretsOutput),
		administrator: secretClient(generated.ClientConfiguration),
		contract:      generated.TalosVersion,
		resources:     []pulumi.Resource{generated},
	}, nil
}

// SecretsBundle is the machine secrets of a cluster as a Talos secrets bundle, the file that 'talosctl gen secrets'
// writes and other tools of Talos read. It is secret.
func SecretsBundle(s machine.MachineSecretsOutput) pulumi.StringOutput {
	return pulumi.ToSecret(s).(machine.MachineSecretsOutput).ApplyT(func(s machine.MachineSecrets) (string, error) {
		bundle, err := bundleOf(s)
		if err != nil {
			return "", err
		}

		text, err := yaml.Marshal(bundle)

		return string(text), err
	}).(pulumi.StringOutput)
}

func bundleOf(s machine.MachineSecrets) (*secrets.Bundle, error) {
	var errs []error

	// The provider holds what it had from a bundle: PEM in base64.
	decoded := func(text string) []byte {
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			errs = append(errs, errors.New("the machine secrets hold what is not base64"))
		}

		return data
	}

	pair := func(c machine.Certificate) *x509.PEMEncodedCertificateAndKey {
		return &x509.PEMEncodedCertificateAndKey{Crt: decoded(c.Cert), Key: decoded(c.Key)}
	}

	bundle := &secrets.Bundle{
		Cluster:    &secrets.Cluster{ID: s.Cluster.Id, Secret: s.Cluster.Secret},
		TrustdInfo: &secrets.TrustdInfo{Token: s.Trustdinfo.Token},
		Secrets: &secrets.Secrets{
			BootstrapToken: s.Secrets.BootstrapToken, SecretboxEncryptionSecret: s.Secrets.SecretboxEncryptionSecret,
		},
		Certs: &secrets.Certs{
			Etcd: pair(s.Certs.Etcd), K8s: pair(s.Certs.K8s), K8sAggregator: pair(s.Certs.K8sAggregator), OS: pair(s.Certs.Os),
			K8sServiceAccount: &x509.PEMEncodedKey{Key: decoded(s.Certs.K8sServiceaccount.Key)},
		},
	}

	if old := s.Secrets.AescbcEncryptionSecret; old != nil {
		bundle.Secrets.AESCBCEncryptionSecret = *old
	}

	return bundle, errors.Join(errs...)
}

// importSecrets reads a secrets bundle into the provider's form, and makes an administrator's credentials of it. Both
// are secret.
func importSecrets(bundle pulumi.StringInput) (machine.MachineSecretsOutput, machine.ClientConfigurationOutput) {
	text := pulumi.ToSecret(bundle.ToStringOutput()).(pulumi.StringOutput)

	secrets := text.ApplyT(func(text string) (machine.MachineSecrets, error) {
		s, err := machineconfig.ReadSecrets(text)
		if err != nil {
			return machine.MachineSecrets{}, err
		}

		return heldOf(s), nil
	}).(machine.MachineSecretsOutput)

	credentials := text.ApplyT(func(text string) (machine.ClientConfiguration, error) {
		s, err := machineconfig.ReadSecrets(text)
		if err != nil {
			return machine.ClientConfiguration{}, err
		}

		c, err := s.Client(time.Now())

		return machine.ClientConfiguration{CaCertificate: c.CA, ClientCertificate: c.Certificate, ClientKey: c.Key}, err
	}).(machine.ClientConfigurationOutput)

	return secrets, credentials
}

// etcdEncryption is the patch of control planes that says with what etcd's content is encrypted, secret.
func etcdEncryption(s machine.MachineSecretsOutput) pulumi.StringOutput {
	return pulumi.ToSecret(s).(machine.MachineSecretsOutput).ApplyT(func(s machine.MachineSecrets) (string, error) {
		var aesCBC string
		if old := s.Secrets.AescbcEncryptionSecret; old != nil {
			aesCBC = *old
		}

		return machineconfig.EtcdEncryption(s.Secrets.SecretboxEncryptionSecret, aesCBC)
	}).(pulumi.StringOutput)
}

// heldOf is a bundle as the provider holds it.
func heldOf(s machineconfig.Secrets) machine.MachineSecrets {
	pair := func(p machineconfig.KeyPair) machine.Certificate {
		return machine.Certificate{Cert: p.Certificate, Key: p.Key}
	}
	held := machine.MachineSecrets{
		Certs: machine.Certificates{
			Etcd: pair(s.Etcd), K8s: pair(s.Kubernetes), K8sAggregator: pair(s.Aggregator), Os: pair(s.OS),
			K8sServiceaccount: machine.Key{Key: s.ServiceAccountKey},
		},
		Cluster:    machine.Cluster{Id: s.ClusterID, Secret: s.ClusterSecret},
		Trustdinfo: machine.TrustdInfo{Token: s.TrustdToken},
		Secrets: machine.KubernetesSecrets{
			BootstrapToken:            s.BootstrapToken,
			SecretboxEncryptionSecret: s.SecretboxEncryptionSecret,
		},
	}

	if s.AESCBCEncryptionSecret != "" {
		held.Secrets.AescbcEncryptionSecret = &s.AESCBCEncryptionSecret
	}

	return held
}

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

// kubeconfigAt is a kubeconfig with the endpoint that the cluster has now. The one of the state keeps the endpoint of
// the time when it was fetched.
func kubeconfigAt(kubeconfig, endpoint pulumi.StringOutput) pulumi.StringOutput {
	return pulumi.All(kubeconfig, endpoint).ApplyT(func(both []any) (string, error) {
		raw, endpoint := both[0].(string), both[1].(string)

		config, err := clientcmd.Load([]byte(raw))
		if err != nil {
			return "", errors.New("the kubeconfig of the state cannot be read")
		}

		same := true

		for _, cluster := range config.Clusters {
			same = same && cluster.Server == endpoint
			cluster.Server = endpoint
		}

		if same {
			return raw, nil
		}

		moved, err := clientcmd.Write(*config)

		return string(moved), err
	}).(pulumi.StringOutput)
}

// expiry is when a client certificate (PEM in base64, as the provider holds it) ends, as RFC 3339 writes it. That is no
// secret.
func expiry(certificate pulumi.StringPtrOutput) pulumi.StringPtrOutput {
	end := certificate.ApplyT(func(text *string) (*string, error) {
		if text == nil || *text == "" {
			return nil, nil //nolint:nilnil // no certificate has no end
		}

		at, err := notAfter(*text)

		return &at, err
	}).(pulumi.StringPtrOutput)

	return pulumi.Unsecret(end).(pulumi.StringPtrOutput)
}

func notAfter(text string) (string, error) {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return "", errors.New("a client certificate is not base64")
	}

	c, err := (&x509.PEMEncodedCertificateAndKey{Crt: data}).GetCert()
	if err != nil {
		return "", errors.New("a client certificate cannot be read")
	}

	return c.NotAfter.UTC().Format(time.RFC3339), nil
}

// secretClient marks the cluster's credentials, whatever the provider says of them.
func secretClient(c machine.ClientConfigurationOutput) machine.ClientConfigurationOutput {
	return pulumi.ToSecret(c).(machine.ClientConfigurationOutput)
}
