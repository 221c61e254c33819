package components

import (
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/components/k3s"
)

// TestSameToken: another token than the cluster began with is refused, and not shown.
func TestSameToken(t *testing.T) {
	text, err := k3s.Identity{
		ServerCA: k3s.KeyPair{Certificate: "c"}, ClientCA: k3s.KeyPair{Key: "k"}, Token: "the-first-of-the-operators",
	}.Text()
	require.NoError(t, err)

	require.NoError(t, sameToken(text, "the-first-of-the-operators"))
	require.EqualError(t, sameToken(text, "another-of-the-operators"), "the configuration has 1 problem:\n"+
		"  - k3sToken: must stay as it was when the cluster was made: its servers accept no other; "+
		"run 'pulumi config rm k3sToken', for the state keeps the token; a cluster with another is a new one")
}
