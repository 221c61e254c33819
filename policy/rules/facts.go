package rules

import (
	"encoding/json"
	"fmt"

	"talos-proxmox/components/spec"
)

// Namespace of the keys in a stack's configuration that are for the rules; the pack has the same name.
const Namespace = "talos-proxmox-policy"

const (
	environmentKey = Namespace + ":environment"
	settingsKey    = Namespace + ":rules"
)

// Facts are what a stack's configuration tells the rules.
type Facts struct {
	// Environment decides whether rules enforce or advise.
	Environment spec.Environment
	// Cluster is the name of the stack's cluster; empty where the configuration is not this project's.
	Cluster string
	// Room is what the guests of each host may use in all, by the host's name; empty where no capacities are set.
	Room map[string]spec.Resources
	// Settings of rules, by the rule's name.
	Settings map[string]json.RawMessage
}

// ReadFacts reads the configuration of a stack of the given project. A configuration that is not this project's has
// only what is in the rules' own namespace.
func ReadFacts(project string, get func(key string) (string, bool)) (Facts, error) {
	f := Facts{Environment: spec.EnvironmentProduction}

	// The stack's program has reported whatever is wrong with its own keys.
	read := func(key string, to any) bool {
		value, ok := get(project + ":" + key)

		return ok && json.Unmarshal([]byte(value), to) == nil
	}

	// A stack of this project is a lab unless it says otherwise; of any other that is not to be assumed.
	if read("pools", &map[string]any{}) {
		f.Environment = spec.EnvironmentLab
	}

	if e, _ := get(project + ":environment"); environment(e) {
		f.Environment = spec.Environment(e)
	}

	if e, ok := get(environmentKey); ok {
		if !environment(e) {
			return f, fmt.Errorf("%s: must be %s or %s (given: %s); change the value", environmentKey, spec.EnvironmentLab,
				spec.EnvironmentProduction, e)
		}

		f.Environment = spec.Environment(e)
	}

	var cluster struct{ Name string }
	if read("cluster", &cluster) {
		f.Cluster = cluster.Name
	}

	f.Room = room(read)

	if value, ok := get(settingsKey); ok {
		if err := json.Unmarshal([]byte(value), &f.Settings); err != nil {
			return f, fmt.Errorf("%s: must be a block of settings by rule: %w", settingsKey, err)
		}
	}

	return f, nil
}

func environment(text string) bool {
	return text == string(spec.EnvironmentLab) || text == string(spec.EnvironmentProduction)
}

// room is the capacity of each host without its reserve, as placement has it.
func room(read func(key string, to any) bool) map[string]spec.Resources {
	var (
		proxmox   struct{ Hosts []spec.Host }
		placement spec.Placement
	)

	read("proxmox", &proxmox)
	read("placement", &placement)

	found := map[string]spec.Resources{}

	for _, h := range proxmox.Hosts {
		if h.Capacity == nil {
			continue
		}

		reserve := placement.Reserve
		if h.Reserve != nil {
			reserve = *h.Reserve
		}

		found[h.Name] = spec.Resources{
			VCPU:      h.Capacity.VCPU - reserve.VCPU,
			MemoryMiB: h.Capacity.MemoryMiB - reserve.MemoryMiB,
		}
	}

	return found
}
