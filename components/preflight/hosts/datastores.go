package hosts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

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
				need.free, where, need.needed), key.datastore, "make room, or make disks smaller (diskGiB)")
		}
	}

	return found
}

// warnIOUring warns of a disk with io_uring where Proxmox VE itself would choose another mode, because I/O hangs or
// fails (qemu-server: storage_allows_io_uring_default). It uses what a disk states, and every disk of a node states it.
func (c Checker) warnIOUring(n plan.Node, i int, store proxmoxapi.Store) {
	d := n.Disks[i]

	// A clone has the options of its template.
	if d.AIO != "io_uring" || store.Type != "lvm" && store.Type != "cifs" || i == 0 && n.Template != "" {
		return
	}

	path := "pools." + n.Pool + ".disk.aio"
	if i > 0 {
		path = fmt.Sprintf("pools.%s.extraDisks[%d].aio", n.Pool, i-1)
	}

	mode := "native"
	if d.Cache != "none" && d.Cache != "directsync" {
		mode = "threads"
	}

	c.Warnings.Add(path, fmt.Sprintf("can make disks on a datastore of type %s hang or fail, so that Proxmox VE does not "+
		"use it there unless it is set", store.Type), d.AIO+" on "+d.Datastore, "set "+mode)
}

// CheckDatastore checks that a datastore takes what is to be kept on it, and says whether it does.
func (c Checker) CheckDatastore(stores map[string]proxmoxapi.Store, host, name, content, path string) bool {
	switch store, there := stores[name]; {
	case !there:
		c.Problems.Add(path, "datastore not found on host "+host+", or the credentials lack its privileges", name,
			"name another, or grant Datastore.AllocateSpace and Datastore.Audit on it")
	case !store.Active:
		c.Problems.Add(path, "is not active on host "+host, name, "switch it on there, or name another")
	case !slices.Contains(store.Content, content):
		c.Problems.Add(path, fmt.Sprintf("does not accept %s on host %s", content, host),
			name+", which takes "+strings.Join(store.Content, ", "),
			fmt.Sprintf("run 'pvesm set %s --content %s,%s', or name another datastore", name, strings.Join(store.Content, ","),
				content))
	default:
		return true
	}

	return false
}
