package world

import "strings"

// mapping is a resource mapping: one name for devices of several hosts, which is how an API token may pass devices through.
type mapping struct {
	id, kind    string
	description string
	entries     []string // property strings: id, node, path, iommugroup, subsystem-id
	mdev        bool
}

// Mapping is a resource mapping as it is asked for and shown.
type Mapping struct {
	ID, Kind    string
	Description string
	Map         []string
	MDev        bool
}

// SetMapping makes a mapping or, when it exists, changes it. Proxmox VE tells the two calls apart.
func (w *World) SetMapping(m Mapping, create bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	key := m.Kind + "/" + m.ID
	known := w.mappings[key] != nil

	if create && known {
		return failf("create %s mapping failed: %s ID '%s' already defined", m.Kind, m.Kind, m.ID)
	}

	if !create && !known {
		return failf("update %s mapping failed: no such resource mapping '%s'", m.Kind, m.ID)
	}

	if len(m.Map) == 0 {
		return Invalid("map", "property is missing and it is not optional")
	}

	for _, entry := range m.Map {
		p, ok := parseProperties(entry, "id")
		if !ok || p["node"] == "" || p["id"] == "" {
			return Invalid("map", "invalid format - format error\nmap.node: property is missing and it is not optional")
		}
	}

	w.mappings[key] = &mapping{id: m.ID, kind: m.Kind, description: m.Description, entries: m.Map, mdev: m.MDev}

	return nil
}

// DeleteMapping removes a mapping.
func (w *World) DeleteMapping(kind, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mappings, kind+"/"+id)

	return nil
}

// Mapping returns one mapping.
func (w *World) Mapping(kind, id string) (Mapping, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	m := w.mappings[kind+"/"+id]
	if m == nil {
		return Mapping{}, failf("mapping '%s' does not exist", id)
	}

	return m.export(), nil
}

// Mappings returns the mappings of a kind, by name.
func (w *World) Mappings(kind string) []Mapping {
	w.mu.Lock()
	defer w.mu.Unlock()

	var list []Mapping

	for _, key := range sortedKeys(w.mappings) {
		if m := w.mappings[key]; kind == "" || m.kind == kind {
			list = append(list, m.export())
		}
	}

	return list
}

func (m *mapping) export() Mapping {
	return Mapping{ID: m.id, Kind: m.kind, Description: m.description, Map: append([]string(nil), m.entries...), MDev: m.mdev}
}

// paths are the devices that the mapping means on a host.
func (m *mapping) paths(host string) []string {
	var list []string

	for _, entry := range m.entries {
		if p, _ := parseProperties(entry, "id"); p["node"] == host {
			list = append(list, strings.Split(p["path"], ";")...)
		}
	}

	return list
}
