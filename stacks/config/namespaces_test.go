package config

import (
	"encoding/json"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"
)

// TestOtherNamespaces: a key that is called as one of ours and stands in another namespace is read by nothing, unless the
// policy pack or a provider of Pulumi has it.
func TestOtherNamespaces(t *testing.T) {
	given := map[string]string{
		"home:cluster": "{}", "homes:cluster": "{}", "talos:pools": "{}", "azure:network": "{}",
		"kubernetes:cluster": "home", "kubernetes:context": "home", "azure:environment": "public", "talos-proxmox-policy:environment": "lab",
		"talos-proxmox-policy:rules": "{}",
		"proxmoxve:endpoint":         "https://pve.lan:8006", "aws:region": "eu-central-1", "pulumi:tags": "{}",
	}

	text, err := json.Marshal(given)
	require.NoError(t, err)
	t.Setenv(pulumi.EnvConfig, string(text))

	failed := pulumi.RunErr(func(ctx *pulumi.Context) error {
		_, err = Load(ctx, t.TempDir())

		return nil
	}, pulumi.WithMocks("home", "lab", nothing{}), func(info *pulumi.RunInfo) { info.Config = given })
	require.NoError(t, failed)

	const lost = "has another namespace than home"

	for key, said := range map[string]string{
		"homes:cluster": " (given: homes); write home:cluster",
		"talos:pools":   " (given: talos); write home:pools",
		"azure:network": " (given: azure); write home:network",
	} {
		require.ErrorContains(t, err, key+": "+lost+said)
	}

	for _, key := range []string{"kubernetes:", "environment", "policy", "proxmoxve", "aws", "pulumi:"} {
		require.NotContains(t, err.Error(), key)
	}
}

// nothing is a monitor of programs that register nothing.
type nothing struct{ pulumi.MockResourceMonitor }
