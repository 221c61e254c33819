package rules

import (
	"strconv"
	"strings"

	"talos-proxmox/components/tokens"
)

func gpuRules(b *builder) []Rule {
	return []Rule{
		perResource(b, Rule{
			Name: "gpu-without-ballooning",
			Must: "A VM with a passed-through device must not balloon: the device writes to memory that the host would " +
				"reclaim.",
			Remedy: "Leave memory.floating out, or set it to 0.",
		}, except{}, gpuMemory),
		perResource(b, Rule{
			Name:   "gpu-machine-type",
			Must:   "A VM with a passed-through device must have machine type q35, which has PCI Express.",
			Remedy: "Set machine to q35; a clone that states none has its template's, which is not checked.",
		}, except{}, gpuMachine),
	}
}

// passesThrough says whether a VM is given devices of its host.
func passesThrough(r Resource) bool { return r.Type == tokens.VM && len(list(r.at("hostpcis"))) > 0 }

func gpuMemory(_ except, r Resource) []Finding {
	if floating := number(r.at("memory", "floating"), 0); passesThrough(r) && floating > 0 {
		return []Finding{r.finding("memory.floating", "must be 0 with hostpcis", strconv.Itoa(floating), "leave it out")}
	}

	return nil
}

func gpuMachine(_ except, r Resource) []Finding {
	machine := r.at("machine")
	if !passesThrough(r) || !known(machine) || strings.Contains(text(machine), "q35") {
		return nil
	}

	if text(machine) == "" && r.at("clone").IsMap() {
		return nil
	}

	value := text(machine)
	if value == "" {
		value = "none, which is i440fx"
	}

	return []Finding{r.finding("machine", "must be q35 with hostpcis", value, "set it to q35")}
}
