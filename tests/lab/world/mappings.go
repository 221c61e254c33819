package world

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Mapping is a resource mapping: one name for devices of several hosts, which is how an API token may pass devices
// through.
type Mapping struct {
	// Kind is "pci" or "usb".
	ID, Kind    string
	Description string
	// Map holds property strings, one for each device of a host: id, node, path, iommugroup, subsystem-id.
	Map []string
	// MDev mappings are of devices that can be divided, LiveMigration ones of devices that can move with their VM.
	MDev, LiveMigration bool
}

// mappingEntry is the schema of an entry of a mapping, by kind (pve-guest-common: Mapping/PCI.pm, Mapping/USB.pm).
var mappingEntry = map[string]format{
	"pci": {
		"node":         {schema: nodeName, required: true},
		"id":           {schema: matching(`[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4}`), required: true},
		"subsystem-id": {schema: matching(`[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4}`)},
		"path":         {schema: matching(`(?:` + mappedPath + `;)*` + mappedPath), required: true},
		"iommugroup":   {schema: atLeast(-1 << 31)},
		"description":  {schema: schema{maxLength: 4096}},
	},
	"usb": {
		"node":        {schema: nodeName, required: true},
		"id":          {schema: matching(`[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4}`), required: true},
		"path":        {schema: matching(`\d+-\d+(\.\d+)*`)},
		"description": {schema: schema{maxLength: 4096}},
	},
}

const mappedPath = `[a-f0-9]{4,}:[a-f0-9]{2}:[a-f0-9]{2}(?:.[a-f0-9])?`

func verifyMap(kind string, entries []string) error {
	for i, entry := range entries {
		path := fmt.Sprintf("map[%d]", i)
		if _, err := mappingEntry[kind].parse(path, entry); err != nil {
			return Invalid(path, "invalid format - %s", err)
		}
	}

	return nil
}

// CreateMapping makes a mapping.
func (w *World) CreateMapping(m Mapping) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if wrong := configID.complaint("id", m.ID); wrong != "" {
		return Invalid("id", "%s", wrong)
	}

	if err := verifyMap(m.Kind, m.Map); err != nil {
		return err
	}

	key := m.Kind + "/" + m.ID
	if w.mappings[key] != nil {
		return failf("create hardware mapping failed: %s ID '%s' already defined", m.Kind, m.ID)
	}

	m.Map = slices.Clone(m.Map)
	w.mappings[key] = &m

	return nil
}

// MappingUpdate changes a mapping. What is nil stays; the map is always given whole.
type MappingUpdate struct {
	Map                 []string
	Description         *string
	MDev, LiveMigration *bool
	Delete              []string
	Digest              string
}

// UpdateMapping changes a mapping.
func (w *World) UpdateMapping(kind, id string, u MappingUpdate) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if err := verifyMap(kind, u.Map); err != nil {
		return err
	}

	m := w.mappings[kind+"/"+id]

	switch {
	case u.Digest != "" && u.Digest != w.mappingDigest(kind):
		return failf(
			"update hardware mapping failed: detected modified configuration - file changed by other user? Try again.")
	case m == nil:
		return failf("update hardware mapping failed: %s ID '%s' does not exist", kind, id)
	case len(u.Map) == 0:
		return failf("update hardware mapping failed: missing value for required option 'map'")
	}

	next := *m
	given := map[string]bool{
		"description": u.Description != nil, "mdev": u.MDev != nil,
		"live-migration-capable": u.LiveMigration != nil,
	}

	for _, name := range u.Delete {
		switch {
		case name == "map":
			return failf("update hardware mapping failed: unable to delete required option 'map'")
		case given[name]:
			return failf("update hardware mapping failed: cannot set and delete property '%s' at the same time!", name)
		case name == "description":
			next.Description = ""
		case name == "mdev" && kind == "pci":
			next.MDev = false
		case name == "live-migration-capable" && kind == "pci":
			next.LiveMigration = false
		default:
			return failf("update hardware mapping failed: no such option '%s'", name)
		}
	}

	next.Map = slices.Clone(u.Map)

	if u.Description != nil {
		next.Description = *u.Description
	}

	if u.MDev != nil {
		next.MDev = *u.MDev
	}

	if u.LiveMigration != nil {
		next.LiveMigration = *u.LiveMigration
	}

	*m = next

	return nil
}

// DeleteMapping removes a mapping, VMs that use it or not.
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
		return Mapping{}, failf("mapping '%s' not found", id)
	}

	return m.export(), nil
}

// Mappings returns the mappings of a kind, by name; all when none is given.
func (w *World) Mappings(kind string) []Mapping {
	w.mu.Lock()
	defer w.mu.Unlock()

	var list []Mapping

	for _, key := range sortedKeys(w.mappings) {
		if m := w.mappings[key]; kind == "" || m.Kind == kind {
			list = append(list, m.export())
		}
	}

	return list
}

// MappingDigest is the checksum of the configuration file that holds the mappings of a kind.
func (w *World) MappingDigest(kind string) string {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.mappingDigest(kind)
}

func (w *World) mappingDigest(kind string) string {
	h := sha1.New()

	for _, key := range sortedKeys(w.mappings) {
		if m := w.mappings[key]; m.Kind == kind {
			fmt.Fprintf(h, "%+v\n", *m)
		}
	}

	return hex.EncodeToString(h.Sum(nil))
}

// MappingCheck is a remark about a mapping on one host.
type MappingCheck struct{ Severity, Message string }

// CheckMapping compares a PCI mapping with the devices of a host.
func (w *World) CheckMapping(id, host string) ([]MappingCheck, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	h, err := w.host(host)
	if err != nil {
		return nil, err
	}

	m := w.mappings["pci/"+id]
	if m == nil {
		return nil, nil
	}

	entries := m.on(host)
	if len(entries) == 0 {
		return []MappingCheck{{"warning", fmt.Sprintf("No mapping for node %s.", host)}}, nil
	}

	list := []MappingCheck{}

	for _, entry := range entries {
		if err := m.verify(h, entry); err != nil {
			list = append(list, MappingCheck{"error", fmt.Sprintf("Invalid configuration: %s\n", err)})
		}
	}

	return list, nil
}

func (m *Mapping) export() Mapping {
	out := *m
	out.Map = slices.Clone(m.Map)

	return out
}

// on are the entries for a host.
func (m *Mapping) on(host string) []properties {
	var list []properties

	for _, entry := range m.Map {
		if p, err := mappingEntry[m.Kind].parse("map", entry); err == nil && p["node"] == host {
			list = append(list, p)
		}
	}

	return list
}

// verify compares an entry with the device it names, in the order and with the words of pve-guest-common
// (Mapping/PCI.pm, assert_valid).
func (m *Mapping) verify(h *Host, entry properties) error {
	for i, address := range strings.Split(entry["path"], ";") {
		if !strings.Contains(address, ".") {
			address += ".0" // a whole device stands for its first function
		}

		found := slices.IndexFunc(h.PCI, func(d PCIDevice) bool { return d.BDF == address })
		if found < 0 {
			return fmt.Errorf("pci device '%s' not found", address)
		}

		d := h.PCI[found]
		expected := properties{"id": d.ids(), "mdev": bit(d.MDev)}
		configured := properties{"id": entry["id"], "mdev": bit(m.MDev)}

		if s := d.subsystem(); s != "" {
			expected["subsystem-id"] = s
		}

		if s, ok := entry["subsystem-id"]; ok {
			configured["subsystem-id"] = s
		}

		// The group counts for the first device only.
		if i == 0 && !h.NoIOMMU {
			expected["iommugroup"] = strconv.Itoa(d.IOMMUGroup)
		}

		if s, ok := entry["iommugroup"]; ok && i == 0 {
			configured["iommugroup"] = s
		}

		if err := compare(m.ID, address, expected, configured); err != nil {
			return err
		}
	}

	return nil
}

func compare(mapping, device string, expected, configured properties) error {
	for _, name := range []string{"id", "iommugroup", "mdev", "subsystem-id"} {
		want, wanted := expected[name]
		have, there := configured[name]

		switch {
		case wanted && !there:
			return fmt.Errorf("missing expected property '%s' for device '%s'", name, device)
		case !wanted && there:
			return fmt.Errorf("unexpected property '%s' configured for device '%s'", name, device)
		case want != have:
			return fmt.Errorf("'%s' does not match for '%s' (%s != %s)", name, mapping, want, have)
		}
	}

	return nil
}

func bit(on bool) string {
	if on {
		return "1"
	}

	return "0"
}
