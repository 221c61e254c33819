package world

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// ipset is a named set of addresses.
type ipset struct {
	comment string
	entries []IPSetEntry
}

// IPSetEntry is an address or network of a set.
type IPSetEntry struct {
	CIDR, Comment string
	// NoMatch entries are exceptions.
	NoMatch bool
}

func (e IPSetEntry) properties() map[string]string {
	out := map[string]string{"cidr": e.CIDR}

	if e.Comment != "" {
		out["comment"] = e.Comment
	}

	if e.NoMatch {
		out["nomatch"] = "1"
	}

	return out
}

// IPSet is a set without what is in it.
type IPSet struct{ Name, Comment string }

func (w *World) sets(at FirewallScope) map[string]*ipset {
	if at.Group != "" {
		at = FirewallScope{}
	}

	return w.firewallOf(at).ipsets
}

// IPSets returns the sets of a VM or of the cluster by name, and their checksum.
func (w *World) IPSets(at FirewallScope) ([]IPSet, string) {
	w.mu.Lock()
	defer w.mu.Unlock()

	var (
		list    []IPSet
		entries []map[string]string
	)

	for _, name := range sortedKeys(w.sets(at)) {
		s := IPSet{Name: name, Comment: w.sets(at)[name].comment}
		entry := map[string]string{"name": name}

		if s.Comment != "" {
			entry["comment"] = s.Comment
		}

		list, entries = append(list, s), append(entries, entry)
	}

	return list, digestOf(entries...)
}

// CreateIPSet makes a set, or renames one.
func (w *World) CreateIPSet(at FirewallScope, name, rename string, comment *string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if wrong := (schema{pattern: groupName, minLength: 2, maxLength: 64}).complaint("name", name); wrong != "" {
		return Invalid("name", "%s", wrong)
	}

	sets := w.sets(at)

	if rename == "" {
		if sets[name] != nil {
			return Invalid("name", "IPSet '%s' already exists", name)
		}

		sets[name] = &ipset{}
		set(&sets[name].comment, comment)

		return nil
	}

	switch {
	case sets[rename] == nil:
		return Invalid("name", "IPSet '%s' does not exist", rename)
	case rename != name && sets[name] != nil:
		return Invalid("name", "IPSet '%s' does already exist", name)
	}

	s := sets[rename]
	set(&s.comment, comment)
	delete(sets, rename)
	sets[name] = s

	return nil
}

func (w *World) set(at FirewallScope, name string) (*ipset, error) {
	s := w.sets(at)[name]
	if s == nil {
		return nil, failf("no such IPSet '%s'", name)
	}

	return s, nil
}

// DeleteIPSet removes a set, and what is in it only by force.
func (w *World) DeleteIPSet(at FirewallScope, name string, force bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	s, err := w.set(at, name)
	if err != nil {
		return err
	}

	if len(s.entries) > 0 && !force {
		return failf("IPSet '%s' is not empty", name)
	}

	delete(w.sets(at), name)

	return nil
}

// IPSetEntries returns what is in a set, newest first, and its checksum.
func (w *World) IPSetEntries(at FirewallScope, name string) ([]IPSetEntry, string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	s, err := w.set(at, name)
	if err != nil {
		return nil, "", err
	}

	return slices.Clone(s.entries), s.digest(), nil
}

func (s *ipset) digest() string {
	var list []map[string]string
	for _, e := range s.entries {
		list = append(list, maps.Clone(e.properties()))
	}

	return digestOf(list...)
}

// AddToIPSet puts an address or network into a set.
func (w *World) AddToIPSet(at FirewallScope, name string, e IPSetEntry) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	cidr, wrong := plainCIDR(e.CIDR)
	if wrong != "" {
		return Invalid("cidr", "invalid format - %s", wrong)
	}

	s, err := w.set(at, name)

	switch {
	case err != nil:
		return err
	case slices.ContainsFunc(s.entries, func(o IPSetEntry) bool { return o.CIDR == cidr }):
		return Invalid("cidr", "address '%s' already exists", cidr)
	case strings.HasSuffix(cidr, "/0"):
		return Invalid("cidr", "a zero prefix is not allowed in ipset entries")
	}

	e.CIDR = cidr
	s.entries = slices.Insert(s.entries, 0, e)

	return nil
}

// plainCIDR is an address or a network without host bits; a network of one address is that address.
func plainCIDR(text string) (string, string) {
	if a, err := netip.ParseAddr(text); err == nil {
		return a.String(), ""
	}

	p, err := netip.ParsePrefix(text)
	if err != nil {
		return "", "value does not look like a valid IP address or CIDR network"
	}

	if p.IsSingleIP() {
		return p.Addr().String(), ""
	}

	return p.Masked().String(), ""
}

// UpdateIPSetEntry gives an entry another comment, and says whether it is an exception.
func (w *World) UpdateIPSetEntry(at FirewallScope, name string, e IPSetEntry, digest string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	s, err := w.set(at, name)
	if err != nil {
		return err
	}

	if err := modified(s.digest(), digest); err != nil {
		return err
	}

	i := slices.IndexFunc(s.entries, func(o IPSetEntry) bool { return o.CIDR == e.CIDR })
	if i < 0 {
		return Invalid("cidr", "no such IP/Network")
	}

	s.entries[i] = e

	return nil
}

// RemoveFromIPSet takes an entry out of a set; one that is not in it needs no removal.
func (w *World) RemoveFromIPSet(at FirewallScope, name, cidr, digest string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	s, err := w.set(at, name)
	if err != nil {
		return err
	}

	if err := modified(s.digest(), digest); err != nil {
		return err
	}

	s.entries = slices.DeleteFunc(s.entries, func(o IPSetEntry) bool { return o.CIDR == cidr })

	return nil
}
