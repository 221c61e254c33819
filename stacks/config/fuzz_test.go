package config

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"talos-proxmox/components/spec"
)

// FuzzDecode: whatever stands in a stack file, it is a configuration that plans, or there are problems.
func FuzzDecode(f *testing.F) {
	for _, pattern := range []string{"../../Pulumi.dev.yaml", "../examples/*.yaml", "testdata/wrong/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatal(pattern, err)
		}

		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}

			f.Add(text)
		}
	}

	root := f.TempDir()

	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := decodeFile(text)
		if err != nil {
			return // no YAML
		}

		values, _, err := valuesOf(all)
		if err != nil {
			return // Pulumi would not take it either
		}

		c, err := Decode(withPlaceholders(values), Secrets{}, root)
		if err == nil {
			if _, err := c.Plan(); err != nil {
				t.Fatalf("Decode finds nothing wrong, planner.Plan does: %v", err)
			}

			return
		}

		var problems spec.Problems
		if !errors.As(err, &problems) {
			t.Fatalf("no list of problems: %v", err)
		}
	})
}
