package rules

import (
	"fmt"

	"talos-proxmox/components/spec"
	"talos-proxmox/components/tokens"
)

func capacityRules(b *builder) []Rule {
	return []Rule{
		perStack(b, Rule{
			Name:   "host-capacity",
			Must:   "The VMs and containers of a host must not be promised more CPU or memory than the host has for them.",
			Remedy: "Move a VM to another host, make VMs smaller, or set the host's actual capacity.",
		}, capacitySettings{Hosts: b.facts.Room}, hostCapacity),
	}
}

type capacitySettings struct {
	except
	Hosts map[string]spec.Resources `json:"hosts" jsonschema_description:"Limit for all guests of each host, vcpu and memoryMiB; 0 or absent: unlimited. A host that is not named is not checked."`
}

// Defaults of the provider for what a guest does not state.
const (
	defaultCores     = 1
	defaultMemoryMiB = 512
)

func hostCapacity(s capacitySettings, stack Stack) []Finding {
	used, guests := map[string]spec.Resources{}, map[string]int{}

	for _, r := range stack.resources {
		if r.Type != tokens.VM && r.Type != tokens.Container || is(r.at("template"), true) {
			continue
		}

		host := text(r.at("nodeName"))
		u := used[host]
		u.VCPU += number(r.at("cpu", "cores"), defaultCores) * number(r.at("cpu", "sockets"), 1)
		u.MemoryMiB += number(r.at("memory", "dedicated"), defaultMemoryMiB)
		used[host] = u
		guests[host]++
	}

	var found []Finding

	over := func(host, what string, used, room int) {
		if room != 0 && used > room {
			found = append(found, Finding{Problem: spec.Problem{
				Path: "host " + host, Rule: fmt.Sprintf("must have the %s that its %d guests are promised", what, guests[host]),
				Value:  fmt.Sprintf("%d promised, %d to give", used, room),
				Remedy: "move a guest to another host, make guests smaller, or set the host's actual capacity",
			}})
		}
	}

	for _, host := range sortedKeys(used) {
		room := s.Hosts[host]
		over(host, "virtual CPUs", used[host].VCPU, room.VCPU)
		over(host, "MiB of memory", used[host].MemoryMiB, room.MemoryMiB)
	}

	return found
}
