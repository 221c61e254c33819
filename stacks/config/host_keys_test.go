package config

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"talos-proxmox/components/spec"
	"talos-proxmox/tests/lab/sshd"
)

const otherKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKtMwlzQ0KJyTzJuLKkSXWbQbKUeVeyXeRaNPcUkTpTu"

// TestTrustHostKeys: what the configuration states is known to whoever reads the file, once, and another key stops.
func TestTrustHostKeys(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), ".ssh", "known_hosts")
	login := &spec.SSH{
		Port: 2222, Addresses: map[string]string{"a": "10.0.0.2", "b": "fd00::2"},
		HostKeys: map[string]string{"a": sshd.HostKey(), "b": sshd.HostKey()},
	}

	require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte("10.0.0.9 "+otherKey), 0o600))
	require.NoError(t, TrustHostKeys(path, login))

	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "10.0.0.9 "+otherKey+"\n[10.0.0.2]:2222 "+sshd.HostKey()+"\n[fd00::2]:2222 "+sshd.HostKey()+"\n",
		string(text))

	known, err := knownhosts.New(path)
	require.NoError(t, err)

	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(otherKey))
	require.NoError(t, err)
	require.ErrorContains(t, known("[10.0.0.2]:2222", &net.TCPAddr{}, key), "key mismatch")

	require.NoError(t, TrustHostKeys(path, login))

	again, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, text, again)

	login.HostKeys["a"] = otherKey
	require.EqualError(t, TrustHostKeys(path, login), "the configuration has 1 problem:\n"+
		"  - proxmox.ssh.hostKeys.a: is not the key that "+path+" has for 10.0.0.2:2222 (given: "+ssh.FingerprintSHA256(key)+
		"); run: ssh-keygen -R '[10.0.0.2]:2222'")

	require.NoError(t, TrustHostKeys("", login))
}

// TestPipelineNeedsHostKeys: where no machine remembers a host, a stack that uses SSH states the keys.
func TestPipelineNeedsHostKeys(t *testing.T) {
	t.Parallel()

	config, err := LoadFile("../examples/Pulumi.k3s.yaml")
	require.NoError(t, err)

	config.Pipeline, config.SSHPrivateKey = true, "key"

	_, problems, err := config.Check(nil)
	require.NoError(t, err)
	require.Contains(t, problems.Err().Error(), "proxmox.ssh.hostKeys.pve: is required in a pipeline: "+
		"the provider would accept the key of any machine; run 'ssh-keyscan -t ed25519 <address>', compare with")

	config.Proxmox.SSH.HostKeys = map[string]string{"pve": otherKey}
	config.Proxmox.SSH.Addresses = map[string]string{"pve": "10.0.0.2"}

	_, problems, err = config.Check(nil)
	require.NoError(t, err)
	require.NotContains(t, problems.Err().Error(), "hostKeys")
}
