package stacks

import (
	"os"
	"regexp"

	"talos-proxmox/components/plan"
)

// keyVariable goes before the stack's tailscaleAuthKey.
const keyVariable = "HEADSCALE_AUTH_KEY"

// takeKeyFromEnvironment takes the key of the tailnet from the environment, for a stack that has a tailnet.
func takeKeyFromEnvironment(values map[string]string) {
	if key := os.Getenv(keyVariable); key != "" && values["tailscale"] != "" {
		values["tailscaleAuthKey"] = key
	}
}

// printable is what keys are made of.
var printable = regexp.MustCompile(`^[!-~]+$`)

// checkSecrets holds the form of secrets that are used as they are. No secret is ever quoted.
func (c Config) checkSecrets() plan.Problems {
	var ps plan.Problems

	if key := c.TailscaleAuthKey; key != "" && !printable.MatchString(key) {
		ps.Add("tailscaleAuthKey", "does not look like a key: it holds spaces or what is no ASCII", "",
			"run: pulumi config set --secret tailscaleAuthKey, or correct "+keyVariable)
	}

	return ps
}
