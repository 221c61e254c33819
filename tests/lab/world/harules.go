package world

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// HARule says where high availability runs VMs: Proxmox VE 9 has rules instead of groups.
type HARule struct {
	// Kind is node-affinity or resource-affinity.
	Name, Kind, Comment string
	// Resources are "vm:401".
	Resources []string
	// Nodes are host names, each with a priority if it has one: "pve1:2".
	Nodes []string
	// Affinity is positive or negative.
	Affinity        string
	Strict, Disable bool
	// Order and Digest are those of the file; they are not stated.
	Order  int
	Digest string
	// Errors are what is wrong with the rule, by field.
	Errors map[string][]string
}

const nodeAffinity, resourceAffinity = "node-affinity", "resource-affinity"

// noGroups are refused since they have become rules.
func (w *World) noGroups(what string) error {
	if w.version.Major() > 8 {
		return failf("%s: ha groups have been migrated to rules", what)
	}

	return nil
}

// Upgrade moves a Proxmox VE 8 to 9: groups of high availability become rules with the VMs that were in them, which keep
// running. Who may do everything goes on to.
func (w *World) Upgrade() {
	w.mu.Lock()
	defer w.mu.Unlock()

	before := w.version.Privileges()
	w.version = Version9
	w.access.predefined = w.version.Roles()

	for _, paths := range w.access.grants {
		for path, privileges := range paths {
			if len(privileges) == len(before) {
				paths[path] = w.version.Privileges()
			}
		}
	}

	for _, g := range w.groups {
		rule := HARule{
			Name: "ha-group-" + g.Name, Kind: nodeAffinity, Comment: g.Comment, Nodes: g.Nodes, Strict: g.Restricted,
		}

		for _, id := range sortedKeys(w.ha) {
			if w.ha[id].Group == g.Name {
				rule.Resources = append(rule.Resources, w.ha[id].SID)
			}
		}

		if len(rule.Resources) > 0 {
			w.rules = append(w.rules, sortedRule(rule))
		}
	}

	for _, r := range w.ha {
		r.Group = ""
	}

	w.groups = nil
}

// HARules returns the rules, in their order.
func (w *World) HARules() []HARule {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.shownRules()
}

func (w *World) shownRules() []HARule {
	h := sha1.New()
	for _, r := range w.rules {
		fmt.Fprintf(h, "%+v\n", r)
	}

	wrong := w.infeasible(w.rules)
	shown := slices.Clone(w.rules)

	for i := range shown {
		shown[i].Order, shown[i].Digest, shown[i].Errors = i+1, hex.EncodeToString(h.Sum(nil)), wrong[shown[i].Name]
	}

	return shown
}

// HARule returns one rule.
func (w *World) HARule(name string) (HARule, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	i := slices.IndexFunc(w.rules, func(r HARule) bool { return r.Name == name })
	if i < 0 {
		return HARule{}, failf("no such ha rule '%s'", name)
	}

	return w.shownRules()[i], nil
}

// CreateHARule makes a rule (pve-ha-manager 5: API2/HA/Rules.pm).
func (w *World) CreateHARule(r HARule) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	const failed = "create ha rule failed: "

	if wrong := configID.complaint("rule", r.Name); wrong != "" {
		return Invalid("rule", "%s", wrong)
	}

	switch {
	case slices.ContainsFunc(w.rules, func(other HARule) bool { return other.Name == r.Name }):
		return failf(failed+"HA rule '%s' already defined", r.Name)
	case len(r.Resources) == 0:
		return failf(failed + "no resources were specified")
	}

	if err := w.checkRule(failed, r); err != nil {
		return err
	}

	return w.keepRules(failed, append(slices.Clone(w.rules), sortedRule(r)), r.Name)
}

// HARuleUpdate changes a rule. What is not given stays.
type HARuleUpdate struct {
	Resources, Nodes  []string
	Affinity, Comment *string
	Strict, Disable   *bool
	Delete            []string
	Digest            string
}

// UpdateHARule changes a rule.
func (w *World) UpdateHARule(name string, u HARuleUpdate) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	const failed = "update HA rules failed: "

	if u.Digest != "" && len(w.rules) > 0 && u.Digest != w.shownRules()[0].Digest {
		return failf(failed + "detected modified configuration - file changed by other user? Try again.")
	}

	i := slices.IndexFunc(w.rules, func(r HARule) bool { return r.Name == name })
	if i < 0 {
		return failf(failed+"HA rule '%s' does not exist", name)
	}

	next := slices.Clone(w.rules)
	r := &next[i]

	if len(u.Resources) > 0 {
		r.Resources = u.Resources
	}

	if len(u.Nodes) > 0 {
		r.Nodes = u.Nodes
	}

	set(&r.Affinity, u.Affinity)
	set(&r.Comment, u.Comment)

	for field, value := range map[*bool]*bool{&r.Strict: u.Strict, &r.Disable: u.Disable} {
		if value != nil {
			*field = *value
		}
	}

	for _, key := range u.Delete {
		switch key {
		case "comment":
			r.Comment = ""
		case "strict":
			r.Strict = false
		case "disable":
			r.Disable = false
		default:
			return failf(failed+"no such option '%s'", key)
		}
	}

	if err := w.checkRule(failed, *r); err != nil {
		return err
	}

	*r = sortedRule(*r)

	return w.keepRules(failed, next, name)
}

// DeleteHARule removes a rule; one that is not there is no error.
func (w *World) DeleteHARule(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.rules = slices.DeleteFunc(w.rules, func(r HARule) bool { return r.Name == name })
}

// sortedRule is a rule as its file keeps it.
func sortedRule(r HARule) HARule {
	r.Resources = slices.Compact(slices.Sorted(slices.Values(r.Resources)))
	r.Nodes = slices.Sorted(slices.Values(r.Nodes))

	return r
}

func (w *World) checkRule(failed string, r HARule) error {
	var unmanaged, unknown []string

	for _, sid := range r.Resources {
		if id, _, err := w.parseSID(sid); err != nil || w.ha[id] == nil {
			unmanaged = append(unmanaged, sid)
		}
	}

	for host := range priorities(r.Nodes) {
		if !slices.ContainsFunc(w.hosts, func(h *Host) bool { return h.Name == host }) {
			unknown = append(unknown, host)
		}
	}

	slices.Sort(unmanaged)
	slices.Sort(unknown)

	switch {
	case len(unmanaged) > 0:
		return failf(failed+"cannot use unmanaged resource(s) %s.", strings.Join(unmanaged, ", "))
	case len(unknown) > 0:
		return failf(failed+"cannot use non-existent node(s) %s.", strings.Join(unknown, ", "))
	default:
		return nil
	}
}

// keepRules takes rules unless the one that changes cannot be kept with the others. Why is lost on the way, as it is on
// real servers.
func (w *World) keepRules(failed string, rules []HARule, changed string) error {
	if len(w.infeasible(rules)[changed]) > 0 {
		return failf(failed+"400 Rule '%s' is invalid.", changed)
	}

	w.rules = rules

	for _, r := range rules {
		if r.Name == changed && r.Kind == nodeAffinity && !r.Disable {
			w.place(r)
		}
	}

	return nil
}

// place moves the running VMs of a rule to its hosts, of which high availability takes those with the highest priority.
// The world is locked.
func (w *World) place(r HARule) {
	ranks := priorities(r.Nodes)
	highest := slices.Max(slices.Collect(maps.Values(ranks)))

	maps.DeleteFunc(ranks, func(_ string, rank int) bool { return rank < highest })

	for _, sid := range r.Resources {
		id, _, err := w.parseSID(sid)
		if err != nil || !w.wanted(id) {
			continue
		}

		v := w.vms[id]
		if _, there := ranks[v.host]; there || v.run == nil || len(v.busy) > 0 {
			continue
		}

		w.startMigration(Caller{ID: superuser, manager: true}, v.host, id, MigrateRequest{
			Target: slices.Min(slices.Collect(maps.Keys(ranks))), Online: true, WithLocalDisks: true,
		})
	}
}

// priorities of hosts: "pve1:2".
func priorities(nodes []string) map[string]int {
	found := map[string]int{}

	for _, node := range nodes {
		host, text, _ := strings.Cut(node, ":")
		found[host], _ = strconv.Atoi(text)
	}

	return found
}

// infeasible are the rules that cannot be kept, with why, by field (pve-ha-manager 5: HA/Rules).
func (w *World) infeasible(rules []HARule) map[string]map[string][]string {
	found := map[string]map[string][]string{}
	blame := func(r HARule, why string) {
		if found[r.Name] == nil {
			found[r.Name] = map[string][]string{}
		}

		found[r.Name]["resources"] = append(found[r.Name]["resources"], why)
	}

	pinned := map[string][]HARule{}

	for _, r := range rules {
		if r.Kind != nodeAffinity || r.Disable {
			continue
		}

		for _, sid := range r.Resources {
			pinned[sid] = append(pinned[sid], r)
		}
	}

	for _, sid := range sortedKeys(pinned) {
		if len(pinned[sid]) > 1 {
			for _, r := range pinned[sid] {
				blame(r, fmt.Sprintf("resource '%s' is already used in another node affinity rule", sid))
			}
		}
	}

	for _, r := range rules {
		if r.Kind != resourceAffinity || r.Disable {
			continue
		}

		if len(r.Resources) < 2 {
			blame(r, "rule is ineffective as there are less than two resources")
		}

		if r.Affinity == "negative" && len(r.Resources) > len(w.hosts) {
			blame(r, "rule defines more resources than available nodes")
		}

		paired, ranked, located, allowed := map[string]HARule{}, false, 0, map[string]int{}

		for _, sid := range r.Resources {
			located += min(1, len(pinned[sid]))

			for _, p := range pinned[sid] {
				paired[p.Name] = p
				ranks := priorities(p.Nodes)
				ranked = ranked || len(slices.Compact(slices.Sorted(maps.Values(ranks)))) > 1

				maps.Copy(allowed, ranks)
			}
		}

		crowded := r.Affinity == "negative" && len(allowed) < located

		for _, name := range sortedKeys(paired) {
			if ranked {
				blame(paired[name], "resources are in a resource affinity rule and cannot be in a node affinity rule with "+
					"multiple priorities")
			}

			if crowded {
				blame(paired[name], "at least one resource is in a negative resource affinity rule and this rule would "+
					"restrict these to less nodes than available to the resources")
			}
		}

		if ranked {
			blame(r, "resources are in node affinity rules with multiple priorities")
		}

		if crowded {
			blame(r, "two or more resources are restricted to less nodes than available to the resources")
		}
	}

	return found
}

// leaveRules takes a VM out of all rules, and removes those that are left without one.
func (w *World) leaveRules(id int) {
	sid := fmt.Sprintf("vm:%d", id)

	for i := range w.rules {
		w.rules[i].Resources = slices.DeleteFunc(slices.Clone(w.rules[i].Resources), func(r string) bool { return r == sid })
	}

	w.rules = slices.DeleteFunc(w.rules, func(r HARule) bool { return len(r.Resources) == 0 })
}
