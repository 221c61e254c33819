package planner

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/spec"
)

// booting is the smallest spec with another image and addresses that nodes state.
func booting(image spec.Image) draft {
	s := small()
	s.Image, s.Network.Gateway = image, "10.0.0.1"

	return s
}

// TestImageStays: what is still in the drives of VMs is kept, whatever the configuration says, and the plan says so.
func TestImageStays(t *testing.T) {
	iso := spec.Image{
		Source: spec.SourceISO, Platform: spec.PlatformNoCloud,
		ISO: spec.ISOImage{URL: "https://mirror.lan/talos.iso"},
	}

	attached := iso
	attached.ISO.Detach = new(false)

	for name, c := range map[string]struct {
		image     spec.Image
		bootstrap spec.BootstrapMode
		detach    bool
		keep      bool
	}{
		"the factory's, taken out": {spec.Image{}, spec.BootstrapPulumi, true, false},
		"the factory's, left in":   {spec.Image{}, spec.BootstrapExternal, false, true},
		"an ISO file, taken out":   {iso, spec.BootstrapPulumi, true, false},
		"an ISO file, left in":     {attached, spec.BootstrapPulumi, false, true},
		"an ISO file of others":    {iso, spec.BootstrapExternal, false, true},
		"a volume is not ours to remove": {
			spec.Image{
				Source: spec.SourceISO, Platform: spec.PlatformNoCloud,
				ISO: spec.ISOImage{Volume: "local:iso/talos.iso"},
			}, spec.BootstrapExternal, false, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := booting(c.image)
			s.Cluster.Bootstrap, s.Lifecycle.KeepImages = c.bootstrap, new(false)

			if c.bootstrap == spec.BootstrapExternal {
				s.Cluster.Versions.Kubernetes = ""
			} else {
				s = s.scheduling()
			}

			p := placed(t, s)
			if image := p.Pools[0].Image; image.Detach != c.detach || image.Keep != c.keep {
				t.Errorf("%+v", image)
			}

			var want []spec.Problem
			if c.keep {
				want = []spec.Problem{{
					Path:  "lifecycle.keepImages",
					Rule:  "keeps an ISO file that stays in the drives of its VMs, which do not start without it",
					Value: "false", Remedy: "delete the file by hand when the VMs are gone",
				}}
			}

			if diff := cmp.Diff(want, p.Warnings); diff != "" {
				t.Error(diff)
			}

			s.Lifecycle.KeepImages = nil
			if p := placed(t, s); !p.Pools[0].Image.Keep || len(p.Warnings) > 0 {
				t.Errorf("%+v %v", p.Pools[0].Image, p.Warnings)
			}
		})
	}
}

// TestLinkName: the link that META is for has its name from an argument, which is there once.
func TestLinkName(t *testing.T) {
	for name, c := range map[string]struct {
		platform   spec.Platform
		args, want []string
	}{
		"not set": {spec.PlatformMetal, []string{"console=ttyS0"}, []string{"console=ttyS0", "net.ifnames=0"}},
		"the operator states it": {
			spec.PlatformMetal,
			[]string{"net.ifnames=0", "console=ttyS0"},
			[]string{"net.ifnames=0", "console=ttyS0"},
		},
		"nothing is for a link": {spec.PlatformNoCloud, []string{"net.ifnames=1"}, []string{"net.ifnames=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := booting(spec.Image{Platform: c.platform, Factory: spec.FactoryImage{KernelArgs: c.args}})

			if diff := cmp.Diff(c.want, placed(t, s).Pools[0].Image.KernelArgs); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestConfigurationInArguments: a node with a configuration of its own never waits for ours; with a part of one, it does.
func TestConfigurationInArguments(t *testing.T) {
	t.Parallel()

	const (
		end     = "leave it out, or set cluster.bootstrap to external"
		alias   = "apiVersion: v1alpha1\nkind: LinkAliasConfig\nname: net0\nselector: {match: 'true'}\n"
		whole   = "version: v1alpha1\nmachine: {type: worker}\n"
		fetched = "makes the node fetch a machine configuration, and this program sends one (given: talos.config=...); " + end
		inline  = "gives the node a machine configuration, and this program sends one (given: talos.config.inline=...); " + end
	)

	packed := func(text string) string {
		writer, err := zstd.NewWriter(nil)
		require.NoError(t, err)

		return base64.StdEncoding.EncodeToString(writer.EncodeAll([]byte(text), nil))
	}

	for name, test := range map[string]struct {
		arg, want string
		external  bool
	}{
		"none":            {arg: "talos.config.oauth.client_id=hunter2"},
		"fetched":         {arg: "quiet talos.config=https://hunter2@config.lan/", want: fetched},
		"complete":        {arg: "talos.config.inline=" + packed(whole), want: inline},
		"complete, twice": {arg: "talos.config.inline=" + packed(alias+"---\n"+whole), want: inline},
		"complete, early": {arg: "talos.config.early=" + packed(whole), want: strings.Replace(inline, "inline", "early", 1)},
		"a part":          {arg: "talos.config.inline=" + packed("---\n"+alias+"---\n"+alias)},
		"of others":       {arg: "talos.config.inline=" + packed(whole), external: true},
		"not packed":      {arg: "talos.config.inline=hunter2", want: inline},
		"not compressed": {
			arg: "talos.config.inline=" + base64.StdEncoding.EncodeToString([]byte("hunter2")), want: inline,
		},
		"not YAML": {arg: "talos.config.inline=" + packed("{"), want: inline},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := booting(spec.Image{Factory: spec.FactoryImage{KernelArgs: []string{"console=ttyS0", test.arg}}})
			if test.external {
				s.Cluster.Bootstrap, s.Cluster.Versions.Kubernetes = spec.BootstrapExternal, ""
			}

			var want []string
			if test.want != "" {
				want = []string{"image.factory.kernelArgs[1]: " + test.want}
			}

			assert.Equal(t, want, said(t, s))
		})
	}
}

// TestKubeVIPLink: the name of kube-vip's link is one that Linux gives, as far as the image says.
func TestKubeVIPLink(t *testing.T) {
	t.Parallel()

	const (
		wrong = "cluster.endpoint.interface: is not a link of the image: without net.ifnames=0, Talos calls links ens18, " +
			"enp6s18 and so on (given: eth0); set the name of a control plane's link, as talosctl get links shows it, or " +
			"add net.ifnames=0 to the kernel arguments of the image"
		reservation = "network.addressing: a reservation is not needed: the factory writes the address into the image " +
			"(given: reserved); use static"
	)

	factory := func(platform spec.Platform, args ...string) spec.Image {
		return spec.Image{Platform: platform, Factory: spec.FactoryImage{KernelArgs: args}}
	}
	iso := func(platform spec.Platform) spec.Image {
		return spec.Image{Source: spec.SourceISO, Platform: platform, ISO: spec.ISOImage{Volume: "local:iso/talos.iso"}}
	}

	for name, test := range map[string]struct {
		image    spec.Image
		reserved bool
		link     string
		pool     []string
		patch    string
		want     []string
	}{
		"metal":           {image: factory(spec.PlatformMetal), reserved: true, link: "enp6s18"},
		"metal, old name": {image: factory(spec.PlatformMetal), reserved: true, link: "eth0", want: []string{wrong}},
		"metal, old names": {
			image: factory(spec.PlatformMetal, "quiet net.ifnames=0"), reserved: true, link: "eth0",
		},
		"metal, old names of pool": {
			image: factory(spec.PlatformMetal), reserved: true, link: "eth0", pool: []string{"net.ifnames=0"},
		},
		"metal, named by a patch": {
			image: factory(spec.PlatformMetal), reserved: true, link: "eth0", patch: "kind: LinkAliasConfig\nname: eth0",
		},
		"metal, bond":                    {image: factory(spec.PlatformMetal), reserved: true, link: "bond0"},
		"metal with addresses":           {image: factory(spec.PlatformMetal), link: "eth0"},
		"metal with addresses, new name": {image: factory(spec.PlatformMetal), link: "ens18"},
		"nocloud":                        {image: factory(spec.PlatformNoCloud), link: "eth0"},
		"nocloud, new name":              {image: factory(spec.PlatformNoCloud), link: "ens18"},
		"template":                       {image: small().Image, link: "eth0"},
		"ISO file":                       {image: iso(spec.PlatformMetal), link: "eth0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := booting(test.image).scheduling()
			s.Cluster.Endpoint = spec.Endpoint{Mode: spec.EndpointKubeVIP, Address: "10.0.0.201", Interface: test.link}

			var warn []string

			if test.reserved {
				s.Network.Addressing = spec.AddressingReserved
				warn = append(warn, reservation)
			}

			if test.patch != "" {
				s.Cluster.Patches = []spec.Patch{{Text: test.patch}}
			}

			pool := s.Pools["control"]
			pool.Image.KernelArgs = test.pool
			s = s.with("control", pool)

			if got := said(t, s); !assert.Equal(t, test.want, got) || got != nil {
				return
			}

			var warnings []string
			for _, w := range placed(t, s).Warnings {
				warnings = append(warnings, w.String())
			}

			assert.Equal(t, warn, warnings)
		})
	}
}

// TestUncertainDisk: Linux calls disks of two buses sda and so on, in no order that one could install by.
func TestUncertainDisk(t *testing.T) {
	warning := func(at string) []spec.Problem {
		return []spec.Problem{{
			Path: "pools.control.extraDisks[0].interface",
			Rule: "is on another bus than the system disk, and Linux calls disks of both sda and so on, in no certain order: " +
				"Talos may be installed on the wrong one",
			Value: at,
			Remedy: "put it on the bus of the system disk, or on virtio; or name the disk in a patch " +
				"(machine.install.diskSelector)",
		}}
	}

	for name, c := range map[string]struct {
		image         spec.Image
		system, other string
		want          []spec.Problem
	}{
		"one bus":                {spec.Image{}, "scsi1", "scsi0", nil},
		"names of their own":     {spec.Image{}, "scsi0", "virtio0", nil},
		"and the other way":      {spec.Image{}, "virtio0", "sata0", nil},
		"two buses":              {spec.Image{}, "scsi0", "sata0", warning("sata0")},
		"two buses, other way":   {spec.Image{}, "sata0", "scsi5", warning("scsi5")},
		"Talos is on it already": {small().Image, "scsi0", "sata0", nil},
		"and comes as an image of it": {
			spec.Image{Factory: spec.FactoryImage{Format: spec.FormatDisk}},
			"scsi0", "sata0",
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := booting(c.image).scheduling()
			s.Proxmox.SSH, s.Provided.SSHKey = nil, false

			if c.image.Factory.Format == spec.FormatDisk {
				s.Proxmox.SSH, s.Provided.SSHKey = &spec.SSH{Username: "root"}, true
			}

			pool := s.Pools["control"]
			pool.Disk.Interface, pool.ExtraDisks = new(c.system),
				[]spec.ExtraDisk{{SizeGiB: 5, DiskOptions: spec.DiskOptions{Interface: new(c.other)}}}

			if diff := cmp.Diff(c.want, placed(t, s.with("control", pool)).Warnings); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestTemplateRef: a VMID is a number to most people.
func TestTemplateRef(t *testing.T) {
	var got spec.TemplateImage
	if err := json.Unmarshal([]byte(`{"control": 9000, "worker": "9001", "gpuWorker": "talos-v1.12.4-base"}`),
		&got); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(spec.TemplateImage{Control: "9000", Worker: "9001", GPUWorker: "talos-v1.12.4-base"},
		got); diff != "" {
		t.Error(diff)
	}
}
