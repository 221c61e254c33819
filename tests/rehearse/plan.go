package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"talos-proxmox/components/preflight"
	opsplan "talos-proxmox/stacks/ops/plan"
	"talos-proxmox/stacks/planview"
	"talos-proxmox/tests/rehearsal"
)

// showPlan shows what is planned for a stack, and starts nothing: ops plan, under the name of a flag.
func showPlan(root string, stack *rehearsal.Stack, format string, out io.Writer) error {
	spec, p, err := opsplan.OfFile(stack.Path)
	if err != nil {
		return err
	}

	switch format {
	case "text":
		text, err := planview.Text(spec, p)
		if err != nil {
			return err
		}

		_, err = io.WriteString(out, text+"\nNothing was contacted: "+preflight.Unchecked+".\n")

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
