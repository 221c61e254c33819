package talos_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/talos"
)

func withTailscale() *talos.Image {
	return &talos.Image{
		Version: talosVersion, Platform: talos.Metal,
		Schematic: talos.Schematic{ID: "abc", Extensions: []string{"siderolabs/tailscale"}},
	}
}

func joining(more ...string) string {
	return "apiVersion: v1alpha1\nkind: ExtensionServiceConfig\nname: tailscale\nenvironment:\n  - TS_AUTHKEY=key\n" +
		strings.Join(more, "")
}

// service is the state of a service and what it last said; both are empty when there is none.
func (c *cluster) service(v *vm, id string) (state, message string) {
	reply, err := c.client(v).ServiceList(c.Context())
	if err != nil {
		return "", ""
	}

	for _, s := range reply.GetMessages()[0].GetServices() {
		if events := s.GetEvents().GetEvents(); s.GetId() == id {
			return s.GetState(), events[len(events)-1].GetMsg()
		}
	}

	return "", ""
}

// An extension's service runs where the image has the extension, once its configuration is there and as it should be.
func TestExtensionService(t *testing.T) {
	r := newHarness(t)
	with, without := r.machine(11, withTailscale()).on(), r.machine(12, template()).on()
	c := r.cluster(with.addr())
	plain := c.config(configmachine.TypeControlPlane, "cp-1")

	c.apply(with, plain)
	c.apply(without, c.config(configmachine.TypeControlPlane, "cp-2", joining()))

	expect := func(v *vm, state, message string) {
		t.Helper()
		r.until("the service is "+state, func(context.Context) error {
			if s, m := c.service(v, "ext-tailscale"); s != state || m != message {
				return fmt.Errorf("it is %s: %s", s, m)
			}

			return nil
		})
	}
	apply := func(patches ...string) {
		t.Helper()

		_, err := c.client(with).ApplyConfiguration(t.Context(), &machineapi.ApplyConfigurationRequest{
			Data: c.config(configmachine.TypeControlPlane, "cp-1", patches...),
			Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
		})
		require.NoError(t, err)
	}

	expect(with, "Waiting", `Waiting for extension service config "tailscale"`)
	apply(joining("  - TS_EXTRA_ARGS=--login_server=https://headscale.lab\n"))
	expect(with, "Failed", "Failed to run: tailscale up failed: flag provided but not defined: -login_server")
	apply(joining("  - TS_EXTRA_ARGS=--login-server=https://headscale.lab\n"))
	expect(with, "Running", "Started task ext-tailscale")

	r.until("the tailnet's link has an address", func(ctx context.Context) error {
		addresses, err := safe.StateListAll[*network.AddressStatus](ctx, c.client(with).COSI)
		if err != nil {
			return err
		}

		for a := range addresses.All() {
			if s := a.TypedSpec(); s.LinkName == "tailscale0" {
				require.True(t, netip.MustParsePrefix("100.64.0.0/10").Contains(s.Address.Addr()))

				return nil
			}
		}

		return errors.New("there is none")
	})

	r.until("the other one is up", func(ctx context.Context) error {
		_,
			err := c.client(without).Version(ctx)
		return err
	})
	state, _ := c.service(without, "ext-tailscale")
	require.Empty(t, state)
}

// kubeVIP is what kube-vip's own command renders, shortened to what decides.
const kubeVIP = `cluster:
  inlineManifests:
    - name: kube-vip
      contents: |
        apiVersion: v1
        kind: ServiceAccount
        metadata: {name: kube-vip, namespace: kube-system}
        ---
        apiVersion: apps/v1
        kind: DaemonSet
        metadata: {name: kube-vip, namespace: kube-system}
        spec:
          selector: {matchLabels: {app: kube-vip}}
          template:
            metadata: {labels: {app: kube-vip}}
            spec:
              hostNetwork: true
              serviceAccountName: kube-vip
              nodeSelector: {node-role.kubernetes.io/control-plane: ""}
              tolerations: [{operator: Exists}]
              containers:
                - name: kube-vip
                  image: ghcr.io/kube-vip/kube-vip:v1.2.3
                  args: [manager]
                  securityContext: {capabilities: {add: [NET_ADMIN, NET_RAW]}}
                  env:
                    - {name: vip_arp, value: "true"}
                    - {name: cp_enable, value: "true"}
                    - {name: vip_interface, value: %s}
                    - {name: address, value: %s}
                    - {name: KUBERNETES_SERVICE_HOST, value: localhost}
                    - {name: KUBERNETES_SERVICE_PORT, value: "7445"}
`

// kube-vip announces an address on a link from one control plane, and from another when that one stops. The tailnet
// reaches it by a route that is advertised and approved.
func TestKubeVIP(t *testing.T) {
	r := newHarness(t)
	vip := r.addr(10).String()

	var cps []*vm
	for i := range 3 {
		cps = append(cps, r.machine(byte(11+i), withTailscale()).on())
	}

	c := r.cluster(vip)
	for i, v := range cps {
		c.apply(v, c.config(configmachine.TypeControlPlane, fmt.Sprintf("cp-%d", i+1), joining("  - TS_ROUTES="+vip+"/32\n"),
			fmt.Sprintf(kubeVIP, "ens18", vip), "cluster: {apiServer: {certSANs: ["+vip+"]}}", "machine: {certSANs: ["+vip+"]}"))
	}

	c.bootstrap(cps[0])

	var first *vm

	r.until("a node has the address", func(ctx context.Context) error {
		if first = c.holder(vip, cps); first == nil {
			return errors.New("no node has it")
		}

		_, err := c.kubernetes(first).CoreV1().Nodes().List(ctx, listOptions{})

		return err
	})

	r.until("all know each other", func(context.Context) error {
		names, err := c.members(first)
		if err == nil && len(names) < 3 {
			err = fmt.Errorf("members: %v", names)
		}

		return err
	})

	api := net.JoinHostPort(vip, "6443")
	_, err := r.fw.DialTailnet(t.Context(), "tcp", api)
	require.EqualError(t, err, "the tailnet has no route to "+vip)
	r.fw.ApproveRoute(netip.MustParsePrefix(vip + "/32"))

	first.off()
	r.until("the address moves", func(context.Context) error {
		if now := c.holder(vip, cps); now == nil || now == first {
			return errors.New("no other node has it")
		}

		return nil
	})

	for _, dial := range []func(context.Context, string, string) (net.Conn, error){
		new(net.Dialer).DialContext, r.fw.DialTailnet,
	} {
		r.until("the address serves", func(ctx context.Context) error {
			conn, err := dial(ctx, "tcp", api)
			if err != nil {
				return err
			}

			return conn.Close()
		})
	}
}

// An address that kube-vip puts on the tailnet's link is reached neither from the LAN nor from the tailnet, whose
// members are.
func TestKubeVIPOnTailnet(t *testing.T) {
	r := newHarness(t)
	vip := r.addr(10).String()
	cp := r.machine(11, withTailscale()).on()
	c := r.cluster(cp.addr())
	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1", joining(), fmt.Sprintf(kubeVIP, "tailscale0", vip)))
	c.bootstrap(cp)

	var member netip.Addr

	r.until("the link has the address", func(ctx context.Context) error {
		addresses, err := safe.StateListAll[*network.AddressStatus](ctx, c.client(cp).COSI)
		if err != nil {
			return err
		}

		held := false

		for a := range addresses.All() {
			if s := a.TypedSpec(); s.LinkName == "tailscale0" {
				held = held || s.Address.Addr() == r.addr(10)

				if s.Address.Addr() != r.addr(10) {
					member = s.Address.Addr()
				}
			}
		}

		if !held || !member.IsValid() {
			return errors.New("it has not")
		}

		return nil
	})

	_, err := r.fw.DialTailnet(t.Context(), "tcp", net.JoinHostPort(vip, "6443"))
	require.EqualError(t, err, "the tailnet has no route to "+vip)

	_, err = net.Dial("tcp", net.JoinHostPort(vip, "6443"))
	require.ErrorIs(t, err, syscall.ECONNREFUSED)

	conn, err := r.fw.DialTailnet(t.Context(), "tcp", net.JoinHostPort(member.String(), "6443"))
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}
