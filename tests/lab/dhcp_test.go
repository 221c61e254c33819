package lab

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLeases(t *testing.T) {
	from, to := netip.MustParseAddr("127.3.0.8"), netip.MustParseAddr("127.3.0.10")
	l := leases{free: Range{from, to}}
	l.reserve(map[string]netip.Addr{"aa:aa": from.Next(), "dd:dd": {}})

	for _, c := range []struct{ mac, want string }{
		{"AA:AA", "127.3.0.9"},
		{"bb:bb", "127.3.0.8"},
		{"cc:cc", "127.3.0.10"},
		{"BB:BB", "127.3.0.8"},
		{"ee:ee", ""},
		{"dd:dd", ""},
	} {
		got, ok := l.find(c.mac)
		require.Equal(t, c.want != "", ok, c.mac)

		if ok {
			require.Equal(t, c.want, got.String(), c.mac)
		}
	}

	none := leases{}
	_, ok := none.find("aa:aa")
	require.False(t, ok)
}
