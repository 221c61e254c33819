package ubuntu

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab"
	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/machine"
	"talos-proxmox/tests/lab/timeline"
	"talos-proxmox/tests/upstream"
)

const unitFile = `[Unit]
Description=Install
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/install
Restart=on-failure
RestartPreventExitStatus=78
StandardOutput=append:/var/log/install.log
`

const installation = `#!/bin/sh
set -eu
tmp=$(mktemp -d)
status=$(curl --output "$tmp/install.sh" https://raw.githubusercontent.com/k3s-io/k3s/v1.34.2%%2Bk3s1/install.sh)
[ "$status" = 200 ] || { echo "status $status"; exit 78; }
echo begun >/var/begun
INSTALL_K3S_VERSION=v1.34.2+k3s1 INSTALL_K3S_SKIP_START=true sh "$tmp/install.sh" %[1]s
journalctl --unit %[2]s --lines 0 --follow &
timeout 60 systemctl restart %[2]s || { journalctl --unit %[2]s; exit 1; }
echo installed
`

// guest is a machine of a test, and what it is told.
type guest struct {
	role, config string
	files        map[string]string
	// more is added to the user data.
	more string
}

func (g guest) userData(t *testing.T) string {
	t.Helper()

	service := "k3s"
	if g.role == "agent" {
		service = "k3s-agent"
	}

	files := map[string]string{
		"/etc/rancher/k3s/config.yaml": g.config, units + "install.service": unitFile,
		"/usr/local/sbin/install": fmt.Sprintf(installation, g.role, service),
	}
	for path, text := range g.files {
		files[path] = text
	}

	b := &strings.Builder{}
	b.WriteString("#cloud-config\nhostname: x\nusers: [{ name: ubuntu }]\npackages: [qemu-guest-agent]\n" + g.more +
		"runcmd: [[systemctl, start, qemu-guest-agent], [systemctl, enable, --now, --no-block, " +
		"install.service]]\nwrite_files:\n")

	for path, text := range files {
		mode := "0600"
		if strings.Contains(path, "sbin") {
			mode = "0755"
		}

		fmt.Fprintf(b, "  - path: %s\n    permissions: %q\n    content: %q\n", path, mode, text)
	}

	return b.String()
}

func pair(t *testing.T) (crt, key string) {
	t.Helper()

	ca, err := x509.NewSelfSignedCertificateAuthority(x509.ECDSA(true))
	require.NoError(t, err)

	return string(ca.CrtPEM), string(ca.KeyPEM)
}

// prepared are authorities as K3s finds them.
func prepared(t *testing.T) map[string]string {
	t.Helper()

	key, err := x509.NewRSAKey()
	require.NoError(t, err)

	files := map[string]string{tlsDir + "service.key": string(key.KeyPEM)}
	for _, name := range authorities {
		files[tlsDir+name+".crt"], files[tlsDir+name+".key"] = pair(t)
	}

	return files
}

// network is a firmware with a loopback network of its own.
func network(t *testing.T, change ...func(*Options)) (*Firmware, *journal.Journal, func(int) netip.Prefix) {
	t.Helper()

	r, err := lab.ReserveNetwork(16)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })

	j := &journal.Journal{}

	o := Options{Journal: j, Timeline: timeline.New()}
	for _, c := range change {
		c(&o)
	}

	return New(o), j, func(n int) netip.Prefix {
		a := r.Network().Addr().As4()
		a[3] = byte(n)

		return netip.PrefixFrom(netip.AddrFrom4(a), 16)
	}
}

// boot powers a machine on, and cuts its power at the end of the test.
func boot(t *testing.T, f *Firmware, id int, address netip.Prefix, g guest) *system {
	t.Helper()

	s := f.PowerOn(machine.Hardware{
		VMID: id, Name: fmt.Sprintf("vm-%d", id), Cores: 2, MemoryMiB: 2048, NICs: []machine.NIC{{MAC: "02:00:00:00:00:01"}},
		AgentDevice: true,
		Boot: []machine.BootDevice{{Disk: machine.NewDisk("scsi0", "x", 10<<30,
			&Image{ID: "ubuntu", Version: "24.04"})}},
		CloudInit: &machine.CloudInit{Format: "nocloud", Addresses: []netip.Prefix{address}, UserData: g.userData(t)},
	}).(*system) //nolint:forcetypeassert // it is what this firmware makes
	t.Cleanup(s.Kill)

	return s
}

// patient is how long a test waits: released components take their time on a busy machine.
const patient = 90 * time.Second

// onEach runs a test with the lab's Kubernetes and with the released one.
func onEach(t *testing.T, test func(*testing.T, ...func(*Options))) {
	t.Helper()

	t.Run("lab", func(t *testing.T) {
		t.Parallel()
		test(t)
	})
	t.Run("released", func(t *testing.T) {
		t.Parallel()

		binary, err := upstream.Open(t.Context())
		require.NoError(t, err)

		test(t, func(o *Options) { o.Upstream, o.Dir = binary, t.TempDir() })
	})
}

// logs waits until the machine's log says something.
func logs(t *testing.T, s *system, want string) {
	t.Helper()

	var text string

	if !assert.Eventually(t, func() bool {
		s.mu.Lock()
		on := s.on
		s.mu.Unlock()

		if on == nil {
			return false
		}

		text, _ = on.files.read("/var/log/install.log")

		return strings.Contains(text, want)
	}, patient, 20*time.Millisecond) {
		t.Fatalf("the log does not say %q:\n%s", want, text)
	}
}

// TestJoining: a node with the token and the password of its name joins, and no other.
func TestJoining(t *testing.T) {
	t.Parallel()
	onEach(t, testJoining)
}

func testJoining(t *testing.T, change ...func(*Options)) {
	t.Helper()

	f, j, at := network(t, change...)
	files := prepared(t)
	hash := sha256.Sum256([]byte(files[tlsDir+"server-ca.crt"]))
	full := "K10" + hex.EncodeToString(hash[:]) + "::"
	url := "https://" + at(11).Addr().String() + ":6443"

	first := boot(t, f, 401, at(11), guest{
		role: "server", files: files, config: "token: " + full +
			"server:secret\nagent-token: agents\ncluster-init: true\nnode-name: s1\ndisable: [traefik]\n",
	})
	logs(t, first, "installed")
	assert.Equal(t, []string{"coredns", "local-path-provisioner", "metrics-server"}, f.Deployed("s1"))

	agent := func(id int, name, token, password string) *system {
		return boot(t, f, id, at(id-480), guest{
			role:   "agent",
			config: "token: " + token + "\nserver: " + url + "\nnode-name: " + name + "\n", files: map[string]string{
				"/etc/rancher/node/password": password,
			},
		})
	}

	a1 := agent(501, "a1", full+"node:agents", "one")
	logs(t, a1, "installed")

	ready := func() bool {
		_, ready := f.all()[0].kube.NodeReady("a1")

		return ready
	}

	assert.Eventually(t, ready, patient, 20*time.Millisecond)

	logs(t, agent(502, "a2", full+"node:guessed", "two"), "401 Unauthorized: not authorized")
	logs(t, agent(503, "a3", "K10"+strings.Repeat("0", 64)+"::node:agents", "three"),
		"token CA hash does not match the Cluster CA certificate hash")
	logs(t, agent(504, "a1", full+"node:agents", "another"), "unable to verify password for node [a1]")

	second := boot(t, f, 402, at(12), guest{
		role:   "server",
		config: "token: " + full + "server:secret\nagent-token: agents\nserver: " + url + "\nnode-name: s2\n",
	})
	logs(t, second, "installed")

	// An agent's token makes no server.
	logs(t, boot(t, f, 403, at(13), guest{
		role:   "server",
		config: "token: " + full + "node:agents\nserver: " + url + "\nnode-name: s3\n",
	}), "401 Unauthorized")

	begun, err := a1.ReadFile("/var/begun")
	require.NoError(t, err)
	assert.Equal(t, "begun\n", begun, "what scripts write is in their files, and the guest agent reads it")

	a1.Kill()

	assert.False(t, ready(), "its power is off")
	require.NoError(t, j.Unknown())
}

// TestCriticalArguments: a server with other settings than the one that it joins at is refused, and the log names them.
func TestCriticalArguments(t *testing.T) {
	t.Parallel()

	f, j, at := network(t)
	files := prepared(t)
	hash := sha256.Sum256([]byte(files[tlsDir+"server-ca.crt"]))
	token := "token: K10" + hex.EncodeToString(hash[:]) + "::server:secret\n"
	url := "https://" + at(11).Addr().String() + ":6443"

	logs(t, boot(t, f, 401, at(11), guest{
		role: "server", files: files,
		config: token + "cluster-init: true\nnode-name: s1\ncluster-dns: 10.43.0.10\n",
	}), "installed")

	refused := boot(t, f, 402, at(12), guest{
		role: "server",
		config: token + "server: " + url + "\nnode-name: s2\ndisable: [servicelb, traefik]\nsecrets-encryption: true\n" +
			"cluster-domain: cluster.local\n",
	})
	logs(t, refused, "level=warning msg=\"critical configuration mismatched: disable-service-lb\"\n"+
		"level=warning msg=\"critical configuration mismatched: secrets-encryption\"\n")
	logs(t, refused, "critical configuration value mismatch between servers")

	logs(t, boot(t, f, 403, at(13), guest{
		role: "server", config: token + "server: " + url + "\nnode-name: s3\ndisable: [traefik]\n",
	}), "installed")
	require.NoError(t, j.Unknown())
}

// TestStrict: what cloud-init, systemd or K3s would not take is refused, and fails a test.
func TestStrict(t *testing.T) {
	t.Parallel()

	f, j, at := network(t)
	files := prepared(t)

	missing := prepared(t)
	delete(missing, tlsDir+"etcd/peer-ca.key")

	logs(t, boot(t, f, 401, at(11), guest{
		role: "server", files: missing,
		config: "token: x\ncluster-init: true\nnode-name: s1\n",
	}), "etcd/peer-ca is not prepared")
	logs(t, boot(t, f, 402, at(12), guest{
		role: "server", files: files,
		config: "token: x\ncluster-inti: true\nnode-name: s1\n",
	}), "cluster-inti")
	logs(t, boot(t, f, 403, at(13), guest{
		role: "server", files: files,
		config: "token: x\ncluster-init: true\nnode-name: s1\ndisable: [treafik]\n",
	}),
		"there is no packaged component treafik")
	require.NoError(t, j.Unknown())

	boot(t, f, 404, at(14), guest{role: "server", more: "hostnam: y\n"})
	require.Eventually(t, func() bool { return j.Unknown() != nil }, 5*time.Second, 20*time.Millisecond)
	require.ErrorContains(t, j.Unknown(), "additional properties 'hostnam' not allowed")
}
