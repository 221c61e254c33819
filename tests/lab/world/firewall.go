package world

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// FirewallScope says which rules are meant: those of a VM, of a security group, or, when it is empty, of the cluster.
type FirewallScope struct {
	VMID  int
	Group string
}

func (s FirewallScope) environment() string {
	switch {
	case s.VMID != 0:
		return "vm"
	case s.Group != "":
		return "group"
	default:
		return "cluster"
	}
}

// firewall is one configuration file of the firewall: the cluster's or a VM's.
type firewall struct {
	options map[string]string
	rules   []FirewallRule
	ipsets  map[string]*ipset
	// groups are the security groups, which only the cluster has.
	groups map[string]*securityGroup
}

type securityGroup struct {
	comment string
	rules   []FirewallRule
}

func newFirewall() *firewall {
	return &firewall{options: map[string]string{}, ipsets: map[string]*ipset{}, groups: map[string]*securityGroup{}}
}

func (f *firewall) clone() *firewall {
	out := newFirewall()
	out.options = maps.Clone(f.options)

	for _, r := range f.rules {
		out.rules = append(out.rules, maps.Clone(r))
	}

	for name, s := range f.ipsets {
		out.ipsets[name] = &ipset{comment: s.comment, entries: slices.Clone(s.entries)}
	}

	return out
}

// firewallOf is the configuration of the cluster or of a VM. That of a VM comes into being when it is first asked for,
// whether there is such a VM or not.
func (w *World) firewallOf(at FirewallScope) *firewall {
	if at.VMID == 0 {
		return w.firewall
	}

	if w.firewalls[at.VMID] == nil {
		w.firewalls[at.VMID] = newFirewall()
	}

	return w.firewalls[at.VMID]
}

// rulesAt are the rules of a scope, to be changed.
func (w *World) rulesAt(at FirewallScope) (*[]FirewallRule, error) {
	if at.Group == "" {
		return &w.firewallOf(at).rules, nil
	}

	g := w.firewall.groups[at.Group]
	if g == nil {
		return nil, failf("no such security group '%s'", at.Group)
	}

	return &g.rules, nil
}

// digestOf is the checksum of a list of things with properties (pve-firewall: copy_list_with_digest).
func digestOf[M ~map[string]string](list ...M) string {
	h := sha1.New()

	for _, entry := range list {
		for _, key := range sortedKeys(entry) {
			fmt.Fprintf(h, "%s:%s\n", key, entry[key])
		}
	}

	return hex.EncodeToString(h.Sum(nil))
}

func modified(have, want string) error {
	if want != "" && have != want {
		return failf("detected modified configuration - file changed by other user? Try again.")
	}

	return nil
}

// FirewallRules returns the rules of a scope in their order, and their checksum.
func (w *World) FirewallRules(at FirewallScope) ([]FirewallRule, string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	rules, err := w.rulesAt(at)
	if err != nil {
		return nil, "", err
	}

	var list []FirewallRule
	for _, r := range *rules {
		list = append(list, maps.Clone(r))
	}

	return list, digestOf(*rules...), nil
}

// AddFirewallRule puts a rule before all others of a scope.
func (w *World) AddFirewallRule(at FirewallScope, r FirewallRule) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if err := verifyRuleValues(r); err != nil {
		return err
	}

	rules, err := w.rulesAt(at)
	if err != nil {
		return err
	}

	rule := FirewallRule{}
	rule.copy(r)

	if err := w.verifyRule(rule, at); err != nil {
		return err
	}

	if rule["enable"] == "" {
		rule["enable"] = "0"
	}

	*rules = slices.Insert(*rules, 0, rule.kept())

	return nil
}

// copy takes over properties; what is empty or "-" goes.
func (r FirewallRule) copy(from FirewallRule) {
	for key := range ruleSchema {
		switch value, ok := from[key]; {
		case !ok:
		case value == "" || value == "-":
			delete(r, key)
		default:
			r[key] = value
		}
	}
}

// kept is what the configuration file keeps of a rule.
func (r FirewallRule) kept() FirewallRule {
	out := maps.Clone(r)

	if out["enable"] != "0" {
		out["enable"] = "1"
	}

	if out["comment"] = strings.TrimSpace(out["comment"]); out["comment"] == "" {
		delete(out, "comment")
	}

	if out["type"] == "group" {
		for _, key := range []string{"macro", "proto", "source", "dest", "sport", "dport", "icmp-type", "log", "ipversion"} {
			delete(out, key)
		}
	}

	return out
}

// FirewallRuleUpdate changes a rule, or moves it and changes nothing.
type FirewallRuleUpdate struct {
	Set    FirewallRule
	MoveTo *int
	Delete []string
	Digest string
}

// UpdateFirewallRule changes or moves the rule at a position.
func (w *World) UpdateFirewallRule(at FirewallScope, pos int, u FirewallRuleUpdate) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if err := verifyRuleValues(u.Set); err != nil {
		return err
	}

	rules, err := w.ruleAt(at, pos, u.Digest)
	if err != nil {
		return err
	}

	if u.MoveTo != nil && *u.MoveTo != pos {
		// The position is that before the rule was taken out.
		to, rule := min(*u.MoveTo, len(*rules)), (*rules)[pos]

		*rules = slices.Delete(*rules, pos, pos+1)
		if to > pos {
			to--
		}

		*rules = slices.Insert(*rules, to, rule)

		return nil
	}

	rule := maps.Clone((*rules)[pos])
	rule.copy(u.Set)

	for _, key := range u.Delete {
		switch _, known := ruleSchema[key]; {
		case key == "type" || key == "action":
			return Invalid("delete", "unable to delete required property '%s'", key)
		case !known && key != "pos" && key != "digest":
			return Invalid("delete", "no such property ('%s')", key)
		default:
			delete(rule, key)
		}
	}

	if err := w.verifyRule(rule, at); err != nil {
		return err
	}

	(*rules)[pos] = rule.kept()

	return nil
}

// ruleAt are the rules of a scope, of which there is one at the position.
func (w *World) ruleAt(at FirewallScope, pos int, digest string) (*[]FirewallRule, error) {
	rules, err := w.rulesAt(at)
	if err != nil {
		return nil, err
	}

	if err := modified(digestOf(*rules...), digest); err != nil {
		return nil, err
	}

	if pos >= len(*rules) {
		return nil, failf("no rule at position %d", pos)
	}

	return rules, nil
}

// DeleteFirewallRule removes the rule at a position; those after it move up.
func (w *World) DeleteFirewallRule(at FirewallScope, pos int, digest string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	rules, err := w.ruleAt(at, pos, digest)
	if err != nil {
		return err
	}

	*rules = slices.Delete(*rules, pos, pos+1)

	return nil
}
