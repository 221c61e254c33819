package tests

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/tests/rehearsal"
)

// serverVariable names the folder of a Proxmox VE server whose QEMU is a stand-in: "guests" in it is what the package
// guests needs, "net" has the first three bytes of its hosts' addresses, "tokens/<id>" the secrets of its tokens, and
// "ssh/id_ed25519" root's key.
const serverVariable = "TALOS_PROXMOX_TEST_SERVER"

// server is the Proxmox VE server that the environment names.
func server(t *testing.T) *rehearsal.Server {
	t.Helper()

	dir := os.Getenv(serverVariable)
	if dir == "" {
		t.Skip("SKIPPED: no Proxmox VE server with a stand-in for QEMU. Set " + serverVariable + " to its folder.")
	}

	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)

		return strings.TrimSpace(string(text))
	}

	network := read("net")
	s := &rehearsal.Server{
		Endpoint: "https://" + network + ".6:8006",
		TokenID:  "pulumi@pve!talos", TokenSecret: read("tokens/pulumi@pve!talos"), Role: "TalosProxmox",
		RootTokenID: "root@pam!full", RootTokenSecret: read("tokens/root@pam!full"),
		SSHKey: read("ssh/id_ed25519") + "\n", Guests: filepath.Join(dir, "guests"),
		Addresses: map[string]netip.Addr{},
	}

	for i, host := range []string{"pve", "pve2", "pve3"} {
		s.Addresses[host] = netip.MustParseAddr(network + "." + strconv.Itoa(6+i))
	}

	return s
}

var cores = regexp.MustCompile(`cores: \d+`)

// TestStacksOnServer runs the life of whole stacks on Proxmox VE's own code: the lab's systems are its guests.
func TestStacksOnServer(t *testing.T) {
	s := server(t)

	for _, c := range []struct {
		stack   string
		edits   []string // old and new texts, in turn
		workers string   // the pool that grows
		change  map[string]string
		// upgrade is a key and its value
		upgrade, to string
	}{
		{
			stack: "dev", edits: []string{"    template:\n", "    template:\n      allowNonCanonicalName: true\n"},
			workers: "worker", change: map[string]string{"pools.worker.memoryMiB": "5120", "pools.worker.diskGiB": "44"},
			upgrade: "cluster.versions.talos", to: "v1.12.5",
		},
		{
			stack: "atlas", edits: []string{"- name: atlas", "- name: pve"},
			change:  map[string]string{"defaults.memoryMiB": "6144"},
			upgrade: "cluster.versions.talos", to: "v1.11.3",
		},
		{
			stack: "enterprise", edits: []string{
				"      - { name: pve2, capacity: { vcpu: 16, memoryMiB: 65536 } }\n", "",
				"      - { name: pve3, capacity: { vcpu: 16, memoryMiB: 65536 } }\n", "",
				"pve1, capacity: { vcpu: 32", "pve, capacity: { vcpu: 64", "talos-1.9.0.iso", "talos-enterprise.iso",
			},
			workers: "worker", change: map[string]string{"pools.control.memoryMiB": "6144", "pools.worker.diskGiB": "110"},
			upgrade: "cluster.versions.talos", to: "v1.9.1",
		},
		{
			stack: "k3s", workers: "agent", change: map[string]string{"pools.agent.memoryMiB": "3072"},
			upgrade: "cluster.versions.k3s", to: "v1.34.3+k3s1",
		},
	} {
		t.Run(c.stack, func(t *testing.T) {
			found, err := rehearsal.Find(root, c.stack)
			require.NoError(t, err)

			text, err := os.ReadFile(found.Path)
			require.NoError(t, err)

			// The host has the processors of this machine.
			edited := cores.ReplaceAllString(strings.NewReplacer(c.edits...).Replace(string(text)), "cores: 2")
			file := filepath.Join(t.TempDir(), "Pulumi."+c.stack+".yaml")
			require.NoError(t, os.WriteFile(file, []byte(edited), 0o600))

			r := rehearse(t, file, func(o *rehearsal.Options) { o.Server = s })

			proxmox, err := proxmoxapi.New(proxmoxapi.Access{
				Endpoint: s.Endpoint, Insecure: true, TokenID: s.TokenID, TokenSecret: s.TokenSecret,
			})
			require.NoError(t, err)

			before := machines(t, proxmox)

			t.Cleanup(func() {
				if t.Failed() {
					assert.NoError(t, rehearsal.Destroy(context.WithoutCancel(t.Context()), r.Stack))
				}
			})

			t.Log("create")
			result := upResult(t, r.Stack)
			nodes := len(contractOf(t, result).NodeVMIDMap)
			assert.Len(t, machines(t, proxmox), len(before)+nodes)
			readCluster(t, result, nodes)
			requireOnlySame(t, upChanges(t, r.Stack))
			requireNoChange(t, r.Stack)

			if c.workers != "" {
				workers := len(contractOf(t, result).BootstrapNodes.Workers)

				t.Log("add a worker, and remove it")
				set(t, r.Stack, "pools."+c.workers+".count", strconv.Itoa(workers+1))
				readCluster(t, upResult(t, r.Stack), nodes+1)
				set(t, r.Stack, "pools."+c.workers+".count", strconv.Itoa(workers))
				readCluster(t, upResult(t, r.Stack), nodes)
			}

			t.Log("more memory, which restarts VMs, and larger disks")

			for key, value := range c.change {
				set(t, r.Stack, key, value)
			}

			readCluster(t, upResult(t, r.Stack), nodes)
			requireNoChange(t, r.Stack)

			t.Log("upgrade")
			set(t, r.Stack, c.upgrade, c.to)
			readCluster(t, upResult(t, r.Stack), nodes)
			requireNoChange(t, r.Stack)

			t.Log("destroy")
			destroy(t, r.Stack)
			assert.Equal(t, before, machines(t, proxmox))
		})
	}
}
