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

	login.HostKeys["b"] = sshd.HostKey()
	require.NoError(t, TrustHostKeys("", login))
}

// TestTrustHostKeysReadsFirst: a file that cannot be written, and has all keys, is none that an update fails for.
func TestTrustHostKeysReadsFirst(t *testing.T) {
	t.Parallel()

	dir := filepath.Join(t.TempDir(), "home")
	path := filepath.Join(dir, ".ssh", "known_hosts")
	login := &spec.SSH{
		Port: 22, Addresses: map[string]string{"a": "10.0.0.2"}, HostKeys: map[string]string{"a": sshd.HostKey()},
	}

	// A file in the place of a directory keeps root, too, from making one.
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	require.EqualError(t, TrustHostKeys(path, login), "proxmox.ssh.hostKeys: cannot be compared with "+path+": stat "+path+
		": not a directory; let the user that runs the program read it")

	require.NoError(t, os.Remove(dir))
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.Symlink("/proc/self/nowhere", filepath.Join(dir, ".ssh")))
	require.EqualError(t, TrustHostKeys(path, login), "proxmox.ssh.hostKeys: cannot be added to "+path+": mkdir "+
		filepath.Dir(path)+": file exists; make it writable, or add to it:\n\n      10.0.0.2 "+sshd.HostKey()+"\n")

	require.NoError(t, os.Remove(filepath.Join(dir, ".ssh")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".ssh"), 0o700))
	require.NoError(t, os.WriteFile(path, []byte("10.0.0.2 "+sshd.HostKey()), 0o400))

	lines, err := unknownHosts(path, login)
	require.NoError(t, err)
	require.Empty(t, lines, "nothing is to be written, also by root")
	require.NoError(t, TrustHostKeys(path, login))

	require.NoError(t, os.Chmod(path, 0o600))
	require.NoError(t, os.WriteFile(path, []byte("10.0.0.2 nonsense\n"), 0o600))
	require.ErrorContains(t, TrustHostKeys(path, login), "correct the line that it names, or move the file away")
}

// TestOfThisMachine: what a program has set itself stays; the rest is as the environment says.
func TestOfThisMachine(t *testing.T) {
	t.Setenv("HOME", "/home/a")

	of := func(c Config) Config {
		c.OfThisMachine()

		return c
	}

	// Whatever pipeline the test runs in.
	t.Setenv("PULUMI_DISABLE_CI_DETECTION", "true")
	t.Setenv("CI", "true")
	require.False(t, *of(Config{}).Pipeline)
	require.Equal(t, "/home/a/.ssh/known_hosts", of(Config{}).KnownHosts)

	require.NoError(t, os.Unsetenv("PULUMI_DISABLE_CI_DETECTION"))

	for _, value := range []string{"true", "1", "woodpecker"} {
		t.Setenv("CI", value)
		require.True(t, *of(Config{}).Pipeline, value)
	}

	own := of(Config{Pipeline: new(false), KnownHosts: os.DevNull})
	require.False(t, *own.Pipeline)
	require.Equal(t, os.DevNull, own.KnownHosts)

	for _, value := range []string{"", "0", "false"} {
		t.Setenv("CI", value)
		t.Setenv("JENKINS_URL", "https://ci.lan")
		require.True(t, *of(Config{}).Pipeline, "%q says nothing of Jenkins", value)
	}

	require.False(t, *of(Config{Pipeline: new(false)}).Pipeline)
}

// TestPipelineNeedsHostKeys: where no machine remembers a host, a stack that uses SSH states the keys.
func TestPipelineNeedsHostKeys(t *testing.T) {
	t.Parallel()

	config, err := LoadFile("../examples/Pulumi.k3s.yaml")
	require.NoError(t, err)

	config.Pipeline, config.SSHPrivateKey = new(true), "key"

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
