package stacks

import (
	"os"
	"strings"
	"testing"
)

// TestSmallestStack: the pages show the file that is tested.
func TestSmallestStack(t *testing.T) {
	file, err := os.ReadFile("examples/Pulumi.smallest.yaml")
	if err != nil {
		t.Fatal(err)
	}

	_, stack, _ := strings.Cut(string(file), "\n")

	for _, name := range []string{"docs/configuration.md", "../README.md"} {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}

		if !strings.Contains(string(page), "```yaml\n"+stack+"```\n") {
			t.Errorf("%s does not show examples/Pulumi.smallest.yaml", name)
		}
	}
}
