package talos_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/machine"
	"talos-proxmox/tests/lab/talos"
)

// links are the addresses that the guest agent reports, by link and in order.
func (v *vm) links() map[string][]string {
	out := map[string][]string{}

	for _, i := range v.sys.Agent() {
		list := []string{}
		for _, a := range i.Addresses {
			list = append(list, a.String())
		}

		slices.Sort(list)

		if len(list) > 0 {
			out[i.Name] = list
		}
	}

	return out
}

// agentDisk is a disk with the guest agent on it.
func agentDisk() machine.Content {
	image := *agentISO(talos.Metal)
	image.ISO, image.Version = false, talosVersion

	return &image
}

func TestAgentBeforeAndAfterTheAddress(t *testing.T) {
	r := newHarness(t, withAgent)
	v := r.machine(11, agentDisk())
	v.hw.AgentDevice = true

	r.mu.Lock()
	delete(r.leases, v.hw.NICs[0].MAC)
	r.mu.Unlock()

	v.on()
	v.until("reports its link", func(context.Context) error {
		if len(v.links()) < 2 {
			return errors.New("it does not")
		}

		return nil
	})

	lo := []string{"127.0.0.1/8", "::1/128"}
	require.Equal(t, map[string][]string{"lo": lo, "ens18": {"fe80::be24:11ff:fe00:b/64"}}, v.links())

	r.reserve(v)
	v.maintained()

	require.Equal(t, map[string][]string{
		"lo": lo, "ens18": {v.addr() + "/24", "fd1a:b000::be24:11ff:fe00:b/64", "fe80::be24:11ff:fe00:b/64"},
	}, v.links())

	names := []string{}
	for _, i := range v.sys.Agent() {
		require.Equal(t, strings.ToLower(i.MAC), i.MAC)
		names = append(names, i.Name)
	}

	require.Equal(t, []string{"lo", "bond0", "dummy0", "teql0", "tunl0", "sit0", "ip6tnl0", "ens18"}, names)

	v.sys.Kill()
	require.Nil(t, v.sys.Agent())
}

// A node's own address is one of many, on a link after those of the kernel and before those of a network plugin.
func TestAgentOfNodesInACluster(t *testing.T) {
	for name, c := range map[string]struct {
		patch string
		links []string
	}{
		"flannel": {"cluster: {network: {cni: {name: flannel}}}", []string{"ens18", "flannel.1", "cni0", "veth*"}},
		"cilium": {
			"cluster: {network: {cni: {name: none}}, inlineManifests: [{name: cilium, contents: '" +
				strings.ReplaceAll(ciliumManifest, "\n", "\n  ") + "'}]}",
			[]string{"ens18", "cilium_net", "cilium_host", "cilium_vxlan", "lxc_health", "lxc*"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newHarness(t, withAgent)
			vip := r.addr(200)
			holders := 0

			cl, cps := threeWithAgent(r, c.patch,
				"machine: {network: {interfaces: [{interface: ens18, dhcp: true, vip: {ip: "+vip.String()+"}}]}}")
			nodesReady(r, cl.kubernetes(cps[0]).CoreV1().Nodes().List, "cp-1", "cp-2", "cp-3")

			for _, v := range cps {
				list := v.sys.Agent()
				require.Equal(t, list, v.sys.Agent())

				var names []string

				for _, l := range list[7:] {
					if l.Name == "ens18" && slices.Contains(l.Addresses, netip.PrefixFrom(vip, 32)) {
						holders++
					}

					generic := l.Name
					for _, prefix := range []string{"veth", "lxc"} {
						if strings.HasPrefix(l.Name, prefix) && l.Name != "lxc_health" {
							generic = prefix + "*"
						}
					}

					names = append(names, generic)
				}

				require.Equal(t, c.links, names)
				require.Contains(t, v.links()["ens18"], v.addr()+"/24")
				require.Contains(t, v.links()["lo"], "169.254.116.108/32")
			}

			require.Equal(t, 1, holders)

			pods := cps[0].links()
			if name == "flannel" {
				require.Regexp(t, `^\[10\.244\.\d+\.0/32 fe80::\S+/64\]$`, sprint(pods["flannel.1"]))
				require.Regexp(t, `^\[10\.244\.\d+\.1/24 fe80::\S+/64\]$`, sprint(pods["cni0"]))
			} else {
				require.Regexp(t, `^\[10\.244\.\d+\.1/32 fe80::\S+/64\]$`, sprint(pods["cilium_host"]))
			}
		})
	}
}

func sprint(list []string) string { return "[" + strings.Join(list, " ") + "]" }

const ciliumManifest = `{"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "cilium", "namespace": "kube-system"}, "spec":
{"selector": {"matchLabels": {"k8s-app": "cilium"}}, "template": {"metadata": {"labels": {"k8s-app": "cilium"}}, "spec": {"hostNetwork": true, "tolerations": [{"operator": "Exists"}],
"containers": [{"name": "agent", "image": "cilium"}], "volumes": [{"name": "etc-cni-netd", "hostPath": {"path": "/etc/cni/net.d"}}]}}}}`

// threeWithAgent is a cluster of three control planes that run from disks with the guest agent.
func threeWithAgent(r *harness, patches ...string) (*cluster, []*vm) {
	r.Helper()

	var cps []*vm

	for i := range 3 {
		v := r.machine(byte(11+i), agentDisk())
		v.hw.AgentDevice = true
		cps = append(cps, v.on())
	}

	c := r.cluster(cps[0].addr())

	for i, v := range cps {
		c.apply(v, c.config(configmachine.TypeControlPlane, []string{"cp-1", "cp-2", "cp-3"}[i], patches...))
	}

	c.bootstrap(cps[0])

	return c, cps
}
