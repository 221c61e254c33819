package hosts

import (
	"crypto/ed25519"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/spec"
)

// TestHostKeys: a host whose key is another one, or cannot be compared, stops what would be made on it.
func TestHostKeys(t *testing.T) {
	t.Parallel()

	signer, err := ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	require.NoError(t, err)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })

	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}

			config := &ssh.ServerConfig{NoClientAuth: true}
			config.AddHostKey(signer)

			_, _, _, _ = ssh.NewServerConn(conn, config) //nolint:dogsled // the handshake is all
			_ = conn.Close()
		}
	}()

	at := netip.MustParseAddrPort(listener.Addr().String())
	right := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
	wrong := "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKtMwlzQ0KJyTzJuLKkSXWbQbKUeVeyXeRaNPcUkTpTu"

	for name, c := range map[string]struct {
		key             string
		there           bool // all VMs are
		closed          bool
		problem, warned string
	}{
		"the key":       {key: right},
		"not set":       {},
		"another":       {key: wrong, problem: "is not the key that " + at.String() + " shows: SHA256:"},
		"another later": {key: wrong, there: true, problem: "is not the key that "},
		"another type": {
			key:     "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBGsX0fLhLEJH+Lzm5WOkQPJ3A32BLeszoPShOUXYmMKWT+NC4v4af5uO5+tKfA+eFivOM1drMV7Oy7ZAaDe/UfU=",
			problem: "cannot be compared: ",
		},
		"closed":       {key: right, closed: true, problem: "connection refused"},
		"closed later": {key: right, closed: true, there: true, warned: "was not compared: "},
	} {
		t.Run(name, func(t *testing.T) {
			p := plantest.K3s(t)
			host, port := p.Nodes()[0].Host, int(at.Port())

			if c.closed {
				port = 1
			}

			p.SSH = &spec.SSH{Port: port, Addresses: map[string]string{host: at.Addr().String()}, HostKeys: map[string]string{}}
			if c.key != "" {
				p.SSH.HostKeys[host] = c.key
			}

			found := Checker{checks.New(p, nil)}
			for _, n := range p.Nodes() {
				found.Absent[n.VMID] = !c.there
			}

			require.NoError(t, found.CheckHostKeys(t.Context()))

			if c.problem == "" {
				require.NoError(t, found.Problems.Err())
			} else {
				require.ErrorContains(t, found.Problems.Err(), "proxmox.ssh.hostKeys."+host+": ")
				require.ErrorContains(t, found.Problems.Err(), c.problem)
			}

			require.Equal(t, c.warned != "", len(found.Warnings) == 1)
		})
	}
}
