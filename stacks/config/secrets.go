package config

import (
	"errors"
	"os"
	"regexp"
	"strings"

	"filippo.io/age"
	"golang.org/x/crypto/ssh"

	"talos-proxmox/components/k3sconfig"
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/machineconfig/manifests"
	"talos-proxmox/components/spec"
)

// keyVariable goes before the stack's tailscaleAuthKey.
const keyVariable = "HEADSCALE_AUTH_KEY"

// takeKeyFromEnvironment takes the key of the tailnet from the environment, for a stack that has a tailnet.
func takeKeyFromEnvironment(values map[string]string) {
	if key := os.Getenv(keyVariable); key != "" && values["tailscale"] != "" {
		values["tailscaleAuthKey"] = key
	}
}

// Placeholder takes the place of a secret that is encrypted in the file, or is not in it at all.
const Placeholder = "00000000-0000-0000-0000-000000000000"

// SecretKeys are the keys of Config that are secret.
var SecretKeys = []string{
	"proxmoxTokenSecret", "proxmoxPassword", "sshPrivateKey", "k3sToken", "k3sIdentity", "machineSecrets",
	"tailscaleAuthKey", "backupPassphrase", "secretManifests", "registryLogins", "csiToken", "ccmToken",
	"gitOpsKey", "ageKey",
}

// PlainSecrets are the secrets among values that are in plain text, where everyone reads them who reads the stack's
// file. encrypted says it of a key.
func PlainSecrets(values map[string]string, encrypted func(key string) bool) spec.Problems {
	var ps spec.Problems

	for _, key := range SecretKeys {
		if values[key] != "" && !encrypted(key) {
			ps.Add(key, "is in plain text in the stack's file", "",
				"run: pulumi config set --secret "+key+", with a new secret if others have seen the file")
		}
	}

	return ps
}

// printable is what keys are made of.
var printable = regexp.MustCompile(`^[!-~]+$`)

// fullToken is an API token with its secret, as Proxmox VE writes it.
var fullToken = regexp.MustCompile(`^[^\s@!=]+@[^\s@!=]+![^\s@!=]+=[a-zA-Z0-9-]+$`)

// checkSecrets holds the form of secrets that are used as they are. No secret is ever quoted.
func (c Config) checkSecrets() spec.Problems {
	var ps spec.Problems

	if key := c.TailscaleAuthKey; key != "" && !printable.MatchString(key) {
		ps.Add("tailscaleAuthKey", "does not look like a key: it contains spaces or non-ASCII characters", "",
			"run: pulumi config set --secret tailscaleAuthKey, or correct "+keyVariable)
	}

	if key := c.SSHPrivateKey; key != "" && key != Placeholder {
		var locked *ssh.PassphraseMissingError

		switch _, err := ssh.ParseRawPrivateKey([]byte(key)); {
		case errors.As(err, &locked):
			ps.Add("sshPrivateKey", "is locked with a passphrase, which the program cannot enter", "",
				"make a key for this program alone, without one")
		case err != nil:
			ps.Add("sshPrivateKey", "is not a private key of OpenSSH", "",
				"run: pulumi config set --secret sshPrivateKey < ~/.ssh/<key>")
		}
	}

	if token := c.K3sToken; token != "" && token != Placeholder {
		if err := k3sconfig.CheckToken(token); err != nil {
			ps.Add("k3sToken", err.Error(), "", "run: openssl rand -hex 32 | pulumi config set --secret k3sToken")
		}
	}

	if files := c.K3sIdentity; files != "" && files != Placeholder {
		if _, err := k3sconfig.ReadServerFiles(files); err != nil {
			ps.Add("k3sIdentity", "must be the files of a K3s server: "+err.Error(), "",
				"read them again, as stacks/docs/recovery.md says")
		}
	}

	if c.K3sIdentity != "" && c.K3sToken != "" {
		ps.Add("k3sIdentity", "excludes k3sToken: it holds the token", "", "run: pulumi config rm k3sToken")
	}

	if text := c.SecretManifests; text != "" && text != Placeholder {
		if rule := manifests.Wrong(text); rule != "" {
			ps.Add("secretManifests", "must be Kubernetes manifests: "+rule, "",
				"run: pulumi config set --secret secretManifests < secrets.yaml")
		}
	}

	if text := c.RegistryLogins; text != "" && text != Placeholder {
		if _, err := spec.ReadRegistryLogins(text); err != nil {
			ps.Add("registryLogins", "must be logins of registries: "+err.Error(), "",
				"run: pulumi config set --secret registryLogins < logins.yaml")
		}
	}

	ps = append(ps, c.checkRepositoryKeys()...)

	for _, t := range []struct{ key, token string }{{"csiToken", c.CSIToken}, {"ccmToken", c.CCMToken}} {
		if t.token != "" && t.token != Placeholder && !fullToken.MatchString(t.token) {
			ps.Add(t.key, "must have the form user@realm!name=secret", "", "run: pulumi config set --secret "+t.key)
		}
	}

	if c.MachineSecrets != "" && c.MachineSecrets != Placeholder {
		if _, err := machineconfig.ReadSecrets(c.MachineSecrets); err != nil {
			ps.Add("machineSecrets", "must be a Talos secrets bundle: "+err.Error(), "",
				"run: pulumi config set --secret machineSecrets < secrets.yaml")
		}
	}

	return ps
}

// checkRepositoryKeys holds the form of the keys of cluster.gitOps.
func (c Config) checkRepositoryKeys() spec.Problems {
	var ps spec.Problems

	if key := c.GitOpsKey; key != "" && key != Placeholder && c.Cluster.GitOps != nil {
		_, err := ssh.ParseRawPrivateKey([]byte(key))

		switch overSSH := strings.HasPrefix(c.Cluster.GitOps.Repository, "ssh://"); {
		case overSSH && err != nil:
			ps.Add("gitOpsKey", "is not a private key of OpenSSH without a passphrase, which ssh:// needs", "",
				"run: pulumi config set --secret gitOpsKey < deploy-key")
		case !overSSH && !printable.MatchString(strings.TrimSpace(key)):
			ps.Add("gitOpsKey", "must be a token, or user:token, with a repository that is reached over https://", "",
				"run: pulumi config set --secret gitOpsKey")
		}
	}

	if key := c.AgeKey; key != "" && key != Placeholder {
		if _, err := age.ParseIdentities(strings.NewReader(key)); err != nil { // it may quote the key
			ps.Add("ageKey", "must be a private key of age, AGE-SECRET-KEY-1...", "",
				"run: age-keygen | pulumi config set --secret ageKey")
		}
	}

	return ps
}
