package machineconfig

import (
	"cmp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/spec"
)

// TestOverrides: a patch that changes what the plan decided is named, with what to use instead; one that a patch of the
// program's own goes before is not.
func TestOverrides(t *testing.T) {
	t.Parallel()

	const (
		given     = " (given: own.yaml, for home-worker-1); "
		ofCluster = " (given: own.yaml, for home-control-1); "
	)

	for name, test := range map[string]struct {
		patch, path, warning, problem string
	}{
		"nothing": {patch: "machine: {sysctls: {a: b}}"},
		"install disk": {
			patch: "machine: {install: {disk: /dev/nvme0n1}}",
			warning: "pools.worker.patches[0]: overrides the install disk of the plan, /dev/sda" + given +
				"leave it out of the patch, and use disk.interface",
		},
		"endpoint": {
			patch: "cluster: {controlPlane: {endpoint: 'https://k.example.com:6443'}}",
			problem: "pools.worker.patches[0]: overrides the endpoint of the plan, https://10.0.0.11:6443" + given +
				"leave it out of the patch, and use cluster.endpoint",
		},
		"port of the API": {
			patch: "cluster: {controlPlane: {localAPIServerPort: 7443}}", path: "cluster.patches[0]",
			problem: "cluster.patches[0]: overrides the port of the Kubernetes API of the plan, 6443" + ofCluster +
				"leave it out of the patch: control planes serve the API at this port",
		},
		"port of the API by an argument": {
			patch: "cluster: {apiServer: {extraArgs: {secure-port: '7443'}}}", path: "cluster.patches[0]",
			problem: "cluster.patches[0]: overrides the port of the Kubernetes API of the plan, 6443" + ofCluster +
				"leave it out of the patch: control planes serve the API at this port",
		},
		"port of the API that holds anyway": {
			patch: "cluster: {apiServer: {extraArgs: {secure-port: '6443'}}, controlPlane: {localAPIServerPort: 6443}}",
			path:  "cluster.patches[0]",
		},
		"pods by an argument": {
			patch: "cluster: {controllerManager: {extraArgs: {cluster-cidr: 10.112.0.0/16}}}", path: "cluster.patches[0]",
			problem: "cluster.patches[0]: cluster.controllerManager.extraArgs.cluster-cidr must be the same as " +
				"cluster.network.podSubnets, which the CNI, the firewalls and the checks go by: set only " +
				"cluster.network.podSubnets, in cluster.patches" + ofCluster + "correct the patch",
		},
		"services by an argument": {
			patch: "cluster: {apiServer: {extraArgs: {service-cluster-ip-range: 10.112.0.0/16}}}", path: "cluster.patches[0]",
			problem: "cluster.patches[0]: cluster.apiServer.extraArgs.service-cluster-ip-range must be the same as " +
				"cluster.network.serviceSubnets, which the CNI, the firewalls and the checks go by: set only " +
				"cluster.network.serviceSubnets, in cluster.patches" + ofCluster + "correct the patch",
		},
		"pods of kube-proxy": {
			patch: "cluster: {proxy: {extraArgs: {cluster-cidr: none}}}", path: "cluster.patches[0]",
			problem: "cluster.patches[0]: cluster.proxy.extraArgs.cluster-cidr must hold " +
				"cluster.network.podSubnets, which the CNI, the firewalls and the checks go by: set only " +
				"cluster.network.podSubnets, in cluster.patches" + ofCluster + "correct the patch",
		},
		"networks by arguments that hold anyway": {
			patch: "cluster: {controllerManager: {extraArgs: {cluster-cidr: 10.244.0.0/16}}, apiServer: {extraArgs: " +
				"{service-cluster-ip-range: 10.96.0.0/12}}, proxy: {extraArgs: {cluster-cidr: 10.0.0.0/8}}}",
			path: "cluster.patches[0]",
		},
		"installer": {
			patch: "machine: {install: {image: 'registry.example.com/installer:v1.10.0'}}",
			problem: "pools.worker.patches[0]: overrides the installer of the plan, " +
				"ghcr.io/siderolabs/installer:v1.12.4" + given +
				"leave it out of the patch, and use cluster.versions.talos and image",
		},
		"CNI": {
			patch: "cluster: {network: {cni: {name: none}}}",
			problem: "pools.worker.patches[0]: overrides the CNI of the plan, flannel" + given +
				"leave it out of the patch, and use cluster.cni.name",
		},
		"interface": {
			patch: "machine: {network: {interfaces: [{deviceSelector: {hardwareAddr: '02:00:00:00:00:21'}, dhcp: true}]}}",
			warning: "pools.worker.patches[0]: overrides the network interface with the node's address of the plan, " +
				"[10.0.0.21/16] false false" + given + "leave it out of the patch, and use network and the node's address",
		},
		"another interface": {
			patch: "machine: {network: {interfaces: [{interface: ens19, dhcp: true}]}}",
		},
		"subnets": {
			patch: "cluster: {network: {podSubnets: [10.112.0.0/16]}}",
			path:  "cluster.patches[0]",
			warning: "cluster.patches[0]: overrides the networks of pods and services of the plan, 10.244.0.0/16, " +
				"10.96.0.0/12" + ofCluster + "a running cluster keeps its networks: change them only before the cluster is created",
		},
		"subnets of one pool": {
			patch: "cluster: {network: {podSubnets: [10.112.0.0/16]}}",
			problem: "pools.worker.patches[0]: overrides the networks of pods and services of the plan, 10.244.0.0/16, " +
				"10.96.0.0/12" + given + "set it in cluster.patches: it is the same on all nodes",
		},
		"kube-proxy": {
			patch: "cluster: {proxy: {disabled: true}}",
			problem: "pools.worker.patches[0]: overrides kube-proxy of the plan, true" + given +
				"leave it out of the patch, and use cluster.cni.kubeProxy",
		},
		"labels of the kubelet": {
			patch: "machine: {kubelet: {extraArgs: {node-labels: 'a=b,node-role.kubernetes.io/worker='}}}",
			problem: "pools.worker.patches[0]: a kubelet does not start with a restricted label in its node-labels; use " +
				"labels of the pool" + given + "correct the patch",
		},
		"subnets of the nodes": {
			patch: "cluster: {network: {podSubnets: [10.0.0.0/14]}}",
			path:  "cluster.patches[0]",
			warning: "cluster.patches[0]: overrides the networks of pods and services of the plan, 10.244.0.0/16, " +
				"10.96.0.0/12" + ofCluster + "a running cluster keeps its networks: change them only before the cluster is created",
			problem: "cluster.patches[0]: the networks of pods and services must not hold that of the nodes, " +
				"network.cidr 10.0.0.0/16" + ofCluster + "correct the patch",
		},
		"subnets of all": {
			patch: "cluster: {network: {podSubnets: [0.0.0.0/0]}}", path: "cluster.patches[0]",
			problem: "cluster.patches[0]: the networks of pods and services must not be the whole of the Internet" +
				ofCluster + "correct the patch",
			warning: "cluster.patches[0]: overrides the networks of pods and services of the plan, 10.244.0.0/16, " +
				"10.96.0.0/12" + ofCluster + "a running cluster keeps its networks: change them only before the cluster is created",
		},
		"subnets of all of IPv6": {
			patch: "cluster: {network: {podSubnets: [10.244.0.0/16, '::/0']}}", path: "cluster.patches[0]",
			problem: "cluster.patches[0]: the networks of pods and services must not be the whole of the Internet" +
				ofCluster + "correct the patch",
		},
		"hostname": {
			patch: "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: other\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := reservedSpec()
			worker := s.Pools["worker"]
			patches := []spec.Patch{{
				Path: cmp.Or(test.path, "pools.worker.patches[0]"), Origin: "own.yaml", Text: test.patch,
			}}
			if test.path == "" {
				worker.Patches = patches
			} else {
				s.Cluster.Patches = patches
			}

			worker.Nodes = map[string]spec.NodeSpec{"1": worker.Nodes["1"]}
			s.Pools["worker"] = worker

			warnings, err := Check(plantest.New(t, s))
			if test.problem == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, "the configuration has 1 problem:\n  - "+test.problem)
			}

			got := ""
			for _, w := range warnings {
				got += w.String()
			}

			assert.Equal(t, test.warning, got)
		})
	}
}

// TestOverriddenHostname: the program waits for a node by its name.
func TestOverriddenHostname(t *testing.T) {
	t.Parallel()

	s := patched(plantest.Talos112, "", "", "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: other\n")

	_, err := Check(plantest.New(t, s))
	require.EqualError(t, err, "the configuration has 1 problem:\n  - pools.control.nodes.2.patches[0]: overrides the "+
		"hostname of the plan, atlas-control-2 (given: patches/pools.control.nodes.2.yaml, for atlas-control-2); leave it "+
		"out of the patch, and use pools.control.names")
}

// TestFamilyOfNetworks: the Kubernetes API server has an address of the nodes' network, and refuses Services of another
// IP version.
func TestFamilyOfNetworks(t *testing.T) {
	t.Parallel()

	const (
		given = " (given: own.yaml, for home-control-1); correct the patch"
		end   = ": the Kubernetes API server does not start with others" + given
		own   = "network.cidr: must be of the IP version of the networks of pods and services, 10.244.0.0/16 and " +
			"10.96.0.0/12: the Kubernetes API server does not start otherwise (given: 2001:db8::/64); set networks for both " +
			"in cluster.patches, for example cluster: {network: {podSubnets: [fd00:10:244::/56], serviceSubnets: " +
			"[fd00:10:96::/112]}}"
	)

	for name, test := range map[string]struct {
		v6           bool
		patch, want  string
		ofThePatches string // what is said where the configuration cannot be planned
	}{
		"IPv4": {},
		"IPv4 with both": {
			patch: "cluster: {network: {podSubnets: [10.244.0.0/16, fd00:10:244::/56], serviceSubnets: [10.96.0.0/12, " +
				"fd00:10:96::/112]}}",
		},
		"IPv4 with services of IPv6": {
			patch: "cluster: {network: {serviceSubnets: [fd00:10:96::/112]}}",
			want: "cluster.patches[0]: the first networks of pods and services must be of the IP version of network.cidr " +
				"10.0.0.0/16" + end,
			ofThePatches: "cluster.patches[0]: the first networks of pods and services must be of the IP version of " +
				"network.cidr 10.0.0.0/16" + end,
		},
		"IPv6": {v6: true, want: own},
		"IPv6 with services": {
			v6: true, patch: "cluster: {network: {serviceSubnets: [fd00:10:96::/112]}}", want: own,
		},
		"IPv6 with its own networks": {
			v6: true, patch: "cluster: {network: {podSubnets: [fd00:10:244::/56], serviceSubnets: [fd00:10:96::/112]}}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := reservedSpec()
			delete(s.Pools, "worker")

			if test.v6 {
				s.Network = spec.Network{CIDR: "2001:db8::/64", Addressing: spec.AddressingReserved}
				s.Pools["control"] = spec.Pool{Role: spec.RoleControlPlane, Count: new(1), Addresses: "2001:db8::11"}
			}

			if test.patch != "" {
				s.Cluster.Patches = []spec.Patch{{Path: "cluster.patches[0]", Origin: "own.yaml", Text: test.patch}}
			}

			_, err := Check(plantest.New(t, s))
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, "the configuration has 1 problem:\n  - "+test.want)
			}

			alone, err := CheckPatches(s)
			require.NoError(t, err)

			var got string
			for _, p := range alone {
				got += p.String()
			}

			assert.Equal(t, strings.ReplaceAll(test.ofThePatches, "home-control-1", "control"), got)
		})
	}
}

// TestLinkLocalGateway: Talos takes a gateway that only its link knows.
func TestLinkLocalGateway(t *testing.T) {
	t.Parallel()

	s := reservedSpec()
	s.Network = spec.Network{CIDR: "2001:db8::/64", Gateway: "fe80::1", Nameservers: []string{"2606:4700:4700::1111"}}
	s.Pools = map[string]spec.Pool{"control": {
		Role: spec.RoleControlPlane, Count: new(1), Addresses: "2001:db8::11", Addressing: spec.AddressingStatic,
	}}
	s.Cluster.Patches = []spec.Patch{{
		Path: "cluster.patches[0]", Origin: "own.yaml",
		Text: "cluster: {network: {podSubnets: [fd00:10:244::/56], serviceSubnets: [fd00:10:96::/112]}}",
	}}

	p := plantest.New(t, s)

	warnings, err := Check(p)
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	assert.Contains(t, warnings[0].Rule, "overrides the networks of pods and services of the plan")

	patches, err := NodePatches(p, p.Nodes()[0])
	require.NoError(t, err)
	assert.Contains(t, patches[len(patches)-1], "- gateway: fe80::1\n")
}

// TestNodesAmongPods: the network of the nodes is neither that of pods nor that of services.
func TestNodesAmongPods(t *testing.T) {
	t.Parallel()

	for cidr, first := range map[string]string{"10.244.0.0/16": "10.244.0.11", "10.96.0.0/16": "10.96.0.11"} {
		s := reservedSpec()
		s.Network = spec.Network{CIDR: cidr}
		s.Network.Addressing = spec.AddressingReserved
		s.Pools = map[string]spec.Pool{"control": {
			Role: spec.RoleControlPlane, Count: new(1), Addresses: spec.Range(first),
		}}

		_, err := Check(plantest.New(t, s))
		require.EqualError(t, err, "the configuration has 1 problem:\n  - network.cidr: must not lie in the networks of "+
			"pods and services, 10.244.0.0/16 and 10.96.0.0/12 (given: "+cidr+"); choose another one for the nodes, or set "+
			"others for pods and services in a patch (cluster.network.podSubnets, serviceSubnets)")
	}
}

// TestAddressesAmongPods: no node, router, endpoint or load balancer has an address of the networks of pods and services.
func TestAddressesAmongPods(t *testing.T) {
	t.Parallel()

	const (
		end = "; choose another address, or set others for pods and services in a patch (cluster.network.podSubnets, " +
			"serviceSubnets)"
		among = ": must not lie in the networks of pods and services, 10.244.0.0/16 and 10.96.0.0/12 (given: "
		moved = "cluster.patches[0]: the networks of pods and services must not hold an address of "
		given = " (given: own.yaml, for home-control-1); correct the patch"
		patch = "cluster: {network: {podSubnets: [10.112.0.0/16], serviceSubnets: [10.113.0.0/16]}}"
	)

	for name, test := range map[string]struct {
		patch  string
		change func(*spec.Spec)
		want   []string
	}{
		"outside": {},
		"nodes": {
			change: func(s *spec.Spec) {
				s.Pools["worker"] = spec.Pool{Role: spec.RoleWorker, Count: new(3), Addresses: "10.244.0.21-29"}
			},
			want: []string{"pools.worker.addresses" + among + "10.244.0.21)" + end},
		},
		"a node": {
			change: func(s *spec.Spec) {
				s.Pools["worker"].Nodes["2"] = spec.NodeSpec{Address: "10.111.255.254"}
			},
			want: []string{"pools.worker.nodes.2.address" + among + "10.111.255.254)" + end},
		},
		"the router": {
			change: func(s *spec.Spec) { s.Network.Gateway = "10.244.0.1" },
			want:   []string{"network.gateway" + among + "10.244.0.1)" + end},
		},
		"the router among services": {change: func(s *spec.Spec) { s.Network.Gateway = "10.100.0.1" }},
		"the endpoint": {
			change: func(s *spec.Spec) {
				s.Cluster.Endpoint = spec.Endpoint{Mode: spec.EndpointVIP, Address: "10.244.0.1"}
			},
			want: []string{"cluster.endpoint.address" + among + "10.244.0.1)" + end},
		},
		"the load balancer": {
			change: func(s *spec.Spec) {
				s.Cluster.CNI.LoadBalancer = &spec.LoadBalancer{Addresses: []string{"10.0.9.0/24", "10.243.255.0-10.244.0.0"}}
			},
			want: []string{"cluster.cni.loadBalancer.addresses" + among + "10.243.255.0-10.244.0.0)" + end},
		},
		"the router, patched away": {
			patch: patch, change: func(s *spec.Spec) { s.Network.Gateway = "10.244.0.1" },
		},
		"the router and nodes, by a patch": {
			patch: patch, change: func(s *spec.Spec) {
				s.Network.Gateway = "10.112.0.1"
				s.Pools["worker"] = spec.Pool{Role: spec.RoleWorker, Count: new(3), Addresses: "10.112.0.21-29"}
			},
			want: []string{
				moved + "network.gateway" + given,
				moved + "pools.worker.addresses" + strings.ReplaceAll(given, "control", "worker"),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := reservedSpec()
			s.Network.CIDR = "10.0.0.0/8"

			if test.change != nil {
				test.change(&s)
			}

			if test.patch != "" {
				s.Cluster.Patches = []spec.Patch{{Path: "cluster.patches[0]", Origin: "own.yaml", Text: test.patch}}
			}

			_, err := Check(plantest.New(t, s))

			var (
				problems spec.Problems
				got      []string
			)

			if err != nil {
				require.ErrorAs(t, err, &problems)
			}

			for _, p := range problems {
				got = append(got, p.String())
			}

			assert.Equal(t, test.want, got)
		})
	}
}

// TestNetworksBehindTheProxy: other networks of pods and services than Talos' own are to be excepted, too.
func TestNetworksBehindTheProxy(t *testing.T) {
	t.Parallel()

	const moved = "nodes would send requests to pods or Services in 10.112.0.0/16 to the proxy: cluster.proxy.except " +
		"does not hold that network"

	for name, test := range map[string]struct {
		proxy  *spec.Proxy
		patch  string
		warned bool
	}{
		"no proxy":   {patch: "cluster: {network: {podSubnets: [10.112.0.0/16]}}"},
		"Talos' own": {proxy: &spec.Proxy{HTTPS: "http://proxy.lan:3128"}, patch: "machine: {sysctls: {a: b}}"},
		"moved": {
			proxy: &spec.Proxy{HTTPS: "http://proxy.lan:3128"}, patch: "cluster: {network: {podSubnets: [10.112.0.0/16]}}",
			warned: true,
		},
		"excepted": {
			proxy: &spec.Proxy{HTTPS: "http://proxy.lan:3128", Except: []string{"10.112.0.0/15"}},
			patch: "cluster: {network: {podSubnets: [10.112.0.0/16]}}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := reservedSpec()
			delete(s.Pools, "worker")
			s.Cluster.Proxy = test.proxy
			s.Cluster.Patches = []spec.Patch{{Path: "cluster.patches[0]", Origin: "own.yaml", Text: test.patch}}

			warnings, err := Check(plantest.New(t, s))
			require.NoError(t, err)

			var rules []string
			for _, w := range warnings {
				rules = append(rules, w.Path+": "+w.Rule)
			}

			if test.warned {
				assert.Contains(t, rules, "cluster.patches[0]: "+moved)
			} else {
				assert.NotContains(t, strings.Join(rules, ""), "to the proxy")
			}
		})
	}
}
