package rules

import (
	"strconv"
	"strings"
)

func gpuRules(b *builder) []Rule {
	return []Rule{
		perResource(b, Rule{
			Name:   "gpu-without-ballooning",
			Must:   "A VM with a device passed through must not balloon: the device writes into memory that the host would take away.",
			Remedy: "Leave memory.floating out, or set it to 0.",
		}, except{}, gpuMemory),
		perResource(b, Rule{
			Name:   "gpu-machine-type",
			Must:   "A VM with a device passed through must have machine type q35, which has PCI Express.",
			Remedy: "Set machine to q35; a clone that states none has its template's, which is not judged.",
		}, except{}, gpuMachine),
	}
}

// passesThrough says whether a VM is given devices of its host.
func passesThrough(r Resource) bool { return r.Type == typeVM && len(list(r.at("hostpcis"))) > 0 }

func gpuMemory(_ except, r Resource) []Finding {
	if floating := number(r.at("memory", "floating"), 0); passesThrough(r) && floating > 0 {
		return []Finding{r.finding("memory.floating", "must be 0 beside hostpcis", strconv.Itoa(floating), "leave it out")}
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

	return []Finding{r.finding("machine", "must be q35 beside hostpcis", value, "set it to q35")}
}
