package etcdrules

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// three are voters, the last of which may be away.
func three(all bool) []Member {
	var members []Member
	for n := range byte(3) {
		members = append(members, Member{
			ID: uint64(n) + 1, Address: netip.AddrFrom4([4]byte{10, 0, 0, n}), Started: true, Connected: all || n < 2,
		})
	}

	return members
}

// TestQuorumIsKept: what TestEtcd in tests/lab/talos cannot compare with a single release of etcd depends on its version.
func TestQuorumIsKept(t *testing.T) {
	t.Parallel()

	fourth := netip.MustParseAddr("10.0.0.9")

	require.NoError(t, CheckAdd(three(true), fourth, "3.6.5"))
	require.ErrorIs(t, CheckAdd(three(false), fourth, "3.6.5"), ErrUnhealthy)
	require.ErrorIs(t, CheckAdd(three(false), fourth, "v3.7.0"), ErrUnhealthy, "three of four are needed")
	require.ErrorIs(t, CheckAdd(three(true), netip.MustParseAddr("10.0.0.1"), "3.6.5"), ErrPeerURLExists)

	five := append(three(true), Member{ID: 4, Started: true}, Member{ID: 5, Started: true, Connected: true})
	require.ErrorIs(t, CheckAdd(five, fourth, "3.6.5"), ErrUnhealthy)
	require.NoError(t, CheckAdd(five, fourth, "3.7.0"))

	require.NoError(t, CheckRemove(three(true), 1))
	require.ErrorIs(t, CheckRemove(three(false), 1), ErrUnhealthy)
	require.NoError(t, CheckRemove(three(false), 3), "it is away anyway")
	require.ErrorIs(t, CheckRemove(three(true)[:1], 1), ErrNotEnoughStarted)
	require.ErrorIs(t, CheckRemove(three(false)[1:], 2), ErrNoLeader)
	require.ErrorIs(t, CheckPromote(three(true), 9), ErrMemberNotFound)
}
