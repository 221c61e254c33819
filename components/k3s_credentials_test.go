package components

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"talos-proxmox/components/k3sconfig"
	"talos-proxmox/components/plan"
)

// TestSameToken: another token than the cluster began with is refused, and not shown.
func TestSameToken(t *testing.T) {
	text, err := k3sconfig.Identity{
		ServerCA: k3sconfig.KeyPair{Certificate: "c"}, ClientCA: k3sconfig.KeyPair{Key: "k"}, Token: "the-first-of-the-operators",
	}.Text()
	require.NoError(t, err)

	require.NoError(t, sameToken(text, "the-first-of-the-operators"))
	require.EqualError(t, sameToken(text, "another-of-the-operators"), "the configuration has 1 problem:\n"+
		"  - k3sToken: must stay as it was when the cluster was created: its servers accept no other token; "+
		"run 'pulumi config rm k3sToken': the state has the token; a different token needs a new cluster")
}

// TestSameNetworks: a cluster keeps the networks that it was made with, those of older states included.
func TestSameNetworks(t *testing.T) {
	t.Parallel()

	i, err := k3sconfig.NewIdentity("c", time.Now())
	require.NoError(t, err)

	text, err := i.Text()
	require.NoError(t, err)

	require.NoError(t, sameNetworks(text, &plan.PlannedK3s{Pods: plan.K3sPods, Services: plan.K3sServices}))
	require.EqualError(t, sameNetworks(text, &plan.PlannedK3s{
		Pods: netip.MustParsePrefix("10.100.0.0/16"), Services: plan.K3sServices,
	}), "the configuration has 1 problem:\n  - k3s.clusterCIDR: must stay as it was when the cluster was created: its "+
		"nodes and services have addresses from this network (given: 10.100.0.0/16); set 10.42.0.0/16; a different network "+
		"needs a new cluster")
}
