package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks/ops/importcmd"
)

// TestNext: --dir may be absolute where the project is not, as findProject leaves it.
func TestNext(t *testing.T) {
	t.Chdir(t.TempDir())

	work, err := filepath.Abs(".")
	require.NoError(t, err)

	for _, c := range []struct{ project, file, want string }{
		{".", filepath.Join(work, "backups", "dev.import.json"), "-s dev run import --file backups/dev.import.json "},
		{
			"..", filepath.Join(work, "dev.import.json"),
			"-C .. -s dev run import --file " + filepath.Base(work) + "/dev.import.json ",
		},
		{
			".", "state-backups/dev.import.json",
			"-s dev run import --file state-backups/dev.import.json --generate-code=false\n",
		},
		{
			"my stacks", "my stacks/backups/dev.import.json", // as one word of a shell
			"-C 'my stacks' -s dev run import --file backups/dev.import.json ",
		},
		{".", "my backups/dev.import.json", "-s dev run import --file 'my backups/dev.import.json' "},
	} {
		var out strings.Builder

		require.NoError(t, next(&options{project: c.project, stack: "dev", out: &out}, importcmd.Files{Import: c.file}))
		assert.Contains(t, out.String(), c.want)
	}
}
