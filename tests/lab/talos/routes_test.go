package talos_test

import (
	"fmt"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/client"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/stretchr/testify/require"
)

// What people look at first on a node is there: links, routes, resolvers, static pods.
func TestLookingAround(t *testing.T) {
	r := newHarness(t)
	cp := r.machine(11, template()).on()
	c := r.cluster(cp.addr())
	gateway := r.addr(1).String()

	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1", fmt.Sprintf(
		`machine: {network: {nameservers: [9.9.9.9], interfaces: [{interface: ens18, dhcp: true, routes: [{network: 0.0.0.0/0, gateway: %s}]}]}}`, gateway)))
	c.bootstrap(cp)
	nodesReady(r, c.kubernetes(cp).CoreV1().Nodes().List, "cp-1")

	api := c.client(cp)
	ctx := client.WithNode(t.Context(), cp.addr())

	links, err := safe.StateListAll[*network.LinkStatus](ctx, api.COSI)
	require.NoError(t, err)
	require.Equal(t, []string{"ens18", "lo"},
		safe.ToSlice(links, func(l *network.LinkStatus) string { return l.Metadata().ID() }))

	routes, err := safe.StateListAll[*network.RouteStatus](ctx, api.COSI)
	require.NoError(t, err)
	ids := safe.ToSlice(routes, func(l *network.RouteStatus) string { return l.Metadata().ID() })
	require.ElementsMatch(t, []string{"inet4/" + gateway + "//1024", "inet4//" + r.addr(0).String() + "/24/0"}, ids)

	resolvers, err := safe.StateGetByID[*network.ResolverStatus](ctx, api.COSI, network.ResolverID)
	require.NoError(t, err)
	require.Equal(t, "[9.9.9.9]", fmt.Sprint(resolvers.TypedSpec().DNSServers))

	pods, err := safe.StateListAll[*k8s.StaticPod](ctx, api.COSI)
	require.NoError(t, err)
	require.Equal(t, []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"},
		safe.ToSlice(pods, func(p *k8s.StaticPod) string { return p.Metadata().ID() }))
}
