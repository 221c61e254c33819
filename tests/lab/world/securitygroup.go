package world

import (
	"maps"
	"slices"
)

// SecurityGroup is a named list of rules.
type SecurityGroup struct{ Name, Comment string }

// SecurityGroups returns the groups by name, and their checksum.
func (w *World) SecurityGroups() ([]SecurityGroup, string) {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.securityGroups()
}

func (w *World) securityGroups() ([]SecurityGroup, string) {
	var (
		list    []SecurityGroup
		entries []map[string]string
	)

	for _, name := range sortedKeys(w.firewall.groups) {
		g := SecurityGroup{Name: name, Comment: w.firewall.groups[name].comment}
		entry := map[string]string{"group": name}

		if g.Comment != "" {
			entry["comment"] = g.Comment
		}

		list, entries = append(list, g), append(entries, entry)
	}

	return list, digestOf(entries...)
}

// CreateSecurityGroup makes a group.
func (w *World) CreateSecurityGroup(name, comment string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if wrong := (schema{pattern: groupName, minLength: 2, maxLength: 18}).complaint("group", name); wrong != "" {
		return Invalid("group", "%s", wrong)
	}

	if w.firewall.groups[name] != nil {
		return Invalid("group", "Security group '%s' already exists", name)
	}

	w.firewall.groups[name] = &securityGroup{comment: comment}

	return nil
}

// RenameSecurityGroup gives a group another name, in all rules that use it, or, under its own name, another comment.
func (w *World) RenameSecurityGroup(old, name string, comment *string, digest string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	_, have := w.securityGroups()

	g := w.firewall.groups[old]

	switch {
	case modified(have, digest) != nil:
		return modified(have, digest)
	case g == nil:
		return Invalid("group", "Security group '%s' does not exist", old)
	case old != name && w.firewall.groups[name] != nil:
		return Invalid("group", "Security group '%s' does already exist", name)
	}

	set(&g.comment, comment)
	delete(w.firewall.groups, old)
	w.firewall.groups[name] = g

	for _, f := range append(slices.Collect(maps.Values(w.firewalls)), w.firewall) {
		for _, r := range f.rules {
			if r["type"] == "group" && r["action"] == old {
				r["action"] = name
			}
		}
	}

	return nil
}

// DeleteSecurityGroup removes an empty group.
func (w *World) DeleteSecurityGroup(name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	switch g := w.firewall.groups[name]; {
	case g == nil:
		return failf("no such security group '%s'", name)
	case len(g.rules) > 0:
		return failf("Security group '%s' is not empty", name)
	}

	delete(w.firewall.groups, name)

	return nil
}
