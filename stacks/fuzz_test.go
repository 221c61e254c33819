package stacks

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"talos-proxmox/components/plan"
)

// FuzzParse: whatever stands in a stack file, it is a configuration that plans, or there are problems.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"../Pulumi.dev.yaml", "examples/*.yaml", "testdata/wrong/*.yaml"} {
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

		values, err := valuesOf(all)
		if err != nil {
			return // Pulumi would not take it either
		}

		c, err := Parse(withStandIns(values), root)
		if err == nil {
			if _, err := plan.New(c.Spec()); err != nil {
				t.Fatalf("Parse finds nothing wrong, plan.New does: %v", err)
			}

			return
		}

		var problems plan.Problems
		if !errors.As(err, &problems) {
			t.Fatalf("no list of problems: %v", err)
		}
	})
}
