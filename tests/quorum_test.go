package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/components/etcdbackup"
	"talos-proxmox/tests/lab/talos"
	"talos-proxmox/tests/lab/world"
)

// TestQuorumLost loses two of three control planes for good, and brings the cluster back from a snapshot, as the page
// about recovery says: what Kubernetes knew is there again, and workers need not be touched.
func TestQuorumLost(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, threeAndOne), onRealKubernetes)
	api := kubernetesClient(t, upResult(t, r.Stack).Outputs)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireVoters(t, r, 3)

	keep := func(name string) {
		_, err := api.CoreV1().ConfigMaps("default").Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}

	project := r.Stack.Workspace().WorkDir()
	binary := compile(t, "./stacks/ops")

	etcd := func(words ...string) (string, error) {
		c := exec.CommandContext(t.Context(), binary,
			append([]string{"-C", project, "-s", r.Stack.Name(), "etcd"}, words...)...)
		c.Env = append(r.Backend.Environ(), pathWith(filepath.Dir(r.Engine().CLI())))

		out, err := c.CombinedOutput()

		return string(out), err
	}

	keep("before")

	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)

	key := filepath.Join(t.TempDir(), "key.txt")
	require.NoError(t, os.WriteFile(key, []byte(identity.String()+"\n"), 0o600))
	set(t, r.Stack, "lifecycle.backup.recipients[0]", identity.Recipient().String())

	said, err := etcd("snapshot")
	require.NoError(t, err, said)
	keep("after")

	store := etcdbackup.Store{Dir: filepath.Join(project, "etcd-backups"), Cluster: "home"}
	kept, err := store.List()
	require.NoError(t, err)
	require.Len(t, kept, 1)

	assert.Contains(t, said, kept[0].SHA256)
	assert.Regexp(t, `\.db\.age$`, kept[0].Path)

	said, err = etcd("check", kept[0].Path)
	require.Error(t, err)
	assert.Contains(t, said, "it is encrypted: decrypt it with 'go run ./stacks/ops etcd decrypt <file>'")

	said, err = etcd("decrypt", kept[0].Path)
	require.Error(t, err)
	assert.Contains(t, said, "the stack has no backupPassphrase: name the file of an identity with --identity")

	said, err = etcd("decrypt", kept[0].Path, "--identity", key)
	require.NoError(t, err, said)

	kept[0].Path = strings.TrimSuffix(kept[0].Path, ".age")
	name := filepath.Base(kept[0].Path)

	t.Run("not while there is a quorum", func(t *testing.T) {
		set(t, r.Stack, "cluster.recoverFrom", "etcd-backups/"+name)
		requireNoChange(t, r.Stack)

		for i, control := range []string{"home-control-1", "home-control-2", "home-control-3"} {
			set(t, r.Stack, "lifecycle.replace["+string(rune('0'+i))+"]", control)
		}

		before := r.Lab.World().Snapshot()

		const refused = "is not removed: etcd has its quorum, and nothing needs to be recovered; take out " +
			"cluster.recoverFrom, and name one control plane " +
			"at a time in lifecycle.replace"

		assert.Contains(t, failPreview(t, r.Stack), refused)
		assert.Contains(t, failUp(t, r.Stack), refused)
		assert.Equal(t, before, r.Lab.World().Snapshot())
	})

	lost := []string{"home-control-2", "home-control-3"}

	// Their VMs run, and nothing on them answers: they might go on without this machine reaching them.
	for _, gone := range lost {
		r.Talos.Break(gone, talos.NeverReturns)
		reset(t, r, gone)
	}

	assert.Regexp(t, `home-control-\d is not removed: etcd does not answer, and it is unknown whether it needs home-control-\d: home-control-2, home-control-3 may still have a quorum with it; make sure that this machine reaches the control planes; switch off the VMs of those that are broken; then run 'pulumi up' again`, failUp(t, r.Stack))
	assert.Len(t, vmids(r), 4)

	for _, gone := range lost {
		r.Talos.Mend(gone, talos.NeverReturns) // with the machines that are made again

		_, err := r.Lab.World().Stop(world.Caller{ID: r.Lab.Credentials().TokenID}, "pve", vmids(r)[gone])
		require.NoError(t, err)
	}

	t.Run("a snapshot needs no quorum", func(t *testing.T) {
		said, err := etcd("snapshot")
		require.NoError(t, err, said)

		said, err = etcd("list")
		require.NoError(t, err, said)
		assert.Contains(t, said, name)

		said, err = etcd("check", filepath.Join(project, "etcd-backups", name))
		require.NoError(t, err, said)
		assert.Contains(t, said, "a snapshot, its hash is right")
	})

	t.Run("not while a newer one is there", func(t *testing.T) {
		const newer = " is a newer snapshot of this cluster; set cluster.recoverFrom to the newest one"

		assert.Contains(t, failUp(t, r.Stack), newer)
		assert.Len(t, vmids(r), 4)

		all, err := store.List()
		require.NoError(t, err)

		for _, s := range all {
			if s.Taken.After(kept[0].Taken) {
				require.NoError(t, os.Rename(s.Path, filepath.Join(t.TempDir(), filepath.Base(s.Path))))
			}
		}
	})

	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireNoChange(t, r.Stack)

	all, err := store.List()
	require.NoError(t, err)

	for _, s := range all {
		assert.Equal(t, s.Path != kept[0].Path, strings.HasSuffix(s.Path, ".age"), s.Path)
	}

	found, err := api.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)

	var names []string
	for _, m := range found.Items {
		names = append(names, m.Name)
	}

	assert.Contains(t, names, "before")
	assert.NotContains(t, names, "after", "the snapshot is older")
	assert.Equal(t, []string{"home-control-1", "home-control-2", "home-control-3", "home-worker-1"},
		kubernetesNodes(t, api))

	assert.Contains(t, upResult(t, r.Stack).StdOut, "cluster.recoverFrom is still etcd-backups/"+name)
	unset(t, r.Stack, "cluster.recoverFrom")
	assert.NotContains(t, upResult(t, r.Stack).StdOut, "cluster.recoverFrom is still")
	requireNoChange(t, r.Stack)

	require.NoError(t, os.WriteFile(kept[0].Path, []byte("half"), 0o600))

	said, err = etcd("check", kept[0].Path)
	require.Error(t, err)
	assert.Contains(t, said, "nothing can be recovered from")
}

// TestHostLost loses a host with a control plane on it, and brings the node back on another, as the page about recovery
// says.
func TestHostLost(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, strings.NewReplacer(
		"[{ name: pve }]", "[{ name: pve1 }, { name: pve2 }, { name: pve3 }]", "count: 1, addresses: 192.168.10.21-49",
		"count: 0, addresses: 192.168.10.21-49",
	).Replace(threeAndOne)+"  talos-proxmox:placement: { strategy: spread }\n"))
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireVoters(t, r, 3)

	vmid := vmids(r)["home-control-2"]

	// What the host had is removed from Proxmox VE with it.
	remove(t, r, vmid)
	require.NoError(t, r.Lab.World().SetOffline("pve2", true))

	set(t, r.Stack, "proxmox.hosts[1].name", "pve3")
	unset(t, r.Stack, "proxmox.hosts[2]")

	_, err := r.Stack.Up(t.Context(), optup.Refresh(), optup.ProgressStreams(newOutput(t)))
	require.NoError(t, err)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireVoters(t, r, 3)
	assert.Equal(t, vmid, vmids(r)["home-control-2"])

	for _, n := range r.Nodes() {
		assert.NotEqual(t, "pve2", n.Host, n.Name)
	}

	requireNoChange(t, r.Stack)
}
