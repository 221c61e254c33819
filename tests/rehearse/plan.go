package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"talos-proxmox/components"
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/stacks"
	"talos-proxmox/stacks/planview"
	"talos-proxmox/tests/rehearsal"
)

// showPlan shows what is planned for a stack, and starts nothing. Talos is asked what it thinks of the configurations.
func showPlan(root string, stack *rehearsal.Stack, format string, out io.Writer) error {
	config, err := stacks.LoadFile(stack.Path)
	if err != nil {
		return err
	}

	p, err := plan.New(config.Spec())
	if err != nil {
		return err
	}

	warnings, err := machineconfig.Check(p)
	if err != nil {
		return err
	}

	p.Warnings = append(p.Warnings, warnings...)

	switch format {
	case "text":
		text, err := planview.Text(config.Spec(), p)
		if err != nil {
			return err
		}

		_, err = io.WriteString(out, text+"\nNobody was asked: "+components.Unchecked+".\n")

		return err
	case "svg":
		path := filepath.Join(root, "rehearsal", stack.Name+".svg")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}

		if err := os.WriteFile(path, []byte(planview.SVG(p)), 0o600); err != nil {
			return err
		}

		_, err := fmt.Fprintln(out, path)

		return err
	default:
		return fmt.Errorf("--plan is text or svg, not %q", format)
	}
}
