package talos_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

// three is a bootstrapped cluster of three control planes.
func three(r *harness, endpoint string, patches []string, opts ...generate.Option) (*cluster, []*vm) {
	r.Helper()

	var cps []*vm
	for i := range 3 {
		cps = append(cps, r.machine(byte(11+i), template()).on())
	}

	if endpoint == "" {
		endpoint = cps[0].addr()
	}

	c := r.cluster(endpoint, opts...)
	for i, v := range cps {
		c.apply(v, c.config(configmachine.TypeControlPlane, fmt.Sprintf("cp-%d", i+1), patches...))
	}

	c.bootstrap(cps[0])

	for _, v := range cps {
		v.until("is ready", func(context.Context) error {
			if s := v.status(); !s.Ready {
				return fmt.Errorf("%s: %v", s.Stage, s.Unmet)
			}

			return nil
		})
	}

	return c, cps
}

// members are the etcd members as a node lists them.
func (c *cluster) members(v *vm) ([]string, error) {
	reply, err := c.client(v).EtcdMemberList(c.Context(), &machineapi.EtcdMemberListRequest{})
	if err != nil {
		return nil, err
	}

	var names []string
	for _, m := range reply.GetMessages()[0].GetMembers() {
		names = append(names, m.GetHostname())
	}

	return names, nil
}

func TestThreeControlPlanes(t *testing.T) {
	r := newHarness(t)
	c, cps := three(r, "", nil)
	api := c.kubernetes(cps[0])

	nodesReady(r, api.CoreV1().Nodes().List, "cp-1", "cp-2", "cp-3")

	for _, v := range cps {
		names, err := c.members(v)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"cp-1", "cp-2", "cp-3"}, names)
	}

	// who has joined does not bootstrap
	err := c.client(cps[1]).Bootstrap(t.Context(), &machineapi.BootstrapRequest{})
	require.Equal(t, codes.AlreadyExists, client.StatusCode(err))

	// two of three go on
	cps[2].off()

	names, err := c.members(cps[0])
	require.NoError(t, err)
	require.Len(t, names, 3)
	nodesReady(r, func(ctx context.Context, o listOptions) (*nodeList, error) {
		list, err := api.CoreV1().Nodes().List(ctx, o)
		if err != nil {
			return nil, err
		}

		list.Items = list.Items[:2]

		return list, nil
	}, "cp-1", "cp-2")

	// one of three does not
	cps[1].off()

	_, err = c.members(cps[0])
	require.ErrorContains(t, err, "no leader")

	_, err = api.CoreV1().Nodes().List(t.Context(), listOptions{})
	require.Error(t, err)

	// they come back with what they had
	cps[1].on()
	cps[2].on()
	nodesReady(r, api.CoreV1().Nodes().List, "cp-1", "cp-2", "cp-3")
}

// A disk that is gone takes the membership with it; the machine that replaces it joins again.
func TestReplacedControlPlane(t *testing.T) {
	r := newHarness(t)
	c, cps := three(r, "", nil)

	before := c.memberIDs(cps[0])

	cps[2].off()
	cps[2].hw.Disks[0].Write(template())
	cps[2].on()
	c.apply(cps[2], c.config(configmachine.TypeControlPlane, "cp-3"))
	cps[2].stage("running")

	after := c.memberIDs(cps[0])
	require.Len(t, after, 3)
	require.Equal(t, before["cp-1"], after["cp-1"])
	require.Equal(t, before["cp-2"], after["cp-2"])
	require.NotEqual(t, before["cp-3"], after["cp-3"])
}

// The shared address is with one control plane, whose certificate covers it, and moves when that one stops.
func TestVirtualIP(t *testing.T) {
	for name, patch := range map[string]string{
		"document by alias": "apiVersion: v1alpha1\nkind: LinkAliasConfig\nname: lan\nselector: {match: " +
			"'glob(\"bc:24:11:*\", mac(link.permanent_addr))'}\n" +
			"---\napiVersion: v1alpha1\nkind: Layer2VIPConfig\nname: %s\nlink: lan",
		"selector": "machine: {network: {interfaces: [{deviceSelector: {physical: true}, dhcp: true, vip: {ip: %s}}]}}",
	} {
		t.Run(name, func(t *testing.T) {
			r := newHarness(t)
			vip := r.addr(10).String()
			c, cps := three(r, vip, []string{fmt.Sprintf(patch, vip)})
			checkVirtualIP(r, vip, c, cps)
		})
	}
}

func checkVirtualIP(r *harness, vip string, c *cluster, cps []*vm) {
	r.Helper()

	api := c.kubernetes(cps[0])
	nodesReady(r, api.CoreV1().Nodes().List, "cp-1", "cp-2", "cp-3")

	first := c.holder(vip, cps)
	require.NotNil(r, first)
	first.off()

	r.until("the address moves", func(ctx context.Context) error {
		now := c.holder(vip, cps)
		if now == nil || now == first {
			return errors.New("no other node has it")
		}

		_, err := api.CoreV1().Nodes().List(ctx, listOptions{})

		return err
	})
}

// holder is the node that answers at a shared address; nil while none does.
func (c *cluster) holder(vip string, cps []*vm) *vm {
	state := c.serverCertificate(net.JoinHostPort(vip, "50000"))

	for _, v := range cps {
		if state != nil && state.Subject.CommonName == fmt.Sprintf("cp-%d", v.hw.VMID-410) {
			return v
		}
	}

	return nil
}

// A link that no machine has holds no address.
func TestVirtualIPOnNoLink(t *testing.T) {
	r := newHarness(t)
	vip := r.addr(10).String()
	cp := r.machine(11, template()).on()
	c := r.cluster(cp.addr())

	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1",
		"apiVersion: v1alpha1\nkind: Layer2VIPConfig\nname: "+vip+"\nlink: lan"))
	c.bootstrap(cp)
	nodesReady(r, c.kubernetes(cp).CoreV1().Nodes().List, "cp-1")
	require.Nil(t, c.serverCertificate(net.JoinHostPort(vip, "50000")))
}

// serverCertificate is what a listener shows, nil when nothing answers.
func (c *cluster) serverCertificate(address string) *x509.Certificate {
	var leaf *x509.Certificate

	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err == nil {
		leaf = conn.ConnectionState().PeerCertificates[0]
		_ = conn.Close()
	}

	return leaf
}
