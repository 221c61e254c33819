package world

import (
	"regexp"
	"slices"
	"strconv"
)

// pool is a named set of VMs and storages.
type pool struct {
	comment  string
	vms      map[int]bool
	storages map[string]bool
}

// PoolInfo is what is known of a pool.
type PoolInfo struct {
	ID, Comment string
	VMs         []int
	Storages    []string
}

var poolName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]*(/[A-Za-z][A-Za-z0-9._-]*){0,2}$`)

// CreatePool makes an empty pool.
func (w *World) CreatePool(id, comment string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if !poolName.MatchString(id) {
		return Invalid("poolid", "invalid format - pool name '%s' contains invalid characters", id)
	}

	if w.pools[id] != nil {
		return failf("create pool failed: pool '%s' already exists", id)
	}

	w.pools[id] = &pool{comment: comment, vms: map[int]bool{}, storages: map[string]bool{}}

	return nil
}

// PoolUpdate changes a pool.
type PoolUpdate struct {
	Comment       *string
	VMs, Storages []string
	// Delete takes the members out instead of putting them in.
	Delete bool
	// AllowMove takes VMs out of the pool they are in.
	AllowMove bool
}

// UpdatePool changes a pool's comment or members.
func (w *World) UpdatePool(id string, u PoolUpdate) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	p := w.pools[id]
	if p == nil {
		return failf("update pools failed: pool '%s' does not exist", id)
	}

	for _, text := range u.VMs {
		vmid, err := strconv.Atoi(text)
		if err != nil {
			return Invalid("vms", "invalid format - value does not look like a valid VM ID")
		}

		if err := w.changeMember(p, vmid, u); err != nil {
			return err
		}
	}

	for _, name := range u.Storages {
		if u.Delete != p.storages[name] {
			return failf("update pools failed: Storage '%s' is %s a pool member", name,
				map[bool]string{true: "not", false: "already"}[u.Delete])
		}

		p.storages[name] = !u.Delete
	}

	if u.Comment != nil {
		p.comment = *u.Comment
	}

	return nil
}

func (w *World) changeMember(p *pool, vmid int, u PoolUpdate) error {
	if u.Delete {
		if !p.vms[vmid] {
			return failf("update pools failed: VM %d is not a pool member", vmid)
		}

		delete(p.vms, vmid)

		return nil
	}

	if p.vms[vmid] {
		return failf("update pools failed: VM %d is already a pool member", vmid)
	}

	if other := w.poolOf(vmid); other != "" {
		if !u.AllowMove {
			return failf("update pools failed: VM %d belongs already to pool '%s' and 'allow-move' is not set", vmid, other)
		}

		delete(w.pools[other].vms, vmid)
	}

	p.vms[vmid] = true

	return nil
}

func (w *World) poolOf(vmid int) string {
	for _, name := range sortedKeys(w.pools) {
		if w.pools[name].vms[vmid] {
			return name
		}
	}

	return ""
}

// DeletePool removes an empty pool.
func (w *World) DeletePool(id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	p := w.pools[id]
	if p == nil {
		return failf("delete pool failed: pool '%s' does not exist", id)
	}

	for _, vmid := range sortedKeys(p.vms) {
		return failf("delete pool failed: pool '%s' is not empty (contains VM %d)", id, vmid)
	}

	delete(w.pools, id)

	return nil
}

// Pool returns a pool.
func (w *World) Pool(id string) (PoolInfo, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	p := w.pools[id]
	if p == nil {
		return PoolInfo{}, failf("pool '%s' does not exist", id)
	}

	return p.info(id), nil
}

func (p *pool) info(id string) PoolInfo {
	storages := slices.DeleteFunc(sortedKeys(p.storages), func(s string) bool { return !p.storages[s] })

	return PoolInfo{ID: id, Comment: p.comment, VMs: sortedKeys(p.vms), Storages: storages}
}

// Pools returns the pools that a caller may see.
func (w *World) Pools(c Caller) []PoolInfo {
	w.mu.Lock()
	defer w.mu.Unlock()

	var list []PoolInfo

	for _, id := range sortedKeys(w.pools) {
		if w.allowed(c.ID, "/pool/"+id, "Pool.Audit") {
			list = append(list, w.pools[id].info(id))
		}
	}

	return list
}
