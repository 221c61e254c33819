package tests

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestK3sSharedSettings: a server that the others would not let join is not created, nor is one taken down to be made
// again so. A change by hand, on all of them, lets it join.
func TestK3sSharedSettings(t *testing.T) {
	t.Parallel()

	r := rehearse(t, example(t, "k3s"))
	said := upResult(t, r.Stack).StdOut
	assert.NotContains(t, said, "must be the same on all servers")

	kept := r.Lab.World().Snapshot()

	const refused = `k3s.serverArgs: disable-network-policy must be the same on all servers of a K3s cluster: ` +
		`edge-server-2, edge-server-3 would not join, because edge-server-1 has "false" (given: true); revert the ` +
		`change; or change the existing servers by hand first (stacks/docs/k3s.md, Change settings that all servers share)`

	set(t, r.Stack, "k3s.serverArgs[0]", "--disable-network-policy")
	set(t, r.Stack, "pools.server.count", "3")
	assert.Contains(t, failPreview(t, r.Stack), refused)
	assert.Contains(t, failUp(t, r.Stack), refused)
	assert.Equal(t, kept, r.Lab.World().Snapshot(), "nothing has changed")

	// Agents have nothing to do with it, and the server that runs is pointed out.
	set(t, r.Stack, "pools.server.count", "1")
	set(t, r.Stack, "pools.agent.count", "2")
	assert.Contains(t, upResult(t, r.Stack).StdOut, "the user data of edge-server-1 differs from the configuration: "+
		"disable-network-policy. User data is applied at the first boot only: revert the change, or change the node by "+
		"hand. K3s requires that all servers have the same disable-network-policy: until all are changed, no server can be "+
		"added or replaced (stacks/docs/k3s.md, Change settings that all servers share)")

	// What a server has is unknown while its agent says nothing.
	world, id := r.Lab.World(), vmids(r)["edge-server-1"]
	world.SilenceAgent(id, true)
	set(t, r.Stack, "pools.server.count", "3")
	assert.Contains(t, previewOf(t, r.Stack), "k3s.serverArgs: could not be compared with the settings of "+
		"edge-server-1, so it is unknown whether edge-server-2, edge-server-3 will join: ")
	world.SilenceAgent(id, false)

	const file = "/etc/rancher/k3s/config.yaml"

	text, err := world.GuestFile("pve", id, file)
	require.NoError(t, err)
	require.NoError(t, world.WriteGuestFile("pve", id, file, text+"disable-network-policy: true\n"))
	require.NoError(t, r.Ubuntu.Run("edge-server-1", "sudo systemctl restart k3s"))

	upResult(t, r.Stack)
	assert.Equal(t, [][]string{{"edge-server-1", "edge-server-2", "edge-server-3"}}, r.Ubuntu.Members())

	// One that runs would be made again with what the others do not have.
	set(t, r.Stack, "k3s.disable[1]", "servicelb")
	set(t, r.Stack, "lifecycle.replace[0]", "edge-server-2")
	kept = world.Snapshot()
	assert.Contains(t, failUp(t, r.Stack), `k3s.disable: disable=servicelb must be the same on all servers of a K3s `+
		`cluster: edge-server-2 would not join, because edge-server-1 has "false", edge-server-3 has "false" (given: true)`)
	assert.Equal(t, kept, world.Snapshot(), "nothing has changed")
}

// TestK3sUnknownSettings: servers are created while it is unknown whether the others let them join, and do not. They
// join as soon as they are corrected by hand, as their message says.
func TestK3sUnknownSettings(t *testing.T) {
	t.Parallel()

	r := rehearse(t, example(t, "k3s"))
	up(t, r.Stack)

	world, servers := r.Lab.World(), []string{"edge-server-2", "edge-server-3"}
	first := vmids(r)["edge-server-1"]

	world.SilenceAgent(first, true)
	set(t, r.Stack, "k3s.serverArgs[0]", "--disable-network-policy")
	set(t, r.Stack, "pools.server.count", "3")
	set(t, r.Stack, "lifecycle.readyTimeout", "10s")

	said := failUp(t, r.Stack)
	assert.Contains(t, said, "critical configuration mismatched: disable-network-policy")
	assert.Contains(t, said, "its settings differ from those of the server that it joins at; K3s names them in the lines "+
		"above. Set them in /etc/rancher/k3s/config.yaml of this machine to the values of that server, and in the "+
		"configuration")
	world.SilenceAgent(first, false)

	for _, name := range servers {
		if id, created := vmids(r)[name]; created {
			text, err := world.GuestFile("pve", id, "/etc/rancher/k3s/config.yaml")
			require.NoError(t, err)
			require.NoError(t, world.WriteGuestFile("pve", id, "/etc/rancher/k3s/config.yaml",
				strings.ReplaceAll(text, "disable-network-policy: true", "disable-network-policy: false")))
		}
	}

	unset(t, r.Stack, "k3s.serverArgs")
	unset(t, r.Stack, "lifecycle.readyTimeout")
	upResult(t, r.Stack)
	assert.Equal(t, [][]string{{"edge-server-1", "edge-server-2", "edge-server-3"}}, r.Ubuntu.Members())
}
