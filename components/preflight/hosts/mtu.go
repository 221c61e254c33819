package hosts

import (
	"fmt"
	"slices"
	"strconv"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// CheckMTU checks that the MTU of a network interface is not larger than its bridge's: Proxmox VE takes any, and does
// not start the VM.
func (c Checker) CheckMTU(n plan.Node, nic plan.Interface, host string, bridges []proxmoxapi.Bridge) {
	at := slices.IndexFunc(bridges, func(b proxmoxapi.Bridge) bool { return b.Name == nic.Bridge })
	if at < 0 || nic.MTU <= 1 {
		return
	}

	const remedy = "lower network.mtu (or nics[].mtu), or raise the MTU of the bridge there"

	path, mtu := "pools."+n.Pool+".nics", strconv.Itoa(nic.MTU)

	switch has := bridges[at].MTU; {
	case has == 0 && nic.MTU > usualMTU:
		c.Warnings.Add(path, fmt.Sprintf("must not exceed the MTU of bridge %s of host %s, or the VM does not "+
			"start, and Proxmox VE does not report that MTU", nic.Bridge, host), mtu,
			"check it on that host ('ip link show "+nic.Bridge+"')")
	case has != 0 && nic.MTU > has:
		c.Problems.Add(path, fmt.Sprintf("must have an MTU of at most %d, that of bridge %s of host %s: a VM with a larger "+
			"one does not start", has, nic.Bridge, host), mtu, remedy)
	}
}

// usualMTU is that of a bridge without another setting.
const usualMTU = 1500
