package tests

import (
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/tests/engine"
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

	proxmox, err := proxmoxapi.New(proxmoxapi.Access{
		Endpoint: s.Endpoint, Insecure: true, TokenID: s.TokenID, TokenSecret: s.TokenSecret,
	})
	require.NoError(t, err)

	hosts, err := proxmox.Hosts(t.Context())
	require.NoError(t, err)

	// Where the server has fewer hosts than the stack, all nodes are on one.
	enterprise := []string{
		"      - { name: pve2, capacity: { vcpu: 16, memoryMiB: 65536 } }\n", "",
		"      - { name: pve3, capacity: { vcpu: 16, memoryMiB: 65536 } }\n", "", "vcpu: 32", "vcpu: 64",
	}
	if len(hosts) == 3 {
		enterprise = nil
	}

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
			stack: "enterprise", edits: append(enterprise, "name: pve1", "name: pve", "talos-1.9.0.iso", "talos-enterprise.iso"),
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

// TestChangesOnServer has the operator of Proxmox VE, and others, change things on the hosts between updates.
func TestChangesOnServer(t *testing.T) {
	s := server(t)

	text, gpuPool := devText(t)
	file := filepath.Join(t.TempDir(), "Pulumi.changes.yaml")
	require.NoError(t, os.WriteFile(file, []byte(cores.ReplaceAllString(text[:gpuPool], "cores: 2")), 0o600))

	r := rehearse(t, file, func(o *rehearsal.Options) { o.Server = s })

	t.Cleanup(func() {
		assert.NoError(t, rehearsal.Destroy(context.WithoutCancel(t.Context()), r.Stack))
	})

	const (
		worker = "k3s-dev-worker-1"
		vm     = "501"
	)

	host := func(command string) string {
		t.Helper()

		out, err := s.Run(t.Context(), "pve", command)
		require.NoError(t, err, "%s: %s", command, out)

		return out
	}
	settle := func() {
		t.Helper()

		_, err := r.Stack.Up(engine.Terse(t.Context()), optup.Refresh(), optup.ProgressStreams(newOutput(t)))
		require.NoError(t, err)
		require.NoError(t, r.WaitReady(t.Context(), wait))
		requireNoChange(t, r.Stack)
	}

	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	t.Run("a change that a lock refuses is not taken for done", func(t *testing.T) {
		host("qm set " + vm + " --lock backup")
		set(t, r.Stack, "pools.worker.tags[0]", "fast")
		assert.Contains(t, failUp(t, r.Stack), "VM is locked (backup)")
		host("qm unlock " + vm)
		assert.Contains(t, failUp(t, r.Stack), "because an earlier update failed. Run 'pulumi up --refresh', which "+
			"detects this")
		settle()
		assert.Contains(t, host("qm config "+vm), "fast")
	})

	t.Run("more cores than the host has", func(t *testing.T) {
		set(t, r.Stack, "pools.worker.cores", "3")
		assert.Contains(t, failPreview(t, r.Stack), "pools.worker.cores: must be at most 2, the processors of host pve")
		unset(t, r.Stack, "pools.worker.cores")
	})

	t.Run("without a privilege of the change", func(t *testing.T) {
		privileges := host("pvesh get /access/roles/TalosProxmox --output-format json")
		host("pveum role modify TalosProxmox --privs " + without(t, privileges, "VM.Config.Memory"))
		set(t, r.Stack, "pools.worker.memoryMiB", "3072")
		assert.Contains(t, failUp(t, r.Stack), "the credentials lack VM.Config.Memory")
		host("pveum role modify TalosProxmox --append --privs VM.Config.Memory")
		up(t, r.Stack)
		require.NoError(t, r.WaitReady(t.Context(), wait))
		assert.Contains(t, host("qm config "+vm), "memory: 3072")
		requireNoChange(t, r.Stack)
	})

	t.Run("a disk is added, and not removed", func(t *testing.T) {
		set(t, r.Stack, "pools.worker.extraDisks[0].sizeGiB", "20")
		up(t, r.Stack)
		require.NoError(t, r.WaitReady(t.Context(), wait))
		assert.Contains(t, host("qm config "+vm), "size=20G")

		unset(t, r.Stack, "pools.worker.extraDisks")
		assert.Contains(t, failPreview(t, r.Stack), "extraDisks: a disk is not removed from a VM")
		set(t, r.Stack, "pools.worker.extraDisks[0].sizeGiB", "20")
		requireNoChange(t, r.Stack)
	})

	t.Run("renamed by hand", func(t *testing.T) {
		host("qm set " + vm + " --name another")
		assert.Contains(t, failUp(t, r.Stack), "rename it back: run 'qm set "+vm+" --name "+worker+"' on host pve")
		host("qm set " + vm + " --name " + worker)
		settle()
	})

	t.Run("cores changed by hand, which wait for a restart", func(t *testing.T) {
		host("qm set " + vm + " --cores 1")
		settle()
		assert.NotContains(t, host("qm pending "+vm), "new cores")
		assert.Contains(t, host("qm config "+vm), "cores: 2")
	})

	t.Run("switched off", func(t *testing.T) {
		host("qm stop " + vm)
		settle()
		assert.Contains(t, host("qm status "+vm), "running")
	})

	t.Run("gone", func(t *testing.T) {
		host("qm stop " + vm + " && qm destroy " + vm)
		settle()
		assert.Contains(t, host("qm status "+vm), "running")
	})
}

// without are the privileges of a role but one, as pveum takes them.
func without(t *testing.T, role, name string) string {
	t.Helper()

	var has map[string]int
	require.NoError(t, json.Unmarshal([]byte(role), &has))
	require.Contains(t, has, name)
	delete(has, name)

	return strings.Join(slices.Sorted(maps.Keys(has)), ",")
}

const moved = `config:
  talos-proxmox:proxmox:
    endpoint: https://pve.lan:8006
    tokenId: a@pve!b
    hosts: [{ name: pve }, { name: pve2 }, { name: pve3 }]
    storage: { disks: local-lvm, images: local }
  talos-proxmox:cluster: { name: moved, bootstrap: pulumi, versions: { talos: v1.12.4, kubernetes: v1.34.2 } }
  talos-proxmox:image: { source: factory, platform: nocloud, factory: { format: iso } }
  talos-proxmox:network: { addressing: static, cidr: 192.168.10.0/24, gateway: 192.168.10.1, bridge: vmbr0 }
  talos-proxmox:placement: { rebalance: true }
  talos-proxmox:defaults: { cores: 2, memoryMiB: 2048, diskGiB: 12 }
  talos-proxmox:pools:
    control: { role: controlplane, count: 1, vmids: "451", addresses: 192.168.10.11, host: pve }
    worker: { role: worker, count: 2, vmids: 551-552, addresses: 192.168.10.21-22, host: pve2 }
    held: { role: worker, count: 2, vmids: 651-652, addresses: 192.168.10.31-32, host: pve3, ha: {} }
`

// ruled are nodes that rules of high availability place, which Proxmox VE has since version 9.
const ruled = `    ruled:
      role: worker
      count: 2
      vmids: 751-759
      addresses: 192.168.10.41-49
      ha: { hosts: [pve, pve2], apart: true }
`

// TestHostsOnServer moves VMs between the three hosts of a server, and has high availability keep one.
func TestHostsOnServer(t *testing.T) {
	s := server(t)

	if nodes, err := s.Run(t.Context(), "pve", "ls /etc/pve/nodes"); err != nil || len(strings.Fields(nodes)) != 3 {
		t.Skip("SKIPPED: the server is not a cluster of the hosts pve, pve2 and pve3.", err)
	}

	version, err := s.Run(t.Context(), "pve", "pveversion")
	require.NoError(t, err)

	text, rules := moved, !strings.HasPrefix(version, "pve-manager/8")
	if rules {
		text += ruled
	}

	file := filepath.Join(t.TempDir(), "Pulumi.moved.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))

	r := rehearse(t, file, func(o *rehearsal.Options) { o.Server = s })

	t.Cleanup(func() {
		assert.NoError(t, rehearsal.Destroy(context.WithoutCancel(t.Context()), r.Stack))
	})

	host := func(name, command string) string {
		t.Helper()

		out, err := s.Run(t.Context(), name, command)
		require.NoError(t, err, "%s: %s", command, out)

		return out
	}
	on := func(name string, vmids ...string) {
		t.Helper()

		list := host(name, "qm list")
		for _, vmid := range vmids {
			assert.Regexp(t, `(?m)^ *`+vmid+` .*running`, list)
		}
	}
	settle := func() {
		t.Helper()

		_, err := r.Stack.Up(engine.Terse(t.Context()), optup.Refresh(), optup.ProgressStreams(newOutput(t)))
		require.NoError(t, err)
		require.NoError(t, r.WaitReady(t.Context(), wait))
		requireNoChange(t, r.Stack)
	}

	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	on("pve", "451")
	on("pve2", "551", "552")
	on("pve3", "651", "652")
	assert.Contains(t, host("pve", "ha-manager config"), "vm:651")
	requireNoChange(t, r.Stack)

	t.Log("one is migrated by hand, and the other by the program")
	host("pve2", "qm migrate 551 pve3 --online --with-local-disks")
	set(t, r.Stack, "pools.worker.host", "pve3")
	settle()
	on("pve3", "551", "552")

	t.Log("a VM that high availability keeps leaves")
	set(t, r.Stack, "pools.held.count", "1")
	up(t, r.Stack)
	assert.NotContains(t, host("pve", "ha-manager config"), "vm:652")
	assert.NotContains(t, host("pve3", "qm list"), " 652 ")
	requireNoChange(t, r.Stack)

	if !rules {
		return
	}

	t.Log("rules place VMs")
	on("pve", "751")
	on("pve2", "752")

	list := func() string { return host("pve", "ha-manager rules config --output-format json") }
	assert.Contains(t, list(), `"resources":"vm:751,vm:752"`)
	assert.NotContains(t, list(), `"errors"`)

	t.Log("one is changed by hand")
	host("pve", "ha-manager rules set node-affinity moved-ruled --nodes pve2,pve3")
	up(t, r.Stack)
	assert.Contains(t, list(), `"nodes":"pve,pve2"`)

	t.Log("no rule keeps one VM apart")
	set(t, r.Stack, "pools.ruled.count", "1")
	up(t, r.Stack)
	assert.NotContains(t, list(), "moved-ruled-apart")
	assert.Contains(t, list(), `"resources":"vm:751"`)
	requireNoChange(t, r.Stack)
}
