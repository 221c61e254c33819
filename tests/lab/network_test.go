package lab_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"talos-proxmox/tests/lab"
)

func reserve(t *testing.T, bits int) *lab.Reservation {
	t.Helper()

	r, err := lab.ReserveNetwork(bits)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })

	return r
}

func TestWorldsDoNotShareANetwork(t *testing.T) {
	var all []netip.Prefix

	for _, bits := range []int{16, 24, 16, 12, 14, 20, 12, 32} {
		n := reserve(t, bits).Network()
		require.True(t, netip.MustParsePrefix("127.0.0.0/8").Contains(n.Addr()))
		require.Equal(t, n, n.Masked())
		require.False(t, n.Contains(netip.MustParseAddr("127.0.0.1")))
		require.Equal(t, min(bits, 16), n.Bits())

		for _, o := range all {
			require.False(t, n.Overlaps(o), "%s and %s", n, o)
		}

		all = append(all, n)
	}
}

func TestANetworkThatIsGivenBackIsFree(t *testing.T) {
	r, err := lab.ReserveNetwork(16)
	require.NoError(t, err)

	first := r.Network().Addr().As4()
	guard := net.JoinHostPort(netip.AddrFrom4([4]byte{127, first[1], 255, 254}).String(), "8006")

	_, err = net.Listen("tcp4", guard)
	require.Error(t, err)

	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
	l, err := net.Listen("tcp4", guard)
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

func TestNetworksThatDoNotFit(t *testing.T) {
	for _, bits := range []int{0, 8, 33, -1} {
		_, err := lab.ReserveNetwork(bits)
		require.ErrorContains(t, err, "takes /9 or longer")
	}

	r := reserve(t, 16)
	for _, p := range []netip.Prefix{{}, netip.MustParsePrefix("10.0.0.0/12"), netip.MustParsePrefix("fd00::/64")} {
		require.False(t, r.Map(p).IsValid(), p)
	}
	require.False(t, r.MapAddr(netip.MustParseAddr("fd00::1")).IsValid())
}

func TestTheLowBitsStay(t *testing.T) {
	r := reserve(t, 16)
	n := r.Network().Addr().As4()[1]

	for _, c := range []struct{ stack, want string }{
		{"10.0.0.0/16", "127.0.0.0/16"},
		{"192.168.20.0/24", "127.0.20.0/24"},
		{"172.16.5.9/24", "127.0.5.0/24"},
		{"10.1.2.3/32", "127.0.2.3/32"},
	} {
		want := netip.MustParsePrefix(c.want)
		a := want.Addr().As4()
		a[1] = n
		require.Equal(t, netip.PrefixFrom(netip.AddrFrom4(a), want.Bits()), r.Map(netip.MustParsePrefix(c.stack)))
	}

	wide := reserve(t, 12)
	base := wide.Network().Addr().As4()[1]
	require.Equal(t, netip.AddrFrom4([4]byte{127, base | 5, 6, 7}), wide.MapAddr(netip.MustParseAddr("10.21.6.7")))
	require.Equal(t, 12, wide.Map(netip.MustParsePrefix("10.16.0.0/12")).Bits())
}

func TestAddressesOfOneNetworkStayApart(t *testing.T) {
	reservations := map[int]*lab.Reservation{12: reserve(t, 12), 16: reserve(t, 16), 24: reserve(t, 24)}

	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.SampledFrom([]int{12, 16, 24}).Draw(t, "bits")
		r := reservations[bits]

		octets := rapid.SliceOfN(rapid.Byte(), 4, 4)
		network, err := netip.AddrFrom4([4]byte(octets.Draw(t, "network"))).Prefix(bits)
		require.NoError(t, err)

		inside := func(label string) netip.Addr {
			a, base := [4]byte(octets.Draw(t, label)), network.Addr().As4()
			for i := range 4 {
				keep := 0xff << (8 - min(max(bits-8*i, 0), 8))
				a[i] = base[i]&byte(keep) | a[i]&^byte(keep)
			}

			return netip.AddrFrom4(a)
		}

		a, b := inside("a"), inside("b")
		require.True(t, r.Map(network).Contains(r.MapAddr(a)))
		require.True(t, r.Network().Contains(r.MapAddr(a)))
		require.Equal(t, a == b, r.MapAddr(a) == r.MapAddr(b))
	})
}
