package planner

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/ranges"
	"talos-proxmox/components/spec"
)

// TestModes: what follows from the modes, without a word of the operator.
func TestModes(t *testing.T) {
	type derived struct {
		Platform          spec.Platform
		Addressing        spec.Addressing
		CDROM, CloudInit  string
		Boot              string
		Machine, Firmware string
		Agent             bool
		Scope             plan.Scope
		Key               string
	}

	factory := func(platform spec.Platform, addressing spec.Addressing, f spec.FactoryImage) func(*draft) {
		return func(s *draft) {
			s.Image = spec.Image{Platform: platform, Factory: f}
			s.Network.Addressing, s.Network.Gateway = addressing, "10.0.0.1"
			s.Proxmox.SSH, s.Provided.SSHKey = &spec.SSH{Username: "root"}, true
		}
	}

	agent := spec.FactoryImage{Extensions: []string{"siderolabs/qemu-guest-agent"}}

	for name, test := range map[string]struct {
		change func(*draft)
		want   derived
	}{
		"metal template": {
			func(*draft) {},
			derived{
				Platform: spec.PlatformMetal, Addressing: spec.AddressingReserved, Scope: plan.PerCluster,
				Key: "template/talos-v1.12.4-base",
			},
		},
		"nocloud template": {
			func(s *draft) { s.Image.Platform, s.Network.Gateway = spec.PlatformNoCloud, "10.0.0.1" },
			derived{
				Platform: spec.PlatformNoCloud, Addressing: spec.AddressingStatic, CloudInit: "ide0", Scope: plan.PerCluster,
				Key: "template/talos-v1.12.4-base",
			},
		},
		"template with agent": {
			func(s *draft) { s.Image.Schematic = &spec.Schematic{Extensions: []string{"qemu-guest-agent"}} },
			derived{
				Platform: spec.PlatformMetal, Addressing: spec.AddressingReserved, Agent: true, Scope: plan.PerCluster,
				Key: "template/talos-v1.12.4-base",
			},
		},
		"template of a pool": {
			func(s *draft) { p := s.Pools["control"]; p.Image.Template = "9000"; s.Pools["control"] = p },
			derived{Platform: spec.PlatformMetal, Addressing: spec.AddressingReserved, Scope: plan.PerPool, Key: "template/9000"},
		},
		"metal ISO file": {
			func(s *draft) {
				s.Image = spec.Image{Source: spec.SourceISO, ISO: spec.ISOImage{Volume: "local:iso/talos-1.12.4.iso"}}
			},
			derived{
				Platform: spec.PlatformMetal, Addressing: spec.AddressingReserved, CDROM: "ide2", Boot: "scsi0 ide2",
				Machine: "q35", Firmware: "ovmf", Scope: plan.PerCluster,
				Key: "iso/local:iso/talos-1.12.4.iso",
			},
		},
		"nocloud ISO file": {
			func(s *draft) {
				s.Image = spec.Image{
					Source: spec.SourceISO, Platform: spec.PlatformNoCloud,
					ISO: spec.ISOImage{URL: "https://example.com/nocloud-amd64.iso"},
				}
				s.Network.Gateway = "10.0.0.1"
			},
			derived{
				Platform: spec.PlatformNoCloud, Addressing: spec.AddressingStatic, CDROM: "ide2", CloudInit: "ide0",
				Boot: "scsi0 ide2", Machine: "q35", Firmware: "ovmf",
				Scope: plan.PerCluster, Key: "iso/https://example.com/nocloud-amd64.iso",
			},
		},
		"factory by default": {
			factory("", "", spec.FactoryImage{}),
			derived{
				Platform: spec.PlatformNoCloud, Addressing: spec.AddressingStatic, CDROM: "ide2", CloudInit: "ide0",
				Boot: "scsi0 ide2", Machine: "q35", Firmware: "ovmf",
				Scope: plan.PerCluster, Key: "factory/cluster",
			},
		},
		"factory metal": {
			factory(spec.PlatformMetal, "", agent),
			derived{
				Platform: spec.PlatformMetal, Addressing: spec.AddressingStatic, CDROM: "ide2", Boot: "scsi0 ide2", Machine: "q35",
				Firmware: "ovmf", Agent: true,
				Scope: plan.PerNode, Key: "factory/node/c-control-1",
			},
		},
		"factory metal, reserved": {
			factory(spec.PlatformMetal, spec.AddressingReserved, agent),
			derived{
				Platform: spec.PlatformMetal, Addressing: spec.AddressingReserved, CDROM: "ide2", Boot: "scsi0 ide2",
				Machine: "q35", Firmware: "ovmf", Agent: true,
				Scope: plan.PerCluster, Key: "factory/cluster",
			},
		},
		"factory disk": {
			factory(spec.PlatformMetal, "", spec.FactoryImage{Format: spec.FormatDisk}),
			derived{
				Platform: spec.PlatformMetal, Addressing: spec.AddressingStatic, Boot: "scsi0", Machine: "q35",
				Firmware: "ovmf", Scope: plan.PerNode, Key: "factory/node/c-control-1",
			},
		},
		"factory with extensions of a pool": {
			func(s *draft) {
				factory("", "", agent)(s)

				p := s.Pools["control"]
				p.Image.Extensions, p.Machine, p.Firmware = []string{"iscsi-tools"}, new("i440fx"), new("seabios")
				s.Pools["control"] = p
			},
			derived{
				Platform: spec.PlatformNoCloud, Addressing: spec.AddressingStatic, CDROM: "ide2", CloudInit: "ide0",
				Boot: "scsi0 ide2", Machine: "i440fx", Firmware: "seabios",
				Agent: true, Scope: plan.PerPool, Key: "factory/pool/control",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := small()
			test.change(&s)
			p := placed(t, s)
			n, image := p.Nodes()[0], p.Pools[0].Image

			got := derived{
				p.Platform, p.Addressing, n.CDROM, n.CloudInit, strings.Join(n.BootOrder, " "), n.Machine, n.Firmware, n.Agent,
				image.Scope, n.ImageKey,
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestLegalPairs: every pair of source, platform and addressing, as the table of the requirements has it.
func TestLegalPairs(t *testing.T) {
	legal := map[string]string{
		//                       static reserved agent reported
		"template metal":   "no yes yes yes",
		"template nocloud": "yes yes yes yes",
		"iso metal":        "no yes yes yes",
		"iso nocloud":      "yes yes yes yes",
		"factory metal":    "yes warns yes yes",
		"factory nocloud":  "yes yes yes yes",
	}

	for _, source := range []spec.Source{spec.SourceTemplate, spec.SourceISO, spec.SourceFactory} {
		for _, platform := range []spec.Platform{spec.PlatformMetal, spec.PlatformNoCloud} {
			var got []string

			for _, addressing := range []spec.Addressing{
				spec.AddressingStatic, spec.AddressingReserved, spec.AddressingAgent,
				spec.AddressingReported,
			} {
				s := small().scheduling()
				s.Network.Addressing, s.Network.Gateway = addressing, "10.0.0.1"

				if addressing == spec.AddressingAgent {
					s.Pools["control"] = spec.Pool{Role: spec.RoleControlPlane, Count: new(1)}
				}

				switch source {
				case spec.SourceTemplate:
					s.Image.Schematic = &spec.Schematic{Extensions: []string{plan.GuestAgent}}
				case spec.SourceISO:
					s.Image = spec.Image{
						ISO:       spec.ISOImage{Volume: "local:iso/talos.iso"},
						Schematic: &spec.Schematic{Extensions: []string{plan.GuestAgent}},
					}
				case spec.SourceFactory:
					s.Image = spec.Image{Factory: spec.FactoryImage{Extensions: []string{plan.GuestAgent}}}
				}

				s.Image.Source, s.Image.Platform = source, platform

				p, err := Plan(spec.Spec(s))

				switch {
				case err != nil:
					if !strings.HasPrefix(err.Error(), "the configuration has 1 problem:\n  - network.addressing: ") {
						t.Errorf("%s %s %s: %v", source, platform, addressing, err)
					}

					got = append(got, "no")
				case len(p.Warnings) > 0:
					got = append(got, "warns")
				default:
					got = append(got, "yes")
				}
			}

			if key := string(source) + " " + string(platform); strings.Join(got, " ") != legal[key] {
				t.Errorf("%s: %v, want %s", key, got, legal[key])
			}
		}
	}
}

func TestEndpoint(t *testing.T) {
	for want, change := range map[string]func(*draft){
		"https://10.0.0.11:6443": func(*draft) {},
		"https://10.0.0.200:6443": func(
			s *draft,
		) {
			s.Cluster.Endpoint = spec.Endpoint{Mode: spec.EndpointVIP, Address: "10.0.0.200"}
		},
		"https://api.example.com:6443": func(
			s *draft,
		) {
			s.Cluster.Endpoint = spec.Endpoint{Mode: spec.EndpointDNS, Host: "api.example.com"}
		},
		"https://10.0.0.201:6443": func(s *draft) {
			s.Cluster.Endpoint = spec.Endpoint{Mode: spec.EndpointKubeVIP, Address: "10.0.0.201", Interface: "eth0"}
		},
		"https://[fd00::11]:6443": func(s *draft) {
			s.Network.CIDR = "fd00::/64"
			s.Pools["control"] = spec.Pool{Role: spec.RoleControlPlane, Count: new(1), Addresses: "fd00::11-fd00::1f"}
		},
		"": func(s *draft) {
			s.Network.Addressing = spec.AddressingAgent
			s.Image.Schematic = &spec.Schematic{Extensions: []string{plan.GuestAgent}}
			s.Pools["control"] = spec.Pool{Role: spec.RoleControlPlane, Count: new(1)}
		},
	} {
		s := small()
		change(&s)

		if p := placed(t, s); p.Endpoint != want {
			t.Errorf("got %s, want %s", p.Endpoint, want)
		}
	}
}

// TestAdvertisedEndpoint: a caller of the tailnet comes with an address of its own.
func TestAdvertisedEndpoint(t *testing.T) {
	s := small()
	s.Cluster.Endpoint = spec.Endpoint{Mode: spec.EndpointVIP, Address: "10.0.0.201"}
	s.Image.Schematic = &spec.Schematic{Extensions: []string{"tailscale"}}
	s.Tailscale, s.Provided.TailscaleKey = &spec.Tailscale{}, true
	s.Firewall.Enabled = new(true)

	for _, advertised := range []bool{false, true} {
		s.Tailscale.AdvertiseEndpoint = advertised

		for _, ingress := range placed(t, s).Pools[0].Ingress {
			if open := slices.Contains(ingress.From, netip.MustParsePrefix("100.64.0.0/10")); open !=
				(advertised && ingress.Name == "kube-apiserver") {
				t.Errorf("advertised %t: %s is open to the tailnet: %t", advertised, ingress.Name, open)
			}
		}
	}
}

// TestKubeVIPOnTailnet: it is refused, with what to use.
func TestKubeVIPOnTailnet(t *testing.T) {
	s := small()
	s.Cluster.Endpoint = spec.Endpoint{Mode: spec.EndpointKubeVIP, Address: "10.0.0.201", Interface: "tailscale0"}
	s.Image.Schematic = &spec.Schematic{Extensions: []string{"tailscale"}}
	s.Tailscale, s.Provided.TailscaleKey = &spec.Tailscale{}, true

	_, err := Plan(spec.Spec(s))
	if err == nil || err.Error() != "the configuration has 1 problem:\n  - cluster.endpoint.interface: cannot be one of a "+
		"tailnet, in which other machines do not reach an address that kube-vip announces (given: tailscale0); name the "+
		"interface of network.cidr and choose an address of that network; to reach it over the tailnet, set "+
		"tailscale.advertiseEndpoint and approve the route in the tailnet" {
		t.Error(err)
	}
}

// TestExternal: what is of no effect there is a warning, not an error.
func TestExternal(t *testing.T) {
	s := small()
	s.Cluster.Bootstrap, s.Cluster.Versions.Kubernetes, s.Cluster.Versions.Talos = spec.BootstrapExternal, "", "v1.11.5"
	s.Cluster.Endpoint = spec.Endpoint{Mode: spec.EndpointVIP, Address: "10.0.0.200"}
	s.Network.Addressing = spec.AddressingReported
	s.Pools["control"] = spec.Pool{Role: spec.RoleControlPlane, Count: new(3)}
	p := placed(t, s)

	want := []spec.Problem{
		{
			Path:  "cluster.endpoint.mode",
			Rule:  "has no effect with bootstrap external: the tool that configures the nodes must set it up",
			Value: "vip",
		},
		{
			Path: "image.template.control", Rule: "holds another version than cluster.versions.talos v1.11.5",
			Value:  "talos-v1.12.4-base",
			Remedy: "change one of the two",
		},
	}
	if diff := cmp.Diff(want, p.Warnings); diff != "" {
		t.Error(diff)
	}

	if n := p.Nodes()[2]; n.Address.IsValid() || n.Name != "c-control-3" || p.Kubernetes != "" {
		t.Errorf("%+v", n)
	}

	var steps []string
	for _, s := range p.Steps {
		steps = append(steps, s.Name)
	}

	if want := []string{"machines", "outputs"}; !slices.Equal(steps, want) {
		t.Errorf("steps %v, want %v", steps, want)
	}
}

// TestVersionInURL: a version is what stands in the path, not the address of the server.
func TestVersionInURL(t *testing.T) {
	for address, fine := range map[string]bool{
		"http://10.0.0.5:8080/talos-1.12.4.iso": true, "http://10.0.0.5/v1.12.4/metal-amd64.iso": true,
		"http://10.0.0.5/metal.iso":            true,
		"https://example.com/talos-1.11.2.iso": false,
	} {
		s := small()
		s.Image = spec.Image{Source: spec.SourceISO, ISO: spec.ISOImage{URL: address}}

		if _, err := Plan(spec.Spec(s)); (err == nil) != fine {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestMerge: built-in, defaults, pool, node; maps by their keys, lists whole.
func TestMerge(t *testing.T) {
	s := small()
	s.Image, s.Network.Gateway = spec.Image{}, "10.0.0.1"
	s.Defaults = spec.VMSpec{
		Cores: new(4), Tags: []string{"a"}, Labels: map[string]string{"x": "1", "y": "1"},
		Disk: spec.DiskOptions{SSD: new(true)},
	}
	s = s.with("worker", spec.Pool{
		Role: spec.RoleWorker, Addresses: "10.1.0.1-9",
		VMSpec: spec.VMSpec{
			MemoryMiB: new(8192), Tags: []string{"B"}, Labels: map[string]string{"y": "2"},
			Disk: spec.DiskOptions{Datastore: new("tank")},
		},
		Nodes: map[string]spec.NodeSpec{"1": {}, "3": {MAC: "02:00:00:aa:bb:cc", Address: "10.3.0.3", VMSpec: spec.VMSpec{
			Cores: new(8), Labels: map[string]string{"z": "3"}, ExtraDisks: []spec.ExtraDisk{{SizeGiB: 7}},
			NICs: []spec.NIC{{VLAN: new(7)}, {Bridge: "vmbr1"}},
		}}},
	})
	s.Network.VLAN = 5

	p := placed(t, s)
	first, third := p.Pools[1].Nodes[0], p.Pools[1].Nodes[1]

	disk := plan.Disk{
		Interface: "scsi0", Datastore: "tank", SizeGiB: 40, Cache: "none", AIO: "io_uring", Discard: true, SSD: true,
		Backup: true, Replicate: true,
	}
	extra := disk
	extra.Interface, extra.Datastore, extra.SizeGiB, extra.SSD = "scsi1", "local-lvm", 7, false

	for _, check := range []struct{ what, diff string }{
		{"size", cmp.Diff([]int{4, 8192, 8, 8192}, []int{first.Cores, first.MemoryMiB, third.Cores, third.MemoryMiB})},
		{"tags", cmp.Diff([]string{"b", "c", "talos", "worker"}, third.Tags)},
		{"labels of 1", cmp.Diff(map[string]string{"x": "1", "y": "2"}, first.Labels)},
		{"labels of 3", cmp.Diff(map[string]string{"x": "1", "y": "2", "z": "3"}, third.Labels)},
		{"disks of 1", cmp.Diff([]plan.Disk{disk}, first.Disks)},
		{"disks of 3", cmp.Diff([]plan.Disk{disk, extra}, third.Disks)},
		{"interfaces of 1", cmp.Diff([]plan.Interface{{Bridge: "vmbr0", MAC: first.MAC, VLAN: 5}}, first.NICs)},
		{"interfaces of 3", cmp.Diff([]plan.Interface{
			{Bridge: "vmbr0", MAC: "02:00:00:AA:BB:CC", VLAN: 7}, {Bridge: "vmbr1", MAC: mac("c", "c-worker-3", 1), VLAN: 5},
		}, third.NICs)},
		{"identity of 3", cmp.Diff([]any{3, 503, "10.3.0.3"}, []any{third.Ordinal, third.VMID, third.Address.String()})},
	} {
		if check.diff != "" {
			t.Errorf("%s: %s", check.what, check.diff)
		}
	}
}

// TestProtection: control planes are protected in production, nothing else is, and whoever states it has their way.
func TestProtection(t *testing.T) {
	yes, no := spec.VMSpec{Protection: new(true)}, spec.VMSpec{Protection: new(false)}

	for name, test := range map[string]struct {
		environment     spec.Environment
		defaults        spec.VMSpec
		control, worker spec.VMSpec
		want            [2]bool
	}{
		"a lab": {
			spec.EnvironmentLab,
			spec.VMSpec{},
			spec.VMSpec{},
			spec.VMSpec{},
			[2]bool{false, false},
		},
		"production": {
			spec.EnvironmentProduction,
			spec.VMSpec{},
			spec.VMSpec{},
			spec.VMSpec{},
			[2]bool{true, false},
		},
		"production, defaults off":     {spec.EnvironmentProduction, no, spec.VMSpec{}, spec.VMSpec{}, [2]bool{false, false}},
		"production, the pool off":     {spec.EnvironmentProduction, spec.VMSpec{}, no, spec.VMSpec{}, [2]bool{false, false}},
		"production, the workers too":  {spec.EnvironmentProduction, spec.VMSpec{}, spec.VMSpec{}, yes, [2]bool{true, true}},
		"a lab, where it is asked for": {spec.EnvironmentLab, yes, spec.VMSpec{}, no, [2]bool{true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			s := small()
			s.Environment, s.Defaults = test.environment, test.defaults
			s = s.with("worker", spec.Pool{Role: spec.RoleWorker, Count: new(1), Addresses: "10.1.0.1", VMSpec: test.worker})
			control := s.Pools["control"]
			control.VMSpec = test.control
			s = s.with("control", control)

			protection := func() [2]bool {
				p := placed(t, s)

				return [2]bool{p.Pools[0].Nodes[0].Protection, p.Pools[1].Nodes[0].Protection}
			}

			if got := protection(); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}

			s.Lifecycle.Teardown = true
			if got := protection(); got != [2]bool{} {
				t.Errorf("what is to be destroyed is protected: %v", got)
			}
		})
	}
}

// TestIdentity: a default is a promise. Names, VMIDs and MACs of these nodes never change.
func TestIdentity(t *testing.T) {
	s := small()
	s.Cluster.Name = "k3s-dev"
	s.Image.Template.GPUWorker = "9000"
	s = s.with("worker", spec.Pool{
		Role: spec.RoleWorker, Count: new(1), Addresses: "10.1.0.1",
		Names: "talos-{pool}-{nn}",
	}).
		with("gpu", spec.Pool{
			Role: spec.RoleWorker, Addresses: "10.2.0.1-9",
			GPUs: map[string]spec.GPUSpec{"2": {BDF: "0000:01:00"}},
		})

	var got []any
	for _, n := range placed(t, s).Nodes() {
		got = append(got, n.Name, n.VMID, n.MAC)
	}

	want := []any{
		"k3s-dev-control-1", 401, "42:34:35:D3:21:F5", "k3s-dev-gpu-2", 602, "E2:15:11:2A:5F:75", "talos-worker-01", 501,
		mac("k3s-dev", "talos-worker-01", 0),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	if p := placed(t, s); *p.Pools[1].Nodes[0].GPU != (plan.GPU{BDF: "0000:01:00", PCIe: true, ROMBar: true}) ||
		p.Pools[1].Nodes[0].Machine != "q35" {
		t.Errorf("%+v", p.Pools[1].Nodes[0])
	}
}

// TestRanges: as people write them.
func TestRanges(t *testing.T) {
	for text, want := range map[spec.Range]string{
		"10.0.0.11":                        "10.0.0.11 - -",
		"10.0.0.11-10.0.0.12":              "10.0.0.11 10.0.0.12 -",
		"10.0.0.11-13":                     "10.0.0.11 10.0.0.12 10.0.0.13",
		" 10.0.0.254 - 10.0.1.0 ":          "10.0.0.254 10.0.0.255 10.0.1.0",
		"10.0.0.11, 10.0.0.20-10.0.0.21":   "10.0.0.11 10.0.0.20 10.0.0.21",
		"fd00::ffff:ffff:ffff:ffff-fd01::": "fd00::ffff:ffff:ffff:ffff fd00:0:0:1:: fd00:0:0:1::1",
	} {
		found, ok := ranges.ParseAddresses(text)
		if !ok {
			t.Errorf("%s is no range", text)
		}

		var got []string

		for n := range 3 {
			a, ok := found.Nth(n+1, ranges.AddressCount, ranges.AddressAt)
			if !ok {
				got = append(got, "-")
			} else {
				got = append(got, a.String())
			}
		}

		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %v, want %s", text, got, want)
		}
	}

	for _, text := range []spec.Range{
		"", "-", "10.0.0.1-", "10.0.0.9-8", "10.0.0.1-fd00::1", "10.0.0.1,", "fe80::1%eth0",
		"10.0.0.1-2-3", "fd00::1-5",
	} {
		if found, ok := ranges.ParseAddresses(text); ok {
			t.Errorf("%q is %v", text, found)
		}
	}

	found, ok := ranges.ParseNumbers(spec.Range("401-402, 410"))
	if !ok || found.Room(ranges.VMIDCount) != 3 {
		t.Errorf("%v", found)
	}

	if v, _ := found.Nth(3, ranges.VMIDCount, ranges.VMIDAt); v != 410 {
		t.Errorf("the third is %d", v)
	}

	if _, last := found.Nth(4, ranges.VMIDCount, ranges.VMIDAt); last {
		t.Error("there is a fourth")
	}

	all := ranges.Interval[netip.Addr]{First: netip.MustParseAddr("::"), Last: netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")}
	if got := ranges.AddressCount(all); got != 1<<63 {
		t.Errorf("%d addresses", got)
	}
}

// TestJSON: the forms that the configuration may have.
func TestJSON(t *testing.T) {
	var image spec.Image

	var pool spec.Pool

	if err := json.Unmarshal([]byte(`{"vmids": 401, "addresses": "10.0.0.1", "patches": ["a: b"]}`), &pool); err != nil ||
		pool.VMIDs != "401" {
		t.Error(pool, err)
	}

	for text, want := range map[string]spec.Schematic{
		`"abc"`:      {ID: "abc"},
		`["x", "y"]`: {Extensions: []string{"x", "y"}},
	} {
		image.Schematic = nil
		if err := json.Unmarshal([]byte(`{"schematic": `+text+`}`), &image); err != nil ||
			cmp.Diff(want, *image.Schematic) != "" {
			t.Error(image.Schematic, err)
		}

		if back, err := json.Marshal(image.Schematic); err != nil || string(back) != strings.ReplaceAll(text, " ", "") {
			t.Error(string(back), err)
		}
	}
}

// TestProblem is how every problem reads.
func TestProblem(t *testing.T) {
	for want, p := range map[string]spec.Problem{
		"a.b: must be c":                     {Path: "a.b", Rule: "must be c"},
		"a.b: must be c (given: d); write e": {Path: "a.b", Rule: "must be c", Value: "d", Remedy: "write e"},
		"a: must be c; write e\n\n      1  2\n      3  4\n": {
			Path: "a", Rule: "must be c", Remedy: "write e",
			Detail: "1  2\n3  4\n",
		},
	} {
		if p.String() != want {
			t.Errorf("got %q, want %q", p.String(), want)
		}
	}
}

// TestAddressesOfPods: Cilium can be told to take others than the firewalls know.
func TestAddressesOfPods(t *testing.T) {
	for firewall, want := range map[bool][]spec.Problem{
		false: nil,
		true: {{
			Path:   "cluster.cni.values.ipam",
			Rule:   "may give pods addresses that the firewalls block: they allow 10.244.0.0/16",
			Remedy: "allow other networks of pods in firewall.open",
		}},
	} {
		s := small().scheduling()
		s.Firewall.Enabled = &firewall
		s.Cluster.CNI = spec.CNI{
			Name: spec.CNICilium, Version: "1.18.4",
			Values: ciliumPools("10.244.0.0/16"),
		}

		if diff := cmp.Diff(want, placed(t, s).Warnings); diff != "" {
			t.Error(diff)
		}
	}
}

func ciliumPools(list any) map[string]any {
	return map[string]any{"ipam": map[string]any{
		"mode": "cluster-pool", "operator": map[string]any{"clusterPoolIPv4PodCIDRList": list},
	}}
}

// TestCiliumPools: the networks that Cilium gives out to pods are no node's.
func TestCiliumPools(t *testing.T) {
	const list = "cluster.cni.values.ipam.operator.clusterPoolIPv4PodCIDRList"

	for name, test := range map[string]struct {
		values        map[string]any
		want, warning string
	}{
		"outside":       {values: ciliumPools([]any{"10.244.0.0/16", "172.16.0.0/16"})},
		"as a text":     {values: ciliumPools("10.244.0.0/16 172.16.0.0/16")},
		"of Kubernetes": {values: map[string]any{"ipam": map[string]any{"mode": "kubernetes"}}},
		"that of the nodes": {
			values: ciliumPools([]any{"172.16.0.0/16", "10.0.0.0/8"}),
			want: list + "[1]: must not hold that of the nodes, network.cidr 10.0.0.0/8 (given: 10.0.0.0/8); choose a " +
				"network that nothing else uses",
		},
		"a node": {
			values: ciliumPools("10.0.0.0/16"),
			want: list + "[0]: must not hold 10.0.0.11 of pools.control.addresses (given: 10.0.0.0/16); choose a network " +
				"that nothing else uses",
		},
		"no network": {
			values: ciliumPools("ten"),
			want:   list + "[0]: must be a network in CIDR form (given: ten); write it like 10.244.0.0/16",
		},
		"Cilium's own": {
			values: map[string]any{"ipam": map[string]any{"mode": "cluster-pool"}},
			warning: "cluster.cni.values.ipam: gives pods networks of 10.0.0.0/8, which overlaps network.cidr 10.0.0.0/8 " +
				"(given: cluster-pool); set operator.clusterPoolIPv4PodCIDRList to networks that nothing else uses, or " +
				"leave ipam out",
		},
	} {
		s := small().scheduling()
		s.Cluster.CNI = spec.CNI{Name: spec.CNICilium, Version: "1.18.4", Values: test.values}

		p, err := Plan(spec.Spec(s))
		if test.want != "" {
			if err == nil || err.Error() != "the configuration has 1 problem:\n  - "+test.want {
				t.Errorf("%s: %v", name, err)
			}

			continue
		} else if err != nil {
			t.Errorf("%s: %v", name, err)

			continue
		}

		got := ""
		for _, w := range p.Warnings {
			got += w.String()
		}

		if got != test.warning {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestAPIForAll: a firewall that lets every address in is warned of.
func TestAPIForAll(t *testing.T) {
	s := small().scheduling()
	s.Firewall.Enabled, s.Firewall.APIFrom = new(true), []string{"10.0.0.0/8", "0.0.0.0/0"}

	want := []spec.Problem{{
		Path: "firewall.apiFrom[1]", Rule: "lets every address reach the Talos and Kubernetes APIs", Value: "0.0.0.0/0",
		Remedy: "name the networks that need it",
	}}
	if diff := cmp.Diff(want, placed(t, s).Warnings); diff != "" {
		t.Error(diff)
	}
}
