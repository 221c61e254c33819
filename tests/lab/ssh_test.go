package lab_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/luthermonson/go-proxmox"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"talos-proxmox/tests/lab"
	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/talos"
	"talos-proxmox/tests/lab/world"
)

// importScript is what the provider runs to import a disk (bpg v0.69.1: proxmoxtf/resource/vm/disk/disk.go,
// proxmox/ssh/client.go).
func importScript(file, store string, id int) string {
	script := strings.Join([]string{
		`set -e`,
		`try_sudo(){ if [ $(sudo -n pvesm apiinfo 2>&1 | grep "APIVER" | wc -l) -gt 0 ]; then sudo $1; else $1; fi }`,
		fmt.Sprintf(`file_id="%s"`, file),
		`file_format="raw"`,
		fmt.Sprintf(`datastore_id_target="%s"`, store),
		fmt.Sprintf(`vm_id="%d"`, id),
		`disk_options="aio=io_uring,backup=1,iothread=0,ssd=0,discard=on,cache=none,replicate=1"`,
		`disk_interface="scsi0"`,
		`source_image=$(try_sudo "pvesm path $file_id")`,
		`imported_disk="$(try_sudo "qm importdisk $vm_id $source_image $datastore_id_target -format $file_format" | grep "unused0" | cut -d ":" -f 3 | cut -d "'" -f 1)"`,
		`disk_id="${datastore_id_target}:$imported_disk,${disk_options}"`,
		`try_sudo "qm set $vm_id -${disk_interface} $disk_id"`,
	}, "; ")

	return fmt.Sprintf("/bin/bash -c '%s'", strings.ReplaceAll(script, `'`, `'"'"'`))
}

// probeScript and newImportScript are what a later release of it runs (v0.111.1).
const probeScript = `/bin/bash -c 'if [ "$(id -u)" = "0" ]; then echo "0"; elif [ $(sudo -n /usr/sbin/pvesm apiinfo 2>&1 | grep "APIVER" | wc -l) -gt 0 ] ` +
	`|| sudo -n /usr/sbin/qm --help >/dev/null 2>&1; then echo "1"; else echo "0"; fi'`

func newImportScript(sudo bool, file, store string, id int) string {
	script := strings.Join([]string{
		fmt.Sprintf("export TRY_SUDO_USE_SUDO=%d", map[bool]int{true: 1}[sudo]),
		`set -e`,
		`_try_sudo_check(){ if [ -z "${_try_sudo_cached:-}" ]; then _try_sudo_use_sudo="${TRY_SUDO_USE_SUDO:-0}"; _try_sudo_cached=1; fi; }; ` +
			`try_sudo(){ _try_sudo_check; if [ "$_try_sudo_use_sudo" = "1" ]; then sudo "$@"; else "$@"; fi; }`,
		`file_id=` + file,
		`file_format=raw`,
		`datastore_id_target=` + store,
		fmt.Sprintf(`vm_id=%d`, id),
		`disk_options=aio=io_uring,backup=1,iothread=0,ssd=0,discard=on,cache=none,replicate=1`,
		`disk_interface=scsi0`,
		`source_image=$(try_sudo /usr/sbin/pvesm path $file_id)`,
		`imported_disk=$(try_sudo /usr/sbin/qm disk import $vm_id $source_image $datastore_id_target -format $file_format | grep unused0 | cut -d : -f 3 | cut -d \' -f 1)`,
		`disk_id=${datastore_id_target}:$imported_disk,$disk_options`,
		`try_sudo /usr/sbin/qm set $vm_id -${disk_interface} $disk_id`,
	}, "; ")

	return fmt.Sprintf("/bin/bash -c '%s'", strings.ReplaceAll(script, `'`, `'"'"'`))
}

// shell runs a command on the lab's first host and returns what it printed.
func shell(t *testing.T, l *lab.Lab, auth ssh.AuthMethod, command string) (string, error) {
	t.Helper()

	c, err := ssh.Dial("tcp", l.SSHAddress("pve").String(), &ssh.ClientConfig{
		User: l.SSH().Username, Auth: []ssh.AuthMethod{auth}, HostKeyCallback: ssh.InsecureIgnoreHostKey(), //nolint:gosec // the lab's
	})
	if err != nil {
		return "", err
	}
	defer c.Close()

	s, err := c.NewSession()
	if err != nil {
		return "", err
	}

	out, err := s.CombinedOutput(command)

	return string(out), err
}

func byKey(t *testing.T, l *lab.Lab) ssh.AuthMethod {
	t.Helper()

	signer, err := ssh.ParsePrivateKey([]byte(l.SSH().PrivateKey))
	require.NoError(t, err)

	return ssh.PublicKeys(signer)
}

// emptyVM makes a VM that boots the disk that it is yet to get.
func emptyVM(t *testing.T, l *lab.Lab, id int) {
	t.Helper()

	node, err := byToken(l).Node(t.Context(), "pve")
	require.NoError(t, err)
	task, err := node.NewVirtualMachine(t.Context(), id,
		proxmox.VirtualMachineOption{Name: "boot", Value: "order=scsi0"},
		proxmox.VirtualMachineOption{Name: "name", Value: "node"})
	wait(t, task, err)
}

func TestImportOfADisk(t *testing.T) {
	for name, tc := range map[string]struct {
		file, name, compression string
		store, volume           string
		login                   lab.SSH
		later                   bool
	}{
		"raw, decompressed": {"metal-amd64.raw.zst", "talos.img", "zst", "tank", "tank:vm-401-disk-0", lab.SSH{}, false},
		"qcow2": {
			"nocloud-amd64.qcow2", "talos.img", "", "tank", "tank:vm-401-disk-0",
			lab.SSH{Username: "terraform"},
			false,
		},
		"to a directory": {
			"metal-amd64.qcow2", "talos.img", "", "local", "local:401/vm-401-disk-0.raw",
			lab.SSH{Password: "secret"},
			false,
		},
		"later release": {"metal-amd64.qcow2", "talos.img", "", "tank", "tank:vm-401-disk-0", lab.SSH{}, true},
		"later release, a user": {
			"metal-amd64.qcow2", "talos.img", "", "tank", "tank:vm-401-disk-0",
			lab.SSH{Username: "terraform"},
			true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, fw := withTalos(t, func(c *lab.Config) {
				c.SSH = tc.login
				// Later versions have no import for users without a path of an administrator.
				c.Version = world.Version8
			})
			emptyVM(t, l, 401)

			node, err := byToken(l).Node(t.Context(), "pve")
			require.NoError(t, err)

			_, err = node.StorageDownloadURL(t.Context(), &proxmox.StorageDownloadURLOptions{
				Node: "pve", Storage: "local", Content: "iso", Filename: tc.name, Compression: tc.compression,
				URL: l.FactoryURL() + "/image/" + withAgent().ID() + "/v1.12.3/" + tc.file,
			})
			require.NoError(t, err)
			require.Eventually(t, func() bool { return len(l.World().Downloads()) == 1 }, time.Minute, time.Millisecond)
			require.Empty(t, l.World().Downloads()[0].Error)

			script := importScript("local:iso/"+tc.name, tc.store, 401)

			if tc.later {
				sudo, err := shell(t, l, byKey(t, l), probeScript)
				require.NoError(t, err)
				require.Equal(t, map[bool]string{true: "0\n", false: "1\n"}[tc.login.Username == ""], sudo)

				script = newImportScript(sudo == "1\n", "local:iso/"+tc.name, tc.store, 401)
			}

			out, err := shell(t, l, byKey(t, l), script)
			require.NoError(t, err, out)

			vm, err := node.VirtualMachine(t.Context(), 401)
			require.NoError(t, err)
			require.Equal(t, tc.volume+",aio=io_uring,backup=1,cache=none,discard=on,iothread=0,replicate=1,size=1306M,ssd=0",
				vm.VirtualMachineConfig.SCSI0)
			require.Empty(t, vm.VirtualMachineConfig.Unuseds, "it has found its place")

			task, err := vm.ResizeDisk(t.Context(), "scsi0", "21474836480")
			wait(t, task, err)
			task, err = vm.Start(t.Context())
			wait(t, task, err)

			require.Eventually(t, func() bool {
				nodes := fw.Nodes()

				return len(nodes) == 1 && nodes[0].Stage == talos.StageMaintenance && nodes[0].Version == "v1.12.3"
			}, 10*time.Second, 5*time.Millisecond)
		})
	}
}

func TestLoginToAHost(t *testing.T) {
	l, _ := start(t)

	out, err := shell(t, l, ssh.Password(l.Credentials().Password), "pvesm apiinfo")
	require.NoError(t, err)
	require.Equal(t, "APIVER 11\nAPIAGE 2\n", out)

	_, err = shell(t, l, ssh.Password("wrong"), "pvesm apiinfo")
	require.ErrorContains(t, err, "unable to authenticate")

	// root has no sudo; another user needs it.
	out, err = shell(t, l, byKey(t, l), "sudo -n pvesm apiinfo")
	require.Equal(t, "bash: line 1: sudo: command not found\n", out)
	require.Equal(t, 127, status(err))

	l, _ = start(t, func(c *lab.Config) { c.SSH = lab.SSH{Username: "terraform", NoSudo: true} })
	out, err = shell(t, l, byKey(t, l), importScript("local:iso/talos.img", "tank", 401))
	require.Equal(t, "bash: line 1: pvesm: command not found\n", out, "which the provider knows how to read")
	require.Error(t, err)
	out, err = shell(t, l, byKey(t, l), newImportScript(false, "local:iso/talos.img", "tank", 401))
	require.Equal(t, "please run as root\n", out)
	require.Equal(t, 255, status(err))
}

// TestLoginOfAnotherUser: since Proxmox VE 9 sudo finds no programs of administrators by their names. With their paths,
// which later releases of the provider write, it does.
func TestLoginOfAnotherUser(t *testing.T) {
	for version, want := range map[world.Version]string{
		world.Version8: "APIVER 11\nAPIAGE 2\n", world.Version9: "sudo: pvesm: command not found\n",
	} {
		l, _ := start(t, func(c *lab.Config) { c.SSH, c.Version = lab.SSH{Username: "terraform"}, version })

		out, err := shell(t, l, byKey(t, l), "sudo -n pvesm apiinfo")
		require.Equal(t, want, out)
		require.Equal(t, map[world.Version]int{world.Version8: 0, world.Version9: 1}[version], status(err))

		out, err = shell(t, l, byKey(t, l), probeScript)
		require.NoError(t, err)
		require.Equal(t, "1\n", out, "with the path, the program is found on both")

		out, err = shell(t, l, byKey(t, l), importScript("local:iso/talos.img", "tank", 401))
		require.Error(t, err)

		if version == world.Version9 {
			require.Contains(t, out, "pvesm: command not found")
		} else {
			require.NotContains(t, out, "command not found")
		}
	}
}

func status(err error) int {
	var exit *ssh.ExitError
	if errors.As(err, &exit) {
		return exit.ExitStatus()
	}

	return 0
}

func TestWhatAHostDoesNotDo(t *testing.T) {
	l, err := lab.Start(t.Context(), lab.Config{
		Hosts: []lab.Host{{Name: "pve", Storages: []lab.Storage{{
			Name: "tank", Type: "lvmthin",
			Content: []string{"images"},
		}, {Name: "local", Type: "dir", Content: []string{"iso"}}}}},
		Templates: []lab.Template{{Name: "base", VMID: 9000, Host: "pve", Storage: "tank", DiskGiB: 10}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })

	key := byKey(t, l)

	for command, want := range map[string]string{
		"pvesm path local:iso/gone.iso": "volume 'local:iso/gone.iso' does not exist\n",
		"qm importdisk 401 /tmp/x tank": "importing disk '/tmp/x' to VM 401 ...\nConfiguration file " +
			"'nodes/pve/qemu-server/401.conf' does not exist\n",
		"qm importdisk 9000 /tmp/x tank": "importing disk '/tmp/x' to VM 9000 ...\n/tmp/x: non-existent or " +
			"non-regular file\n",
		"qm set 9000 -cores many": "update VM 9000: -cores many\n400 Parameter verification " +
			"failed.\ncores: type check ('integer') failed - got 'many'\n",
		"echo a:b:c | cut -d : -f 2 | grep b":       "b\n",
		"printf 'a\\nb\\n' | wc -l; cat </dev/null": "2\nbash: line 1: cat: command not found\n",
	} {
		out, _ := shell(t, l, key, command) // some fail
		require.ElementsMatch(t, strings.Split(want, "\n"), strings.Split(out, "\n"), command)
	}

	// What the lab does not know is noted, and fails the test that asked.
	for _, command := range []string{
		"qm start 9000", "qm set 9000 -nothing 1", "rm -rf /", "echo x > /etc/passwd",
		"pvesm list local",
	} {
		_, err := shell(t, l, key, command)
		require.Error(t, err, command)
	}

	unknown := l.Journal().Unknown().Error()
	for _, want := range []string{
		"cat", "qm start 9000", "qm set 9000 -nothing 1", "rm -rf /", "open /etc/passwd",
		"pvesm list local",
	} {
		require.Contains(t, unknown, "ssh pve "+want)
	}
}

func TestFaultsOfAHost(t *testing.T) {
	l, _ := start(t)
	emptyVM(t, l, 401)

	plant := func(call string, kind journal.Kind) {
		l.Journal().Plant(journal.Fault{
			Face: journal.SSH, Subject: "pve", Call: regexp.MustCompile(call), Kind: kind,
			Message: "no space left",
		})
	}

	plant("^qm importdisk", journal.Refuse)
	require.NoError(t, l.World().AddFile("pve", "local", "iso", "talos.img", 1<<30, nil))
	out, err := shell(t, l, byKey(t, l), importScript("local:iso/talos.img", "tank", 401))
	require.Error(t, err)
	require.Contains(t, out, "no space left")

	plant("^pvesm path", journal.Reset)
	_, err = shell(t, l, byKey(t, l), importScript("local:iso/talos.img", "tank", 401))

	var missing *ssh.ExitMissingError
	require.ErrorAs(t, err, &missing)

	plant("^login", journal.Reset)
	_, err = shell(t, l, byKey(t, l), "pvesm apiinfo")
	require.Error(t, err)
}

// TestThePortOfSSH: clients that are told of no port find the hosts, where that port can be had.
func TestThePortOfSSH(t *testing.T) {
	r, err := lab.ReserveNetwork(16)
	require.NoError(t, err)

	first := r.Network().Addr().As4()
	host := netip.AddrPortFrom(netip.AddrFrom4([4]byte{first[0], first[1], 1, 1}), 22)

	other, err := net.Listen("tcp4", host.String())
	if err != nil {
		require.NoError(t, r.Close())
		t.Skipf("no server can be had at that port: %v", err)
	}

	defer other.Close()

	l, _ := start(t, func(c *lab.Config) { c.Network, c.Hosts[0].Address = r, host.Addr() })
	require.NotEqual(t, host, l.SSHAddress("pve"), "another server is there")

	_, err = shell(t, l, byKey(t, l), "pvesm apiinfo")
	require.NoError(t, err)

	l, _ = start(t)
	require.Equal(t, host.Port(), l.SSHAddress("pve").Port())

	_, err = shell(t, l, byKey(t, l), "pvesm apiinfo")
	require.NoError(t, err)
}
