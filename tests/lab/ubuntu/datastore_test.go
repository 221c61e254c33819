package ubuntu

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestDatastore: a disk without etcd begins a new one or joins, one with it goes on, and Nodes say which member goes.
func TestDatastore(t *testing.T) {
	t.Parallel()
	onEach(t, testDatastore)
}

func testDatastore(t *testing.T, change ...func(*Options)) {
	t.Helper()

	f, j, at := network(t, change...)
	files := prepared(t)
	hash := sha256.Sum256([]byte(files[tlsDir+"server-ca.crt"]))
	token := "token: K10" + hex.EncodeToString(hash[:]) + "::server:secret\nagent-token: agents\n"

	first := boot(t, f, 401, at(11), guest{
		role: "server", files: files,
		config: token + "cluster-init: true\nnode-name: s1\n",
	})
	logs(t, first, "installed")

	join := func(id int, name string) *system {
		s := boot(t, f, id, at(id-390), guest{
			role:   "server",
			config: token + "server: https://" + at(11).Addr().String() + ":6443\nnode-name: " + name + "\n",
		})

		return s
	}

	second, third := join(402, "s2"), join(403, "s3")
	logs(t, second, "installed")
	logs(t, third, "installed")
	assert.Equal(t, [][]string{{"s1", "s2", "s3"}}, f.Members())

	c := f.all()[0]
	gone := func(node string) {
		require.Eventually(t, func() bool { return !slices.Contains(c.voters(), node) }, patient, 20*time.Millisecond)
	}

	// Its K3s is restarted by that, and comes back as another member.
	require.NoError(t, c.kube.UpdateNode("s3", func(n *corev1.Node) { n.Annotations[removeMember] = "true" }))
	require.Eventually(t, func() bool {
		n := c.kube.Node("s3")

		return n.Annotations[removeMember] == "false" && n.Annotations[removedMember] == "" &&
			slices.Contains(c.voters(), "s3")
	}, patient, 20*time.Millisecond)

	third.Kill()
	assert.Equal(t, []string{"s1", "s2", "s3"}, c.voters(), "etcd goes on counting it")
	logs(t, join(404, "s3"), "duplicate node name found")

	// etcd keeps its quorum.
	require.ErrorContains(t, c.etcd.add(t.Context(), member{name: "s4-0", node: "s4", address: at(15).Addr().String()}),
		"unhealthy cluster")

	for _, m := range c.etcd.voters() {
		if m.node == "s2" {
			_, err := c.etcd.remove(m.name, m.address)
			require.ErrorContains(t, err, "unhealthy cluster")
		}
	}

	require.NoError(t, c.kube.UpdateNode("s3", func(n *corev1.Node) { n.Annotations[removeMember] = "true" }))
	gone("s3")

	second.Kill()
	require.Eventually(t, func() bool {
		err := c.healthy(first.service)

		return err != nil && err.Error() == errNoLeader.Error()
	}, patient, 20*time.Millisecond, "one of two is no quorum")

	again := boot(t, f, 401, at(21), guest{
		role: "server", files: files,
		config: token + "cluster-init: true\nnode-name: s1\n",
	})
	logs(t, again, "installed")
	assert.Len(t, f.Members(), 2, "another disk begins another cluster: "+fmt.Sprint(f.Members()))
	require.NoError(t, j.Unknown())
}
