package rules

import (
	"crypto/x509"
	"encoding/base64"
	pemfile "encoding/pem"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/property"

	"talos-proxmox/components/tokens"
)

func certificateRules(b *builder) []Rule {
	return []Rule{
		perStack(b, Rule{
			Name: "certificate-validity",
			Must: "Certificates in the state must not be about to expire: administrators then lose access, and the " +
				"cluster stops when its authorities expire.",
			Remedy: "Update the stack in the last month of a credential, which renews it; rotate authorities.",
			Advice: true,
		}, validity{CredentialDays: 45, AuthorityDays: 180}, certificateValidity),
	}
}

type validity struct {
	except
	CredentialDays int `json:"credentialDays" jsonschema_description:"Days that a client certificate must have left."`
	AuthorityDays  int `json:"authorityDays" jsonschema_description:"Days that a certificate authority must have left."`
}

func certificateValidity(v validity, s Stack) []Finding {
	var (
		found []Finding
		now   = time.Now()
		seen  = map[string]bool{}
	)

	for _, token := range []string{tokens.Secrets, tokens.Kubeconfig, tokens.Stash} {
		for _, r := range s.ofType(token) {
			eachCertificate(r.at(), "", func(path string, c *x509.Certificate) {
				days, remedy := v.CredentialDays, "update the stack in its last month, which renews it"
				if c.IsCA {
					days, remedy = v.AuthorityDays, "rotate the authority"
				}

				// Several resources hold the same one.
				if id := string(c.Raw); !seen[id] && c.NotAfter.Before(now.AddDate(0, 0, days)) {
					seen[id] = true
					found = append(found, r.finding(path, fmt.Sprintf("must be valid for %d more days", days),
						"ends "+c.NotAfter.UTC().Format(time.DateOnly), remedy))
				}
			})
		}
	}

	return found
}

// eachCertificate visits the certificates in a value, secret or not, in a stable order.
func eachCertificate(v property.Value, path string, visit func(path string, c *x509.Certificate)) {
	switch {
	case v.IsString():
		for _, c := range certificatesIn(v.AsString()) {
			visit(path, c)
		}
	case v.IsArray():
		for i, item := range v.AsArray().AsSlice() {
			eachCertificate(item, fmt.Sprintf("%s[%d]", path, i), visit)
		}
	case v.IsMap():
		for name, item := range v.AsMap().AllStable {
			eachCertificate(item, strings.TrimPrefix(path+"."+name, "."), visit)
		}
	}
}

var plainPEM = regexp.MustCompile(`(?s)-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----`)

// certificatesIn reads PEM, also inside JSON, and in base64 as Talos writes it. What is none is passed over.
func certificatesIn(text string) []*x509.Certificate {
	for _, encoded := range encodedPEM.FindAllString(text, -1) {
		plain, _ := base64.RawStdEncoding.DecodeString(encoded)
		text += "\n" + string(plain)
	}

	var found []*x509.Certificate

	for _, block := range plainPEM.FindAllString(strings.ReplaceAll(text, `\n`, "\n"), -1) {
		decoded, _ := pemfile.Decode([]byte(block))
		if decoded == nil {
			continue
		}

		if c, err := x509.ParseCertificate(decoded.Bytes); err == nil {
			found = append(found, c)
		}
	}

	return found
}
