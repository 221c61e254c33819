package rules

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/property"

	"talos-proxmox/components/tokens"
)

func secretRules(b *builder) []Rule {
	return []Rule{
		perResource(b, Rule{
			Name:   "no-plain-secrets",
			Must:   "No input may hold a secret in plain text: it would be readable in the state.",
			Remedy: "Take the value from a secret configuration key, or wrap it in pulumi.ToSecret.",
		}, except{}, func(_ except, r Resource) []Finding { return plainSecrets(r) }),
		perStack(b, Rule{
			Name:   "no-plain-outputs",
			Must:   "No output of the stack may hold a secret in plain text.",
			Remedy: "Wrap the value in pulumi.ToSecret before it is exported.",
		}, except{}, func(_ except, s Stack) []Finding {
			var found []Finding
			for _, r := range s.ofType(tokens.Stack) {
				found = append(found, plainSecrets(r)...)
			}

			return found
		}),
	}
}

// plainSecrets looks at every text of a resource that is not marked secret. Values are never quoted.
func plainSecrets(r Resource) []Finding {
	var found []Finding

	walk(r.at(), "", func(path, key, value string) {
		if what := secretKind(key, value); what != "" {
			found = append(found, r.finding(path, "must be secret, for it holds "+what, "",
				"take it from a secret configuration key, or wrap it in pulumi.ToSecret"))
		}
	})

	return found
}

// walk visits every text that is not secret, in a stable order.
func walk(v property.Value, path string, visit func(path, key, value string)) {
	walkBelow(v, path, "", visit)
}

func walkBelow(v property.Value, path, key string, visit func(path, key, value string)) {
	switch {
	case v.Secret():
	case v.IsString():
		visit(path, key, v.AsString())
	case v.IsArray():
		for i, item := range v.AsArray().AsSlice() {
			walkBelow(item, fmt.Sprintf("%s[%d]", path, i), key, visit)
		}
	case v.IsMap():
		for name, item := range v.AsMap().AllStable {
			walkBelow(item, strings.TrimPrefix(path+"."+name, "."), name, visit)
		}
	}
}

// secretKeys are names of properties that hold nothing but a secret, without case and underscores.
var secretKeys = map[string]string{
	"password": "a password", "passphrase": "a passphrase", "socks5password": "a password", "otp": "a one-time password",
	"privatekey": "a private key", "clientkey": "a private key", "apitoken": "an API token", "tokensecret": "an API token",
	"authticket": "a login", "csrfpreventiontoken": "a login", "authkey": "an authentication key",
}

// secretFiles are names of properties that hold a whole file with secrets in it, where they do not hold its path.
var secretFiles = map[string]string{
	"kubeconfig": "a kubeconfig", "kubeconfigraw": "a kubeconfig", "talosconfig": "a talosconfig",
	"machineconfiguration": "a machine configuration", "machineconfigurationinput": "a machine configuration",
}

// secretForms are texts that hold a secret wherever they stand.
var secretForms = []struct {
	what string
	form *regexp.Regexp
}{
	{"a private key", privateKey},
	{
		"the secret of a Proxmox VE API token",
		regexp.MustCompile(`[^\s@!=]+@[^\s@!=]+![^\s@!=]+=[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`),
	},
	{"a Talos or Kubernetes token", regexp.MustCompile(`(?m)\btoken:\s*["']?[a-z0-9]{6}\.[a-z0-9]{16}\b`)},
	{"a Tailscale key", regexp.MustCompile(`\btskey-[a-z]+-\w+`)},
	{"an age key", regexp.MustCompile(`\bAGE-SECRET-KEY-1[0-9A-Z]{20,}`)},
	{"a GitHub token", regexp.MustCompile(`\b(gh[pousr]_\w{36}|github_pat_\w{36})`)},
	{"a Pulumi access token", regexp.MustCompile(`\bpul-[0-9a-f]{40}\b`)},
	{"the credentials of a registry", regexp.MustCompile(`(?m)^\s*auth:\s*\n\s+(username|password|auth|identityToken):`)},
}

var (
	privateKey = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----`)
	// encodedPEM is "-----BEGIN" in base64.
	encodedPEM = regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/]+`)
)

// secretKind says what secret a text is or holds; empty: none.
func secretKind(key, value string) string {
	if value == "" {
		return ""
	}

	key = strings.ToLower(strings.ReplaceAll(key, "_", ""))
	if what, ok := secretKeys[key]; ok {
		return what
	}

	if what, ok := secretFiles[key]; ok && strings.ContainsAny(value, "\n{") {
		return what
	}

	for _, s := range secretForms {
		if s.form.MatchString(value) {
			return s.what
		}
	}

	for _, encoded := range encodedPEM.FindAllString(value, -1) {
		// The label is in the beginning, so what is cut off at the end does not matter.
		plain, _ := base64.RawStdEncoding.DecodeString(encoded[:len(encoded)/4*4])
		if privateKey.Match(plain) {
			return "a private key"
		}
	}

	return ""
}
