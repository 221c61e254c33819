package world

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// FirewallRule is a rule with its properties as the API has them: type (in, out, forward or group), action, enable,
// macro, proto, source, dest, sport, dport, icmp-type, iface, log, comment.
type FirewallRule map[string]string

// ruleSchema is what a rule can be made of (pve-firewall: Firewall.pm).
var ruleSchema = map[string]schema{
	"type":      oneOf("in", "out", "forward", "group"),
	"action":    {pattern: groupName, minLength: 2, maxLength: 20},
	"macro":     {maxLength: 128},
	"iface":     {},
	"source":    {valid: wrongAddresses, maxLength: 512},
	"dest":      {valid: wrongAddresses, maxLength: 512},
	"proto":     {valid: wrongProtocol},
	"enable":    atLeast(0),
	"log":       logLevels,
	"sport":     {valid: func(ports string) string { return wrongPorts(ports, false) }},
	"dport":     {valid: func(ports string) string { return wrongPorts(ports, true) }},
	"comment":   {},
	"icmp-type": {valid: wrongMessage},
}

var (
	groupName   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9\-_]+$`)
	aliasName   = regexp.MustCompile(`^(dc/|guest/)?[A-Za-z][A-Za-z0-9\-_]+$`)
	setName     = regexp.MustCompile(`^\+(guest/|dc/|sdn/)?([A-Za-z][A-Za-z0-9\-_]+)$`)
	ifaceName   = regexp.MustCompile(`(?i)^[a-z][a-z0-9_]{1,20}([:.]\d+)?$`)
	guestIface  = regexp.MustCompile(`^net\d+$`)
	singlePort  = regexp.MustCompile(`^\d+$`)
	portsBetwen = regexp.MustCompile(`^(\d+):(\d+)$`)
)

// verifyRuleValues checks each value by itself.
func verifyRuleValues(rule FirewallRule) error {
	for _, key := range sortedKeys(rule) {
		// Empty values and "-" take a property away.
		if s, ok := ruleSchema[key]; ok && rule[key] != "" && rule[key] != "-" {
			if wrong := s.complaint(key, rule[key]); wrong != "" {
				return Invalid(key, "%s", wrong)
			}
		}
	}

	return nil
}

// addressVersion reads an address list: the IP version of its addresses, 0 for a reference, and what is wrong with it.
func addressVersion(list string) (int, string) {
	if strings.HasPrefix(list, "+") {
		if len(list) > 65 {
			return 0, "ipset name too long"
		}

		return 0, ""
	}

	if aliasName.MatchString(list) {
		return 0, ""
	}

	elements := strings.Split(list, ",")
	if elements[len(elements)-1] == "" {
		return 0, "extraneous commas in list"
	}

	version, ranges := 0, false

	for _, element := range elements {
		v, isRange, wrong := addressElement(element)

		switch {
		case wrong != "":
			return 0, "invalid IP address: " + wrong
		case version != 0 && v != version:
			return 0, fmt.Sprintf("detected mixed ipv4/ipv6 addresses in address list '%s'", list)
		}

		version, ranges = v, ranges || isRange
	}

	if ranges && len(elements) > 1 {
		return 0, "you can't use a range in a list"
	}

	return version, ""
}

// addressElement reads an address, a network without host bits, or a range.
func addressElement(text string) (version int, isRange bool, wrong string) {
	first, last, isRange := strings.Cut(text, "-")
	address, length, isPrefix := strings.Cut(first, "/")

	a, err := netip.ParseAddr(strings.TrimSpace(address))
	if err != nil {
		return 0, false, "Cannot determine IP version for " + address
	}

	version = 6
	if a.Is4() {
		version = 4
	}

	if isRange {
		b, err := netip.ParseAddr(strings.TrimSpace(last))
		if err != nil || b.Is4() != a.Is4() || b.Less(a) {
			return 0, true, "Begin is greater than End " + text
		}
	}

	if isPrefix {
		n, err := strconv.Atoi(length)

		switch {
		case err != nil || n < 0:
			return 0, false, "Invalid prefix length /" + length
		case n > a.BitLen():
			return 0, false, fmt.Sprintf("Prefix length %d is longer than IP address (%d)", n, a.BitLen())
		case netip.PrefixFrom(a, n).Masked().Addr() != a:
			return 0, false, fmt.Sprintf("Invalid prefix %s/%d", bits(a), n)
		}
	}

	return version, isRange, ""
}

func bits(a netip.Addr) string {
	var b strings.Builder
	for _, x := range a.AsSlice() {
		fmt.Fprintf(&b, "%08b", x)
	}

	return b.String()
}

func wrongAddresses(list string) string {
	_, wrong := addressVersion(list)

	return wrong
}

func wrongProtocol(proto string) string {
	if n, err := strconv.Atoi(proto); err == nil && n >= 0 && n < 256 || slices.Contains(protocols, proto) {
		return ""
	}

	return fmt.Sprintf("unknown protocol '%s'", proto)
}

func wrongMessage(message string) string {
	if slices.Contains(icmpMessages, message) || slices.Contains(icmp6Messages, message) {
		return ""
	}

	return fmt.Sprintf("invalid icmp-type value '%s'", message)
}

// wrongPorts says what is wrong with a port list, in which messages of ICMP can stand for destination ports.
func wrongPorts(list string, messages bool) string {
	elements := strings.Split(list, ",")
	if elements[len(elements)-1] == "" {
		return "extraneous commas in list"
	}

	count, message := 0, false

	for _, element := range elements {
		switch m := portsBetwen.FindStringSubmatch(element); {
		case m != nil:
			count += 2
			from, _ := strconv.Atoi(m[1])
			to, _ := strconv.Atoi(m[2])

			switch {
			case from > 65535:
				return fmt.Sprintf("invalid port '%s'", m[1])
			case to > 65535:
				return fmt.Sprintf("invalid port '%s'", m[2])
			case from > to:
				return fmt.Sprintf("backwards range '%s' not allowed, did you mean '%s:%s'?", element, m[2], m[1])
			}
		case singlePort.MatchString(element):
			count++

			if n, err := strconv.Atoi(element); err != nil || n > 65535 {
				return fmt.Sprintf("invalid port '%s'", element)
			}
		case messages && wrongMessage(element) == "":
			message = true
		case !slices.Contains(services, element):
			return fmt.Sprintf("invalid port '%s'", element)
		}
	}

	switch {
	case message && count > 0:
		return "ICMP ports not allowed in port range"
	case count > 15:
		return "too many entries in port list (> 15 numbers)"
	default:
		return ""
	}
}

// directions are the types of rules by where the rules are.
var directions = map[string][]string{
	"vm": {"in", "out", "group"}, "cluster": {"in", "out", "forward", "group"}, "group": {"in", "out", "forward"},
}

// verifyRule checks a rule as a whole, and brings it into the form in which it is kept (pve-firewall: verify_rule).
func (w *World) verifyRule(rule FirewallRule, at FirewallScope) error {
	env := at.environment()

	switch kind, action := rule["type"], rule["action"]; {
	case kind == "":
		return Invalid("type", "missing property")
	case action == "":
		return Invalid("action", "missing property")
	case !slices.Contains(directions[env], kind):
		return Invalid("type", "invalid rule type '%s' for rule_env '%s'", kind, env)
	case kind == "forward" && action == "REJECT":
		return Invalid("action", "cannot define REJECT rules on forward chain")
	case kind != "group" && !slices.Contains([]string{"ACCEPT", "DROP", "REJECT"}, action):
		return Invalid("action", "unknown action '%s'", action)
	}

	switch iface := rule["iface"]; {
	case iface == "":
	case env == "group":
		return Invalid("type", "parameter -i not allowed for this rule type")
	case !ifaceName.MatchString(iface):
		return Invalid("iface", "invalid network interface name '%s'", iface)
	case env == "vm" && !guestIface.MatchString(iface):
		return Invalid("iface", `value does not match the regex pattern 'net\d+'`)
	}

	if macro := rule["macro"]; macro != "" {
		known, ok := macroNamed(macro)
		if !ok {
			return Invalid("macro", "unknown macro '%s'", macro)
		}

		rule["macro"] = known
	}

	if err := verifyRulePorts(rule); err != nil {
		return err
	}

	version, err := w.verifyRuleAddresses(rule, at)
	if err != nil {
		return err
	}

	if version != 0 {
		rule["ipversion"] = strconv.Itoa(version)
	} else {
		delete(rule, "ipversion")
	}

	return verifyMacroUse(rule)
}

func verifyRulePorts(rule FirewallRule) error {
	proto := rule["proto"]
	icmp := map[string][]string{
		"icmp": icmpMessages, "icmpv6": icmp6Messages, "ipv6-icmp": icmp6Messages,
		"1": icmpMessages, "58": icmp6Messages,
	}[proto]

	for _, key := range []string{"dport", "sport"} {
		ports := rule[key]
		if ports == "" {
			continue
		}

		messages := key == "dport" && icmp != nil

		switch wrong := wrongPorts(ports, messages); {
		case wrong != "":
			return Invalid(key, "%s", wrong)
		case proto == "":
			return Invalid("proto", "missing property - '%s' requires this property", key)
		case !slices.Contains(withPorts, proto) && !messages:
			return Invalid(key, "protocol '%s' does not support ports", proto)
		}
	}

	switch message := rule["icmp-type"]; {
	case message == "":
	case icmp == nil:
		return Invalid("proto", "missing property - 'icmp-type' requires this property")
	case rule["dport"] != "":
		return Invalid("icmp-type", "'icmp-type' cannot be specified together with 'dport'")
	case !slices.Contains(icmp, message):
		return Invalid("icmp-type", "invalid icmp-type '%s' for proto '%s'", message, proto)
	}

	return nil
}

// verifyRuleAddresses returns the IP version that the rule is of, 0 when it is of both.
func (w *World) verifyRuleAddresses(rule FirewallRule, at FirewallScope) (int, error) {
	version := map[string]int{"icmp": 4, "icmpv6": 6, "ipv6-icmp": 6}[rule["proto"]]

	for _, key := range []string{"source", "dest"} {
		list := rule[key]
		if list == "" {
			continue
		}

		v, wrong := addressVersion(list)

		switch {
		case wrong != "":
			return 0, Invalid(key, "%s", wrong)
		case v != 0 && version != 0 && v != version:
			return 0, Invalid(key, "detected mixed ipv4/ipv6 addresses in rule")
		case v != 0:
			version = v
		}

		if err := w.verifyReference(key, list, at); err != nil {
			return 0, err
		}
	}

	return version, nil
}

func (w *World) verifyReference(key, list string, at FirewallScope) error {
	switch m := setName.FindStringSubmatch(list); {
	case strings.HasPrefix(list, "+") && m == nil:
		return Invalid(key, "invalid ipset name '%s'", list)
	case m != nil:
		if w.sets(FirewallScope{})[m[2]] == nil && w.sets(at)[m[2]] == nil {
			return Invalid(key, "no such ipset '%s'", m[2])
		}
	case aliasName.MatchString(list):
		// The lab has no aliases.
		return Invalid(key, "no such alias '%s'", list)
	}

	return nil
}

// verifyMacroUse refuses what contradicts the rules that a macro stands for.
func verifyMacroUse(rule FirewallRule) error {
	for _, m := range firewallMacros[rule["macro"]] {
		for _, c := range []struct{ key, fixed string }{{"dport", m.dport}, {"proto", m.proto}, {"sport", m.sport}} {
			if c.fixed != "" && rule[c.key] != "" && rule[c.key] != c.fixed {
				return Invalid(c.key, "parameter '%s' already define in macro (value = '%s')", c.key, c.fixed)
			}
		}
	}

	return nil
}
