package components

import (
	"encoding/base64"
	"errors"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/siderolabs/crypto/x509"
)

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
