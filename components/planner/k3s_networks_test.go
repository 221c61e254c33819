package planner

import (
	"cmp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/spec"
)

// TestK3sNetworks: networks of pods and services have room, and nodes and each other outside.
func TestK3sNetworks(t *testing.T) {
	t.Parallel()

	const apart = ", which K3s has for pods and services (given: 10.0.0.0/8); give the nodes another network"

	for name, test := range map[string]struct {
		pods, services, nodes string
		want                  []string
	}{
		"K3s' own": {},
		"others":   {pods: "10.100.0.0/16", services: "10.101.0.0/20"},
		"no networks": {
			pods: "10.100.0.0/16,fd00::/56", services: "10.101.7.0/16",
			want: []string{
				"k3s.clusterCIDR: must be one network in CIDR form (given: 10.100.0.0/16,fd00::/56); write it like 10.42.0.0/16",
				"k3s.serviceCIDR: must be the network's first address (given: 10.101.7.0/16); write 10.101.0.0/16",
			},
		},
		"everything": {
			pods: "0.0.0.0/0", services: "::/0",
			want: []string{
				"k3s.clusterCIDR: must not be the whole of the Internet (given: 0.0.0.0/0); write it like 10.42.0.0/16",
				"k3s.serviceCIDR: must not be the whole of the Internet (given: ::/0); write it like 10.43.0.0/16",
			},
		},
		"too small": {
			pods: "10.100.0.0/25", services: "10.101.0.0/30",
			want: []string{
				"k3s.clusterCIDR: must have a /24 for each node: there are 1 (given: 10.100.0.0/25); choose a larger network",
				"k3s.serviceCIDR: must have a prefix length from 12 to 28 (given: 10.101.0.0/30); choose another network",
			},
		},
		"of two versions": {
			pods: "fd00::/56",
			want: []string{"k3s.serviceCIDR: must be of the IP version of k3s.clusterCIDR fd00::/56 (given: 10.43.0.0/16); " +
				"set both"},
		},
		"of another version than the nodes": {
			pods: "fd00:42::/56", services: "fd00:43::/112",
			want: []string{"k3s.clusterCIDR: must be of the IP version of network.cidr 10.0.0.0/8: K3s does not start " +
				"otherwise (given: fd00:42::/56); choose networks of that version for pods and services"},
		},
		"of each other": {
			pods: "10.43.0.0/17",
			want: []string{"k3s.serviceCIDR: overlaps the network of pods 10.43.0.0/17 (given: 10.43.0.0/16); choose another " +
				"network"},
		},
		"of the nodes": {
			pods: "10.0.0.0/8", services: "192.168.0.0/16",
			want: []string{"network.cidr: must lie outside of 10.0.0.0/8" + apart},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := small()
			s.Cluster.Distribution, s.Cluster.Versions = spec.DistributionK3s, spec.Versions{K3s: "v1.34.2+k3s1"}
			s.Image.Template = spec.TemplateImage{Control: "9100"}
			s.Network.Gateway = "10.0.0.1"
			s.Proxmox.SSH, s.Provided.SSHKey = &spec.SSH{Username: "root"}, true
			s.K3s = &spec.K3s{ClusterCIDR: test.pods, ServiceCIDR: test.services}

			_, err := Plan(spec.Spec(s))

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

// TestK3sAddresses: no node, router or endpoint has an address of the networks of pods and services.
func TestK3sAddresses(t *testing.T) {
	t.Parallel()

	const (
		pods     = ": must lie outside of 10.42.0.0/16, which K3s has for pods and services (given: "
		services = ": must lie outside of 10.43.0.0/16, which K3s has for pods and services (given: "
		end      = "); choose another address"
	)

	for name, test := range map[string]struct {
		gateway   string
		addresses spec.Range
		pods      string
		want      []string
	}{
		"outside":                   {},
		"nodes":                     {addresses: "10.42.0.21-10.42.0.29", want: []string{"pools.worker.addresses" + pods + "10.42.0.21" + end}},
		"the router":                {gateway: "10.42.0.1", want: []string{"network.gateway" + pods + "10.42.0.1" + end}},
		"the router among services": {gateway: "10.43.0.1"},
		"elsewhere":                 {addresses: "10.42.0.21-10.42.0.29", pods: "10.100.0.0/16"},
		"both": {
			gateway: "10.42.0.1", addresses: "10.43.0.21-10.43.0.29",
			want: []string{
				"network.gateway" + pods + "10.42.0.1" + end, "pools.worker.addresses" + services + "10.43.0.21" + end,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			worker := workersWith(spec.VMSpec{})
			worker.Addresses = cmp.Or(test.addresses, worker.Addresses)
			s := onK3s(small().with("worker", worker))
			s.Network.CIDR, s.Network.Gateway = "10.0.0.0/8", cmp.Or(test.gateway, "10.0.0.1")
			s.K3s = &spec.K3s{ClusterCIDR: test.pods}

			assert.Equal(t, test.want, said(t, s))
		})
	}
}

// TestK3sOnIPv6: K3s chooses its networks after the addresses of its nodes, where it is told none.
func TestK3sOnIPv6(t *testing.T) {
	t.Parallel()

	const own = "must be of the IP version of network.cidr 2001:db8::/64"

	for name, test := range map[string]struct {
		pods, services     string
		problems, warnings []string
	}{
		"none": {
			warnings: []string{"k3s.clusterCIDR: " + own + ": with addresses of IPv6, K3s takes fd00:42::/56 and fd00:43::/112" +
				" for pods and services, and the firewalls and the checks know 10.42.0.0/16 and 10.43.0.0/16; for a new " +
				"cluster, set clusterCIDR and serviceCIDR, for example to these two"},
		},
		"of IPv6": {pods: "fd00:42::/56", services: "fd00:43::/112"},
		"of IPv4": {
			pods: "10.100.0.0/16", services: "10.101.0.0/20",
			problems: []string{"k3s.clusterCIDR: " + own + ": K3s does not start otherwise (given: 10.100.0.0/16); choose " +
				"networks of that version for pods and services"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := onK3s(small())
			s.Network = spec.Network{CIDR: "2001:db8::/64", Gateway: "fe80::1", Nameservers: []string{"2606:4700:4700::1111"}}
			s.K3s = &spec.K3s{ClusterCIDR: test.pods, ServiceCIDR: test.services}
			s = s.with("control", spec.Pool{Role: spec.RoleControlPlane, Count: new(1), Addresses: "2001:db8::11-2001:db8::13"})

			require.Equal(t, test.problems, said(t, s))

			if test.problems == nil {
				assert.Equal(t, test.warnings, warningsOf(placed(t, s)))
			}
		})
	}
}

// TestNamesOfCloudImages: what the name of a cloud image says of its system.
func TestNamesOfCloudImages(t *testing.T) {
	t.Parallel()

	const (
		ubuntu = "https://cloud-images.ubuntu.com/releases/"
		other  = ": seems to be of another system than Ubuntu 22.04 or 24.04: K3s is not installed on others (given: "
		end    = "); use an image of one of these"
		arm    = ": is for another architecture than the VMs, which are amd64 (given: "
	)

	for name, test := range map[string]struct {
		image              spec.CloudImage
		problems, warnings []string
	}{
		"24.04":  {image: spec.CloudImage{URL: ubuntu + "noble/release-20251113/ubuntu-24.04-server-cloudimg-amd64.img"}},
		"jammy":  {image: spec.CloudImage{Volume: "local:iso/jammy-server-cloudimg-amd64.img"}},
		"custom": {image: spec.CloudImage{Volume: "local:iso/k3s-base.img"}},
		"arm64": {
			image: spec.CloudImage{Volume: "local:iso/ubuntu-24.04-server-cloudimg-arm64.img"},
			problems: []string{"image.cloudImage.volume" + arm + "local:iso/ubuntu-24.04-server-cloudimg-arm64.img); use the " +
				"image for amd64"},
		},
		"25.04": {
			image: spec.CloudImage{URL: ubuntu + "plucky/release/ubuntu-25.04-server-cloudimg-amd64.img"},
			warnings: []string{
				"image.cloudImage.url" + other + ubuntu + "plucky/release/ubuntu-25.04-server-cloudimg-amd64.img" + end,
			},
		},
		"Debian": {
			image:    spec.CloudImage{Volume: "local:iso/debian-12-genericcloud-amd64.img"},
			warnings: []string{"image.cloudImage.volume" + other + "local:iso/debian-12-genericcloud-amd64.img" + end},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := onK3s(small())
			s.Image = spec.Image{Source: spec.SourceCloudImage, CloudImage: test.image}

			require.Equal(t, test.problems, said(t, s))

			if test.problems == nil {
				assert.Equal(t, test.warnings, warningsOf(placed(t, s)))
			}
		})
	}
}
