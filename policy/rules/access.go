package rules

import (
	"net/netip"
	"net/url"
	"strings"

	"talos-proxmox/components/tokens"
)

func accessRules(b *builder) []Rule {
	return []Rule{
		perResource(b, Rule{
			Name:   "verify-tls",
			Must:   "Connections to Proxmox VE and downloads must be encrypted, and the server's certificate verified.",
			Remedy: "Give the host a trusted certificate, or trust its CA where Pulumi and the hosts run; loopback is skipped.",
		}, except{}, verifyTLS),
		perResource(b, Rule{
			Name:   "no-root-credentials",
			Must:   "Proxmox VE must not be used as root.",
			Remedy: "Make a user with the role of the README, and an API token for it; pass GPUs by resource mapping.",
		}, rootSettings{}, noRoot),
	}
}

func verifyTLS(_ except, r Resource) []Finding {
	var found []Finding

	add := func(path, rule, value, remedy string) { found = append(found, r.finding(path, rule, value, remedy)) }

	switch r.Type {
	case tokens.Proxmox:
		endpoint, err := url.Parse(text(r.at("endpoint")))
		if err != nil || loopback(endpoint.Hostname()) {
			return nil
		}

		if endpoint.Scheme == "http" {
			add("endpoint", "must begin with https://", endpoint.Redacted(), "use the port that Proxmox VE serves TLS on, 8006")
		}

		if is(r.at("insecure"), true) {
			add("insecure", "must be false", "true", "give the host a trusted certificate, or trust its CA where Pulumi runs")
		}

		if v := text(r.at("minTls")); v == "1.0" || v == "1.1" {
			add("minTls", "must be at least 1.2", v, "leave it out")
		}
	case tokens.File:
		if is(r.at("sourceFile", "insecure"), true) {
			add("sourceFile.insecure", "must be false", "true", "trust the server's CA where Pulumi runs")
		}
	case tokens.Download:
		if is(r.at("verify"), false) {
			add("verify", "must be true", "false", "trust the server's CA on the hosts")
		}
	}

	return found
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)

	return host == "localhost" || err == nil && a.IsLoopback()
}

type rootSettings struct {
	except
	AllowSSH bool `json:"allowSSH" jsonschema_description:"Let the provider log in to the hosts as root by SSH."`
}

func noRoot(s rootSettings, r Resource) []Finding {
	if r.Type != tokens.Proxmox {
		return nil
	}

	var found []Finding

	if user := text(r.at("username")); isRoot(user) {
		found = append(found, r.finding("username", "must not be root", user,
			"use an API token of a user that has only the role it needs"))
	}

	// What follows the = is secret.
	if id, _, _ := strings.Cut(text(r.at("apiToken")), "="); isRoot(id) {
		found = append(found, r.finding("apiToken", "must not be a token of root", id,
			"make one for a user that has only the role it needs"))
	}

	if user := text(r.at("ssh", "username")); user == "root" && !s.AllowSSH {
		found = append(found, r.finding("ssh.username", "must not be root", user,
			"use one that may run the provider's commands with sudo, or set allowSSH"))
	}

	return found
}

// isRoot knows root in any realm, and its tokens: root@pam!name.
func isRoot(user string) bool { return user == "root" || strings.HasPrefix(user, "root@") }
