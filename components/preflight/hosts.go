package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// checkHosts checks that the hosts that are to have new VMs are up, and have the datastores and bridges that those
// need. Of hosts whose VMs are all there, nothing is asked.
func (c *checker) checkHosts(ctx context.Context) error {
	newNodes := map[string][]plan.Node{}

	for _, n := range c.Plan.Nodes() {
		if c.Absent[n.VMID] {
			newNodes[n.Host] = append(newNodes[n.Host], n)
		}
	}

	if len(newNodes) == 0 {
		return nil
	}

	hosts, err := c.Proxmox.Hosts(ctx)
	if err != nil {
		return err
	}

	needed := storageNeeds{}

	for _, name := range slices.Sorted(maps.Keys(newNodes)) {
		at := slices.IndexFunc(hosts, func(h proxmoxapi.Host) bool { return h.Name == name })

		switch {
		case at < 0:
			var names []string
			for _, h := range hosts {
				names = append(names, h.Name)
			}

			c.Problems.Add("proxmox.hosts", "not found in this Proxmox VE, which has the hosts "+strings.Join(names, ", "), name,
				"correct the name; case matters")
		case !hosts[at].Online:
			c.Problems.Add("proxmox.hosts", "is offline, and new nodes are to be made on it", name, "start it, or take it out")
		default:
			c.checkCapacity(hosts[at], newNodes[name])

			if err := errors.Join(c.checkClock(ctx, name), c.checkHost(ctx, name, newNodes[name], needed)); err != nil {
				return err
			}
		}
	}

	c.Warnings = append(c.Warnings, needed.warnings()...)

	return nil
}

// storageNeeds are what new disks may take of datastores; of a shared one, those of all hosts together.
type storageNeeds map[storageKey]*storageNeed

type storageKey struct{ datastore, host string } // no host: shared

type storageNeed struct{ needed, free int } // GiB

func (s storageNeeds) add(host, datastore string, store proxmoxapi.Store, needed int) {
	if store.Shared {
		host = ""
	}

	key := storageKey{datastore, host}
	if s[key] == nil {
		s[key] = &storageNeed{free: int(store.Free >> 30)}
	}

	s[key].needed += needed
}

func (s storageNeeds) warnings() (found spec.Problems) {
	for _, key := range slices.SortedFunc(maps.Keys(s), func(a, b storageKey) int {
		return cmp.Or(cmp.Compare(a.host, b.host), cmp.Compare(a.datastore, b.datastore))
	}) {
		where := "for all hosts together"
		if key.host != "" {
			where = "on host " + key.host
		}

		if need := s[key]; need.free < need.needed {
			found.Add("proxmox.storage", fmt.Sprintf("has %d GiB free %s, and the disks of new nodes may grow to %d GiB",
				need.free, where, need.needed), key.datastore, "see that there is room, or make disks smaller (diskGiB)")
		}
	}

	return found
}

// checkHost asks a host for the datastores and bridges of new nodes.
func (c *checker) checkHost(ctx context.Context, host string, newNodes []plan.Node, needed storageNeeds) error {
	stores, err := c.StoresOf(ctx, host)
	if errors.Is(err, proxmoxapi.ErrHostSilent) {
		c.reportUnreachableHost(host)

		return nil
	} else if err != nil {
		return err
	}

	bridges, err := c.BridgesOf(ctx, host)
	if err != nil {
		return err
	}

	for _, b := range bridges {
		c.VNets[b.Name] = c.VNets[b.Name] || b.VNet
	}

	for _, n := range newNodes {
		path := "pools." + n.Pool

		for _, d := range n.Disks {
			c.checkDatastore(stores, host, d.Datastore, "images", path+".disk.datastore")

			if store := stores[d.Datastore]; store.Active {
				needed.add(host, d.Datastore, store, d.SizeGiB)
			}
		}

		if image := c.Plan.PoolOf(n).Image; image.URL != "" || image.FactoryURL != "" {
			c.checkDatastore(stores, host, c.Plan.ImageStore, "iso", "proxmox.storage.images")
		}

		for _, nic := range n.NICs {
			if !slices.ContainsFunc(bridges, func(b proxmoxapi.Bridge) bool { return b.Name == nic.Bridge }) {
				c.Problems.Add(path+".nics", "bridge not found on host "+host+", or the credentials lack SDN.Use on it", nic.Bridge,
					"name another, make it there, or give the role SDN.Use on it")
			}

			c.checkMTU(n, nic, host, bridges)
		}
	}

	return nil
}

// reportUnreachableHost adds the problem of a host that is to have new nodes and does not answer.
func (c *checker) reportUnreachableHost(host string) {
	c.Problems.Add("proxmox.hosts", "does not answer, and new nodes are to be made on it", host,
		"repair it, or take it out")
}

// checkMTU checks that the MTU of a network interface is not larger than its bridge's: Proxmox VE takes any, and does
// not start the VM.
func (c *checker) checkMTU(n plan.Node, nic plan.Interface, host string, bridges []proxmoxapi.Bridge) {
	at := slices.IndexFunc(bridges, func(b proxmoxapi.Bridge) bool { return b.Name == nic.Bridge })
	if at < 0 || nic.MTU <= 1 {
		return
	}

	const remedy = "lower network.mtu (or nics[].mtu), or raise the MTU of the bridge there"

	path, mtu := "pools."+n.Pool+".nics", strconv.Itoa(nic.MTU)

	switch has := bridges[at].MTU; {
	case has == 0 && nic.MTU > usualMTU:
		c.Warnings.Add(path, fmt.Sprintf("needs an MTU of bridge %s of host %s that is not smaller, or the VM does not "+
			"start, and Proxmox VE does not tell it", nic.Bridge, host), mtu,
			"check it on that host ('ip link show "+nic.Bridge+"')")
	case has != 0 && nic.MTU > has:
		c.Problems.Add(path, fmt.Sprintf("must have an MTU of at most %d, that of bridge %s of host %s: a VM with a larger "+
			"one does not start", has, nic.Bridge, host), mtu, remedy)
	}
}

// usualMTU is that of a bridge without another setting.
const usualMTU = 1500

// checkDatastore checks that a datastore takes what is to be kept on it.
func (c *checker) checkDatastore(stores map[string]proxmoxapi.Store, host, name, content, path string) {
	switch store, there := stores[name]; {
	case !there:
		c.Problems.Add(path, "datastore not found on host "+host+", or the credentials lack its privileges", name,
			"name another, or give the role Datastore.AllocateSpace and Datastore.Audit on it")
	case !store.Active:
		c.Problems.Add(path, "is not active on host "+host, name, "switch it on there, or name another")
	case !slices.Contains(store.Content, content):
		c.Problems.Add(path, fmt.Sprintf("takes no %s on host %s", content, host),
			name+", which takes "+strings.Join(store.Content, ", "),
			fmt.Sprintf("run 'pvesm set %s --content %s,%s', or name another datastore", name, strings.Join(store.Content, ","),
				content))
	}
}

// checkCapacity checks that a host has the processors of each VM, and warns where it would promise more memory than it
// has, or the configuration does.
func (c *checker) checkCapacity(h proxmoxapi.Host, newNodes []plan.Node) {
	if h.CPUs == 0 { // the credentials may not see it, which is said
		return
	}

	promised, more := 0, 0

	for _, v := range c.VMs {
		if v.Host == h.Name && !v.Template {
			promised += v.MemoryMiB
		}
	}

	for _, n := range newNodes {
		more += n.MemoryMiB

		if n.Cores > h.CPUs {
			c.Problems.Add("pools."+n.Pool+".cores", fmt.Sprintf("must be at most %d, the processors of host %s: a VM with "+
				"more does not start", h.CPUs, h.Name),
				strconv.Itoa(n.Cores), "lower it, or place the node elsewhere")
		}
	}

	if promised+more > h.MemoryMiB {
		c.Warnings = append(c.Warnings, spec.Problem{
			Path: "proxmox.hosts", Rule: fmt.Sprintf("has %d MiB of memory; what is on it is promised %d MiB, and new nodes "+
				"%d MiB", h.MemoryMiB, promised, more),
			Value: h.Name, Remedy: "see that not all of it is used at once, make nodes smaller, or place them elsewhere",
		})
	}

	for _, stated := range c.Plan.Hosts {
		if stated.Name == h.Name && stated.Limited && stated.Capacity.MemoryMiB > h.MemoryMiB {
			c.Warnings = append(c.Warnings, spec.Problem{
				Path: "proxmox.hosts", Rule: fmt.Sprintf("states a capacity of %d MiB for host %s, which has %d MiB",
					stated.Capacity.MemoryMiB, h.Name, h.MemoryMiB),
				Value: h.Name, Remedy: "lower capacity.memoryMiB",
			})
		}
	}
}
