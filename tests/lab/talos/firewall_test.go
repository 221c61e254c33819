package talos_test

import (
	"context"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/stretchr/testify/require"
)

// Talos' firewall is held as it was configured, and is gone with its configuration.
func TestFirewall(t *testing.T) {
	const closed = "apiVersion: v1alpha1\nkind: NetworkDefaultActionConfig\ningress: block\n---\n" +
		"apiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: apid\nportSelector: {ports: [50000], protocol: " +
		"tcp}\ningress: [{subnet: 10.0.0.0/16}]\n---\n" +
		"apiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: etcd\nportSelector: {ports: [2379-2380], protocol: " +
		"tcp}\ningress: [{subnet: 10.0.0.11/32}]"

	r := newHarness(t)
	cp := r.machine(11, template()).on()
	c := r.cluster(cp.addr())

	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1", closed))

	chain := func() (found *network.NfTablesChain) {
		t.Helper()
		r.until("the chain is published", func(ctx context.Context) (err error) {
			found, err = safe.StateGetByID[*network.NfTablesChain](ctx, c.client(cp).COSI, "ingress")

			return err
		})

		return found
	}

	spec := chain().TypedSpec()
	require.Equal(t, nethelpers.VerdictDrop, spec.Policy)

	own := spec.Rules[len(spec.Rules)-2:]
	require.Equal(t, []network.PortRange{{Lo: 50000, Hi: 50000}}, own[0].MatchLayer4.MatchDestinationPort.Ranges)
	require.Equal(t, "10.0.0.0/16", own[0].MatchSourceAddress.IncludeSubnets[0].String())
	require.Equal(t, []network.PortRange{{Lo: 2379, Hi: 2380}}, own[1].MatchLayer4.MatchDestinationPort.Ranges)

	_, err := c.client(cp).ApplyConfiguration(t.Context(), &machineapi.ApplyConfigurationRequest{
		Data: c.config(configmachine.TypeControlPlane, "cp-1"), Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
	})
	require.NoError(t, err)
	r.until("the chain is gone", func(ctx context.Context) error {
		list, err := safe.StateListAll[*network.NfTablesChain](ctx, c.client(cp).COSI)
		if err == nil && list.Len() > 0 {
			err = context.DeadlineExceeded
		}

		return err
	})
}
