package world

import (
	"fmt"
	"maps"
	"time"
)

var policies = oneOf("ACCEPT", "REJECT", "DROP")

// firewallOptions are what can be set for a VM and for the cluster.
var firewallOptions = map[string]map[string]schema{
	"vm": {
		"enable": flag, "macfilter": flag, "dhcp": flag, "ndp": flag, "radv": flag, "ipfilter": flag, "policy_in": policies,
		"policy_out":   policies,
		"log_level_in": logLevels, "log_level_out": logLevels,
	},
	"cluster": {
		"enable": atLeast(0), "ebtables": flag, "policy_in": policies, "policy_out": policies,
		"policy_forward": oneOf("ACCEPT", "DROP"),
		"log_ratelimit": inFormat(format{
			"enable": {schema: flag, main: true, required: true},
			"rate":   {schema: matching(`[1-9][0-9]*/(second|minute|hour|day)`)},
			"burst":  {schema: atLeast(0)},
		}),
	},
}

// FirewallOptions returns what is set, and its checksum.
func (w *World) FirewallOptions(at FirewallScope) (map[string]string, string) {
	w.mu.Lock()
	defer w.mu.Unlock()

	f := w.firewallOf(at)

	return maps.Clone(f.options), digestOf(f.options)
}

// SetFirewallOptions changes what is set.
func (w *World) SetFirewallOptions(at FirewallScope, set map[string]string, remove []string, digest string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	known, f := firewallOptions[at.environment()], w.firewallOf(at)

	for _, key := range sortedKeys(set) {
		if wrong := known[key].complaint(key, set[key]); wrong != "" {
			return Invalid(key, "%s", wrong)
		}
	}

	if err := modified(digestOf(f.options), digest); err != nil {
		return err
	}

	next := maps.Clone(f.options)

	for _, key := range remove {
		if _, ok := known[key]; !ok {
			return Invalid("delete", "no such option '%s'", key)
		}

		delete(next, key)
	}

	maps.Copy(next, set)

	// The cluster's is also the time since when it is on.
	if at.VMID == 0 && set["enable"] != "" && set["enable"] != "0" && set["enable"] != "1" {
		next["enable"] = fmt.Sprint(time.Now().Unix())
	}

	f.options = next

	return nil
}
