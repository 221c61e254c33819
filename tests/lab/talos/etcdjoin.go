package talos

import (
	"fmt"
	"net/netip"
	"slices"

	"talos-proxmox/tests/lab/etcdrules"
)

// join adds a learner, as Talos does with a node whose data directory is empty (Talos: services/etcd.go, addMember): a
// member of the same name is taken for its former self and removed.
func (c *etcdModel) join(name string, address netip.Addr) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if err := c.healthyLocked(); err != nil {
		return 0, err
	}

	for _, m := range slices.Clone(c.members) {
		if m.started && m.name == name {
			if err := c.removeLocked(m.id, name+" removes its former self"); err != nil {
				return 0, fmt.Errorf("error removing self from the member list: %w", err)
			}
		}
	}

	if err := etcdrules.CheckAdd(c.ruled(), address, c.version); err != nil {
		return 0, fmt.Errorf("error adding member: %w", err)
	}

	id := c.add(name, address, true)
	c.changed(name + " joins as a learner")

	return id, nil
}

// ruled are the members as the rules of etcd look at them.
func (c *etcdModel) ruled() []etcdrules.Member {
	all := make([]etcdrules.Member, 0, len(c.members))
	for _, m := range c.members {
		all = append(all, etcdrules.Member{
			ID: m.id, Name: m.name, Address: m.address, Learner: m.learner, Started: m.started, Connected: m.connected(),
		})
	}

	return all
}
