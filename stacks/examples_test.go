package stacks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talos-proxmox/stacks/planview"
	"talos-proxmox/tests/golden"
)

// TestExamples loads and plans each stack that is there. The golden files are what people see with --plan.
func TestExamples(t *testing.T) {
	for name, path := range map[string]string{
		"dev":         "../Pulumi.dev.yaml",
		"smallest":    "examples/Pulumi.smallest.yaml",
		"k3s":         "examples/Pulumi.k3s.yaml",
		"k3s-dev-vms": "examples/Pulumi.k3s-dev-vms.yaml",
		"atlas":       "examples/Pulumi.atlas.yaml",
		"platform":    "examples/Pulumi.platform.yaml",
		"enterprise":  "examples/Pulumi.enterprise.yaml",
	} {
		t.Run(name, func(t *testing.T) {
			config, err := LoadFile(path)
			if err != nil {
				t.Fatal(err)
			}

			p, err := config.Plan()
			if err != nil {
				t.Fatal(err)
			}

			text, err := planview.Text(config.Spec, p)
			if err != nil {
				t.Fatal(err)
			}

			golden.Check(t, filepath.Join("testdata", "plans", name+".txt"), text)
			golden.Check(t, filepath.Join("testdata", "plans", name+".svg"), planview.SVG(p))
		})
	}
}

// TestEveryExampleIsTested: a stack file without a golden plan would rot.
func TestEveryExampleIsTested(t *testing.T) {
	files, err := filepath.Glob("examples/Pulumi.*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}

	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "Pulumi."), ".yaml")
		if _, err := os.Stat(filepath.Join("testdata", "plans", name+".txt")); err != nil {
			t.Error(err)
		}
	}
}
