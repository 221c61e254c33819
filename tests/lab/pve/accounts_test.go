package pve_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/timeline"
)

// TestTokensThatWereMade: a token may do what its user may, or less where its privileges are its own, from the moment
// at which a role is given to the moment at which it is changed or taken away.
func TestTokensThatWereMade(t *testing.T) {
	f := serve(t, timeline.Latencies{})
	admin := f.header.Get("Authorization")

	f.ok("POST", "/access/users", "userid", "other@pve")
	f.ok("POST", "/access/roles", "roleid", "Look", "privs", "VM.Audit")

	as := map[string]string{}

	for name, separated := range map[string]string{"all": "0", "own": "1"} {
		made := f.object(f.ok("POST", "/access/users/other@pve/token/"+name, "privsep", separated))
		require.Equal(t, "other@pve!"+name, made["full-tokenid"])
		as[name] = "PVEAPIToken=other@pve!" + name + "=" + made["value"].(string)
	}

	sees := func(name string) int {
		f.header.Set("Authorization", as[name])
		defer f.header.Set("Authorization", admin)

		return len(f.list(f.ok("GET", "/cluster/resources", "type", "vm")))
	}

	require.Zero(t, sees("all"))

	f.ok("PUT", "/access/acl", "path", "/vms", "roles", "Look", "users", "other@pve")
	require.Equal(t, 1, sees("all"))
	require.Zero(t, sees("own"), "nothing is its own")

	f.ok("PUT", "/access/acl", "path", "/vms", "roles", "Look", "tokens", "other@pve!own")
	require.Equal(t, 1, sees("own"))

	f.ok("PUT", "/access/roles/Look", "privs", "VM.PowerMgmt")
	require.Zero(t, sees("all"))

	f.ok("PUT", "/access/roles/Look", "privs", "VM.Audit", "append", "1")
	f.ok("PUT", "/access/acl", "path", "/vms", "roles", "Look", "users", "other@pve", "delete", "1")
	require.Zero(t, sees("own"), "a token has no more than its user")

	f.ok("DELETE", "/access/users/other@pve")
	require.Empty(t, f.list(f.ok("GET", "/access/acl")))

	f.header.Set("Authorization", as["all"])
	require.Equal(t, "401 Authentication failed!", f.call("GET", "/version").status())
	require.NoError(t, f.journal.Unknown())
}

// TestWhatIsKnownOfAUser: a client may send all there is, empty.
func TestWhatIsKnownOfAUser(t *testing.T) {
	f := serve(t, timeline.Latencies{})
	f.ok("POST", "/access/users", "userid", "csi@pve", "comment", "a plugin's", "email", "", "enable", "1", "expire", "0",
		"firstname", "", "lastname", "", "keys", "")

	require.Equal(t, map[string]any{"comment": "a plugin's", "enable": 1., "expire": 0., "groups": []any{}, "tokens": nil},
		f.object(f.ok("GET", "/access/users/csi@pve")))

	f.ok("PUT", "/access/users/csi@pve", "comment", "", "firstname", "C", "lastname", "SI", "keys", "x!key", "email", "c@example.org")

	require.Equal(t, map[string]any{
		"email": "c@example.org", "enable": 1., "expire": 0., "firstname": "C", "lastname": "SI", "keys": "x!key",
		"groups": []any{}, "tokens": nil,
	}, f.object(f.ok("GET", "/access/users/csi@pve")))
	require.NoError(t, f.journal.Unknown())
}
