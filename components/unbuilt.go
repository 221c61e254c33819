package components

import (
	"talos-proxmox/components/plan"
)

// asks is a part of the configuration that can be planned and not be carried out yet. value is what was asked for, empty
// when nothing was. Whoever builds a part deletes its line.
type asks struct {
	path  string
	value func(*plan.Plan) string
	// instead is what to do; "leave it out" when empty.
	instead string
}

var unbuiltOfCluster = []asks{
	{"machineSecrets", func(p *plan.Plan) string { return when(p.TakeOver, "set") }, ""},
}

// unbuilt finds what a plan asks for that these components cannot carry out yet. It is never passed over in silence.
func unbuilt(p *plan.Plan) plan.Problems {
	var problems plan.Problems

	refuse := func(path, value, instead string) {
		if instead == "" {
			instead = "leave it out"
		}

		if value != "" {
			problems.Add(path, "is not built yet: it can be planned, but not carried out", value, instead)
		}
	}

	for _, a := range unbuiltOfCluster {
		refuse(a.path, a.value(p), a.instead)
	}

	return problems
}

func when(asked bool, value string) string {
	if asked {
		return value
	}

	return ""
}
