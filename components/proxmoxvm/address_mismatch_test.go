package proxmoxvm

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
)

// TestCompareAddress: the planned address is looked for on the node's own link, among the addresses that others reach.
func TestCompareAddress(t *testing.T) {
	at := func(address string) plan.Node {
		n := agentNode
		n.Pool, n.Address = "control", netip.MustParseAddr(address)

		return n
	}

	assert.Nil(t, CompareAddress(at("10.20.3.4"), reportedLinks()))
	assert.Nil(t, CompareAddress(at("10.20.3.5"), nil), "nothing is reported")
	assert.Nil(t, CompareAddress(agentNode, reportedLinks()), "nothing is planned")

	problem := CompareAddress(at("10.20.9.9"), reportedLinks())
	require.NotNil(t, problem, "the address of another link does not count")
	assert.Equal(t, "pools.control.addresses: c-control-1 is planned with another address than its guest agent reports: "+
		"10.20.0.5, 192.168.4.4, 10.20.3.4 (given: 10.20.9.9); correct what gives 42:00:00:00:00:01 its address, such as a "+
		"reservation of the DHCP server, and restart the node; or set the reported address", problem.String())
}
