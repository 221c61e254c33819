package talos_test

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/client"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/tests/lab/machine"
	"talos-proxmox/tests/lab/talos"
)

var schematicID = strings.Repeat("a", 64)

// withAgent is a world whose factory has one schematic besides the plain one.
func withAgent(o *talos.Options) {
	o.Schematic = func(id string) (talos.Schematic, bool) {
		return talos.Schematic{
			ID: id, Extensions: []string{"siderolabs/qemu-guest-agent"},
			KernelArgs: []string{"net.ifnames=0"},
		}, id == schematicID
	}
}

func agentISO(platform string) *talos.Image {
	return &talos.Image{
		Version: "v1.12.3", Platform: platform, ISO: true,
		Schematic: talos.Schematic{ID: schematicID, Extensions: []string{"siderolabs/qemu-guest-agent"}},
	}
}

// A machine that runs from an ISO installs what its configuration names, and restarts from the disk.
func TestInstallFromISO(t *testing.T) {
	r := newHarness(t, withAgent)
	cp := r.machine(11, nil)
	cp.cd, cp.hw.AgentDevice = agentISO(talos.Metal), true
	cp.on()

	cp.maintained()
	require.Contains(t, cp.links(), "ens18")

	c := r.cluster(cp.addr())
	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1",
		"machine: {install: {image: factory.talos.dev/metal-installer/"+schematicID+":v1.12.4}}"))
	cp.until("runs from disk", func(ctx context.Context) error {
		_, err := c.client(cp).Version(ctx)

		return err
	})

	installed, ok := cp.hw.Disks[0].Content().(*talos.Installed)
	require.True(t, ok)
	require.Equal(t, "v1.12.4", installed.Image.Version)
	require.False(t, installed.Image.ISO)
	require.Equal(t, schematicID, installed.Image.ID)
	require.Contains(t, string(installed.Config), "hostname: cp-1")

	// the extension came with the installer, and so did the kernel argument
	require.Contains(t, cp.links(), "eth0")

	status, err := safe.StateListAll[*runtime.ExtensionStatus](t.Context(), c.client(cp).COSI)
	require.NoError(t, err)
	require.Equal(t, 2, status.Len())
}

// A plain installer leaves the extensions of the ISO behind.
func TestPlainInstallerLosesExtensions(t *testing.T) {
	r := newHarness(t, withAgent)
	v := r.machine(11, nil)
	v.cd, v.hw.AgentDevice = agentISO(talos.Metal), true
	v.on()

	c := r.cluster(v.addr())
	c.apply(v, c.config(configmachine.TypeControlPlane, "cp-1",
		"machine: {install: {image: ghcr.io/siderolabs/installer:v1.12.4}}"))
	v.until("runs from disk", func(ctx context.Context) error {
		_, err := c.client(v).Version(ctx)

		return err
	})
	require.Nil(t, v.sys.Agent())
}

// An installation that cannot be done ends where it began.
func TestFailedInstallation(t *testing.T) {
	for name, patch := range map[string]string{
		"no such disk": "machine: {install: {disk: /dev/vda}}",
		"no such schematic": "machine: {install: {image: factory.talos.dev/metal-installer/" + strings.Repeat("b", 64) +
			":v1.12.4}}",
	} {
		t.Run(name, func(t *testing.T) {
			r := newHarness(t, withAgent)
			v := r.machine(11, nil)
			v.cd = agentISO(talos.Metal)
			v.on()

			c := r.cluster(v.addr())
			c.apply(v, c.config(configmachine.TypeControlPlane, "cp-1", patch))
			v.until("says why", func(context.Context) error {
				r.mu.Lock()
				defer r.mu.Unlock()

				if !strings.Contains(strings.Join(r.lines, "\n"), "install failed") {
					return context.DeadlineExceeded
				}

				return nil
			})
			v.stage("maintenance")
			require.Nil(t, v.hw.Disks[0].Content())
		})
	}
}

// An ISO that is booted in front of an installed disk halts: nothing answers.
func TestISOBeforeInstalledDisk(t *testing.T) {
	r := newHarness(t)
	v := r.machine(11, &talos.Installed{Image: talos.Image{Version: talosVersion, Platform: talos.Metal}})
	v.hw.Boot = []machine.BootDevice{{Medium: agentISO(talos.Metal)}, {Disk: v.hw.Disks[0]}}
	v.sys = v.fw.PowerOn(v.hw)

	v.stage("halted")
	require.Nil(t, v.sys.Agent())
}

// A disk that a selector matches is as good as one that is named.
func TestInstallDiskSelector(t *testing.T) {
	r := newHarness(t)
	v := r.machine(11, nil)
	v.hw.Disks = append(v.hw.Disks, machine.NewDisk("virtio1", "tank:vm-411-disk-1", 100*gib, nil))
	v.cd = &talos.Image{Version: talosVersion, Platform: talos.Metal, ISO: true}
	v.on()

	c := r.cluster(v.addr())
	c.apply(v, c.config(configmachine.TypeControlPlane, "cp-1", "machine: {install: {diskSelector: {size: '>= 50GB'}}}"))
	v.until("installs", func(context.Context) error {
		if v.hw.Disks[1].Content() == nil {
			return context.DeadlineExceeded
		}

		return nil
	})
	require.Nil(t, v.hw.Disks[0].Content())
}

// TestEphemeralOnAnotherDisk: what the configuration says where EPHEMERAL is to be, clients and Kubernetes are told.
func TestEphemeralOnAnotherDisk(t *testing.T) {
	r := newHarness(t)
	v := r.machine(11, template())
	v.hw.Disks = append(v.hw.Disks, machine.NewDisk("virtio1", "tank:vm-411-disk-1", 100*gib, nil))
	v.on()

	c := r.cluster(v.addr())
	c.apply(v, c.config(configmachine.TypeControlPlane, "cp-1", `apiVersion: v1alpha1
kind: VolumeConfig
name: EPHEMERAL
provisioning:
  diskSelector:
    match: '!system_disk'
`))
	c.bootstrap(v)
	v.ready()

	status, err := safe.ReaderGetByID[*block.VolumeStatus](t.Context(), c.client(v).COSI, constants.EphemeralPartitionLabel)
	require.NoError(t, err)
	require.Equal(t, "/dev/vda", status.TypedSpec().ParentLocation)
	require.Equal(t, "/dev/vda1", status.TypedSpec().Location)
	require.EqualValues(t, 100*gib-2<<20, status.TypedSpec().Size)

	status, err = safe.ReaderGetByID[*block.VolumeStatus](t.Context(), c.client(v).COSI, constants.StatePartitionLabel)
	require.NoError(t, err)
	require.Equal(t, "/dev/sda", status.TypedSpec().ParentLocation)

	nodesReady(r, c.kubernetes(v).CoreV1().Nodes().List, "cp-1")
	node, err := c.kubernetes(v).CoreV1().Nodes().Get(t.Context(), "cp-1", metav1.GetOptions{})
	require.NoError(t, err)
	require.Greater(t, node.Status.Capacity.StorageEphemeral().Value(), 90*gib)
}

const static = `addresses:
- address: %s/24
  linkName: %s
  family: inet4
  scope: global
  flags: permanent
  layer: platform
hostnames:
- hostname: from-meta
  layer: platform
`

// metal reads META and not the cloud-init drive, nocloud the other way round, and both take what DHCP has without it.
func TestAddresses(t *testing.T) {
	ci := func(r *harness, format string) *machine.CloudInit {
		return &machine.CloudInit{
			Format: cmp.Or(format, "nocloud"), Hostname: "from-drive",
			Addresses: []netip.Prefix{netip.PrefixFrom(r.addr(32), 24)},
		}
	}
	meta := func(r *harness, link string) map[uint8]string {
		return map[uint8]string{10: strings.NewReplacer("%s/24", r.addr(31).String()+"/24", "%s", link).Replace(static)}
	}

	for name, tc := range map[string]struct {
		platform string
		args     []string
		link     string // in META; empty: no META
		drive    bool
		format   string // of the drive, "nocloud" when empty
		want     byte
		iface    string
	}{
		"metal, META":             {platform: talos.Metal, link: "ens18", drive: true, want: 31, iface: "ens18"},
		"metal, META for another": {platform: talos.Metal, link: "eth0", drive: true, want: 11, iface: "ens18"},
		"metal, META, old names": {
			platform: talos.Metal, args: []string{"net.ifnames=0"}, link: "eth0", want: 31,
			iface: "eth0",
		},
		"metal, drive only": {platform: talos.Metal, drive: true, want: 11, iface: "ens18"},
		"nocloud, drive":    {platform: talos.NoCloud, link: "eth0", drive: true, want: 32, iface: "eth0"},
		"nocloud, other drive": {
			platform: talos.NoCloud, drive: true, format: "configdrive2", want: 11,
			iface: "eth0",
		},
		"nocloud, without a drive": {platform: talos.NoCloud, link: "eth0", want: 11, iface: "eth0"},
		"nocloud, names switched off": {
			platform: talos.NoCloud, args: []string{"net.ifnames=1"}, drive: true, want: 32,
			iface: "ens18",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newHarness(t)
			image := &talos.Image{Version: talosVersion, Platform: tc.platform, Schematic: talos.Schematic{KernelArgs: tc.args}}

			if tc.link != "" {
				image.META = meta(r, tc.link)
			}

			v := r.machine(11, image)
			if tc.drive {
				v.hw.CloudInit = ci(r, tc.format)
			}

			v.on()
			v.stage("maintenance")
			v.until("has an address", func(context.Context) error {
				if !v.status().Address.IsValid() {
					return context.DeadlineExceeded
				}

				return nil
			})
			require.Equal(t, r.addr(tc.want), v.status().Address)

			v.hw.VMID = 400 + int(tc.want) // for addr()
			v.until("shows its links", func(ctx context.Context) error {
				links, err := safe.StateListAll[*network.LinkStatus](ctx, v.insecure().COSI)
				if err == nil {
					require.Equal(t, tc.iface, links.Get(0).Metadata().ID())
				}

				return err
			})
		})
	}
}

// What the machine configuration says about a link holds without any DHCP, from the moment it is applied and after each
// boot. A selector compares texts: in capitals, no MAC address fits.
func TestStaticLinks(t *testing.T) {
	device := func(v *vm, selector string) string {
		return fmt.Sprintf(
			"machine: {network: {interfaces: [{%s, addresses: [%s/24], routes: [{network: 0.0.0.0/0, gateway: %s}]}]}}",
			selector, v.harness.addr(41), v.harness.addr(1))
	}

	for name, tc := range map[string]struct {
		patch func(*vm) string
		want  bool
	}{
		"by MAC": {func(v *vm) string { return device(v, "deviceSelector: {hardwareAddr: 'bc:24:11:00:00:0b'}") }, true},
		"by pattern": {func(v *vm) string {
			return device(v, "deviceSelector: {hardwareAddr: 'bc:24:11:*', driver: virtio_net}")
		}, true},
		"by name": {func(v *vm) string { return device(v, "interface: ens18") }, true},
		"by MAC in capitals": {
			func(v *vm) string { return device(v, "deviceSelector: {hardwareAddr: 'BC:24:11:00:00:0B'}") },
			false,
		},
		"by another name": {func(v *vm) string { return device(v, "interface: eth0") }, false},
		"document": {func(v *vm) string {
			return fmt.Sprintf("apiVersion: v1alpha1\nkind: LinkConfig\nname: ens18\naddresses: [{address: %s/24}]\n",
				v.harness.addr(41))
		}, true},
		"document by alias": {func(v *vm) string {
			return fmt.Sprintf("apiVersion: v1alpha1\nkind: LinkAliasConfig\nname: lan\nselector: {match: "+
				"'mac(link.permanent_addr) == \"bc:24:11:00:00:0b\"'}\n"+
				"---\napiVersion: v1alpha1\nkind: LinkConfig\nname: lan\naddresses: [{address: %s/24}]\n", v.harness.addr(41))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newHarness(t)
			v := r.machine(11, nil)
			v.cd = &talos.Image{Version: talosVersion, Platform: talos.Metal, ISO: true}
			v.on()

			c := r.cluster(v.addr())
			c.apply(v, c.config(configmachine.TypeControlPlane, "cp-1", tc.patch(v)))

			v.hw.VMID = 411 // reached by the address that was reserved, until now

			want := r.addr(11)
			if tc.want {
				want = r.addr(41)
			}

			v.until("has its address", func(context.Context) error {
				if v.hw.Disks[0].Content() == nil || v.status().Address != want {
					return context.DeadlineExceeded
				}

				return nil
			})

			r.mu.Lock()
			clear(r.leases)
			r.mu.Unlock()

			v.off()
			v.on()
			v.until("boots again", func(context.Context) error {
				if s := v.status(); s.Role == "" || tc.want && s.Address != want {
					return context.DeadlineExceeded
				}

				return nil
			})

			if !tc.want {
				require.False(t, v.status().Address.IsValid())
			}
		})
	}
}

// An address in META says nothing about its link: without an entry for the link, DHCP runs in addition.
func TestDHCPNextToMeta(t *testing.T) {
	for name, tc := range map[string]struct {
		links string
		want  []byte
	}{
		"address only":   {"", []byte{11, 31}},
		"address + link": {"links:\n- name: ens18\n  up: true\n  layer: platform\n", []byte{31}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newHarness(t)
			image := &talos.Image{Version: talosVersion, Platform: talos.Metal, ISO: true}
			image.META = map[uint8]string{10: fmt.Sprintf(static, r.addr(31), "ens18") + tc.links}
			image.Extensions = []string{"siderolabs/qemu-guest-agent"}

			v := r.machine(11, nil)
			v.cd, v.hw.AgentDevice = image, true
			v.on()
			v.stage("maintenance")

			var want []netip.Addr
			for _, last := range tc.want {
				want = append(want, r.addr(last))
			}

			v.until("has its addresses", func(context.Context) error {
				var have []netip.Addr

				for _, i := range v.sys.Agent() {
					for _, p := range i.Addresses {
						if i.Name == "ens18" && p.Addr().Is4() {
							have = append(have, p.Addr())
						}
					}
				}

				slices.SortFunc(have, netip.Addr.Compare) // an agent reports them in no particular order

				if !slices.Equal(want, have) {
					return fmt.Errorf("has %v", have)
				}

				return nil
			})
		})
	}
}

// A nocloud machine whose drive carries a machine configuration configures itself.
func TestConfigurationFromTheDrive(t *testing.T) {
	r := newHarness(t)
	v := r.machine(11, &talos.Image{Version: talosVersion, Platform: talos.NoCloud})
	c := r.cluster(v.addr())
	v.hw.CloudInit = &machine.CloudInit{
		Format:   "nocloud",
		UserData: string(c.config(configmachine.TypeControlPlane, "cp-1")),
	}
	v.on()

	v.until("answers", func(ctx context.Context) error {
		_, err := c.client(v).Version(ctx)

		return err
	})
}

// A signed system goes on being upgraded to signed ones. A firmware that has keys starts no other.
func TestSecureBoot(t *testing.T) {
	const signed = "factory.talos.dev/metal-installer-secureboot/"

	r := newHarness(t, withAgent)
	v := r.machine(11, nil)
	v.cd, v.hw.UEFI = &talos.Image{Version: talosVersion, Platform: talos.Metal, ISO: true, SecureBoot: true}, true
	v.on()

	c := r.cluster(v.addr())
	c.apply(v, c.config(configmachine.TypeControlPlane, "cp-1",
		"machine: {install: {image: "+signed+schematicID+":v1.12.4}}"))
	require.True(t, c.secureBoot(v))

	require.NoError(t, c.upgrade(v, signed+schematicID+":v1.12.5", client.WithUpgradeForce(true)))
	v.until("runs the next version", func(ctx context.Context) error {
		reply, err := c.client(v).Version(ctx)
		if err == nil && reply.GetMessages()[0].GetVersion().GetTag() != "v1.12.5" {
			return context.DeadlineExceeded
		}

		return err
	})
	require.True(t, c.secureBoot(v))

	require.NoError(t, c.upgrade(v, "factory.talos.dev/metal-installer/"+schematicID+":v1.12.6", client.WithUpgradeForce(true)))
	v.stage("halted")
}

// secureBoot says whether a node was booted with SecureBoot, by its own word.
func (c *cluster) secureBoot(v *vm) bool {
	c.Helper()

	var state *runtime.SecurityState

	v.until("says how it was booted", func(ctx context.Context) (err error) {
		state, err = safe.StateGetByID[*runtime.SecurityState](ctx, c.client(v).COSI, runtime.SecurityStateID)

		return err
	})

	return state.TypedSpec().SecureBoot
}

// An unsigned system that is installed from a signed medium does not come up.
func TestUnsignedInstallation(t *testing.T) {
	r := newHarness(t)
	v := r.machine(11, nil)
	v.cd, v.hw.UEFI = &talos.Image{Version: talosVersion, Platform: talos.Metal, ISO: true, SecureBoot: true}, true
	v.on()

	c := r.cluster(v.addr())
	c.apply(v, c.config(configmachine.TypeControlPlane, "cp-1",
		"machine: {install: {image: ghcr.io/siderolabs/installer:v1.12.4}}"))
	v.stage("halted")
}

// A BIOS boots no signed image.
func TestSecureBootWithoutUEFI(t *testing.T) {
	v := newHarness(t).machine(11, nil)
	v.cd = &talos.Image{Version: talosVersion, Platform: talos.Metal, ISO: true, SecureBoot: true}
	v.on()
	v.stage("no bootable device")
}
