package command_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/command"
)

type result struct {
	Seed int
	Said string
}

func TestResults(t *testing.T) {
	f := command.Results[result]{
		Path: filepath.Join(t.TempDir(), "results.json"), Key: func(r result) string { return strconv.Itoa(r.Seed) },
	}

	none, err := f.Read()
	require.NoError(t, err)
	assert.Empty(t, none)

	for _, r := range []result{{1, "failed"}, {2, "went well"}, {1, "went well"}} {
		require.NoError(t, f.Append(r))
	}

	all, err := f.Read()
	require.NoError(t, err)
	assert.Equal(t, []result{{2, "went well"}, {1, "went well"}}, all, "the last of each")

	text, err := os.ReadFile(f.Path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(f.Path, text[:len(text)-3], 0o600))

	all, err = f.Read()
	require.NoError(t, err)
	assert.Equal(t, []result{{1, "failed"}, {2, "went well"}}, all, "a line that was cut off is left out")

	require.NoError(t, os.WriteFile(f.Path, []byte("no JSON\n"), 0o600))

	_, err = f.Read()
	require.ErrorContains(t, err, f.Path+": invalid character")
}

func TestResultsNowhere(t *testing.T) {
	f := command.Results[result]{}
	require.NoError(t, f.Append(result{1, "went well"}))

	all, err := f.Read()
	require.NoError(t, err)
	assert.Empty(t, all)
}
