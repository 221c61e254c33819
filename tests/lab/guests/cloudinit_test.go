package guests

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/machine"
)

// networkFile is what Proxmox VE 8.4 writes to a drive.
const networkFile = `version: 1
config:
    - type: physical
      name: eth0
      mac_address: 'bc:24:11:e1:b9:be'
      subnets:
      - type: static
        address: '127.60.10.11'
        netmask: '255.255.255.0'
        gateway: '127.60.10.1'
    - type: physical
      name: eth1
      mac_address: 'bc:24:11:e1:b9:bf'
      subnets:
      - type: dhcp4
    - type: nameserver
      address:
      - '1.1.1.1'
      - '9.9.9.9'
      search:
      - 'lan'
`

func TestNetworkOfDrive(t *testing.T) {
	t.Parallel()

	ci := &machine.CloudInit{}
	require.NoError(t, setNetwork(ci, []byte(networkFile)))
	assert.Equal(t, &machine.CloudInit{
		Addresses: []netip.Prefix{netip.MustParsePrefix("127.60.10.11/24"), {}},
		Gateways:  []netip.Addr{netip.MustParseAddr("127.60.10.1"), {}},
		DNS:       []netip.Addr{netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("9.9.9.9")},
	}, ci)

	require.Error(t, setNetwork(ci, []byte("config: [{type: physical, subnets: [{type: static, address: here}]}]")))
}
