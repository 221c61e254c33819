package components

import (
	"encoding/base64"
	"errors"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"go.yaml.in/yaml/v4"
)

// SecretsBundle is the machine secrets of a cluster as a Talos secrets bundle, the file that 'talosctl gen secrets' writes
// and other tools of Talos read. It is secret.
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
			errs = append(errs, errors.New("the machine secrets hold what is no base64"))
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
