package rules

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	pemfile "encoding/pem"
	"math/big"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	taloscluster "github.com/pulumiverse/pulumi-talos/sdk/go/talos/cluster"
)

// certificateWith has some days left.
func certificateWith(days int, authority bool) string {
	private := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	c := &x509.Certificate{
		SerialNumber: big.NewInt(int64(days)), IsCA: authority, BasicConstraintsValid: true,
		NotAfter: time.Now().AddDate(0, 0, days).Add(time.Hour),
	}

	der, err := x509.CreateCertificate(nil, c, c, private.Public(), private)
	if err != nil {
		panic(err)
	}

	return string(pemfile.EncodeToMemory(&pemfile.Block{Type: "CERTIFICATE", Bytes: der}))
}

func ends(days int) string {
	return "ends " + time.Now().AddDate(0, 0, days).Add(time.Hour).UTC().Format(time.DateOnly)
}

// credentialsOf is a program whose state holds an authority, in base64 as Talos' provider does, and a client
// certificate in JSON, as clusters of K3s do.
func credentialsOf(authority, client int) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error {
		ca := pulumi.String(base64.StdEncoding.EncodeToString([]byte(certificateWith(authority, true))))

		if _, err := taloscluster.NewKubeconfig(ctx, "kubeconfig", &taloscluster.KubeconfigArgs{
			Node: pulumi.String("10.0.0.11"),
			ClientConfiguration: taloscluster.KubeconfigClientConfigurationArgs{
				CaCertificate: ca, ClientCertificate: ca, ClientKey: pulumi.ToSecret(pulumi.String("KEY")).(pulumi.StringOutput),
			},
		}); err != nil {
			return err
		}

		text, err := json.Marshal(map[string]string{"certificate": certificateWith(client, false)})
		if err != nil {
			return err
		}

		_, err = pulumi.NewStash(ctx, "administrator", &pulumi.StashArgs{Input: pulumi.ToSecret(pulumi.String(text))})

		return err
	}
}

var certificateCases = []ruleCase{
	{rule: "certificate-validity", name: "long enough", program: credentialsOf(400, 50)},
	{
		rule: "certificate-validity", name: "an authority and a client certificate",
		program: credentialsOf(100, 10),
		want: []string{
			"kubeconfig.clientConfiguration.caCertificate: must be valid for 180 more days (given: " + ends(100) +
				"); rotate the authority",
			"administrator.input: must be valid for 45 more days (given: " + ends(10) +
				"); update the stack in its last month, which renews it",
		},
	},
	{
		rule: "certificate-validity", name: "other limits", settings: `{"credentialDays": 60, "authorityDays": 30}`,
		program: credentialsOf(100, 40),
		want: []string{
			"administrator.input: must be valid for 60 more days (given: " + ends(40) +
				"); update the stack in its last month, which renews it",
		},
	},
}
