// Package golden compares what a test makes with a file of the repository.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the files that tests compare with")

// Check holds the file at a path, relative to the package, to a text. With -update it writes the file.
func Check(t *testing.T, path, text string) {
	t.Helper()

	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // a directory of the repository
			t.Fatal(err)
		}

		if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s is not current; run the tests of this package with -update\n%s", path, diff)
	}
}
