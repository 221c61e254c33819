// Package plan plans a stack file, for the command that shows it.
package plan

import (
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/stacks/config"
)

// OfFile plans a stack file and has Talos validate the machine configurations of the plan, whose warnings hold what
// Talos advises. Nothing is contacted. The error holds everything that is wrong (spec.Problems).
func OfFile(path string) (spec.Spec, *plan.Plan, error) {
	c, err := config.LoadFile(path)
	if err != nil {
		return spec.Spec{}, nil, err
	}

	p, err := c.Plan()
	if err != nil {
		return spec.Spec{}, nil, err
	}

	warnings, err := machineconfig.Check(p)
	if err != nil {
		return spec.Spec{}, nil, err
	}

	p.Warnings = append(p.Warnings, warnings...)

	return c.Spec, p, nil
}
