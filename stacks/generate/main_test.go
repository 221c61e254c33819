package main

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestGenerated: the generated files of the repository are what the code makes of them.
func TestGenerated(t *testing.T) {
	t.Chdir("../..")

	all, err := generate()
	require.NoError(t, err)

	for path, want := range all {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Empty(t, cmp.Diff(string(text), want), "%s is not current: run go generate, and review the difference", path)
	}
}

// TestUnknownTypes: what a package of Pulumi cannot have is an error, not left out.
func TestUnknownTypes(t *testing.T) {
	c := converter{types: object{}, uses: map[string]string{}}
	c.properties(`{"$defs": {"Root": {"properties": {"nothing": {"type": "null"}}}}}`, "Root",
		func(name string) string { return name })
	require.Len(t, c.errs, 1)
	assert.EqualError(t, c.errs[0], "RootNothing has type null, which packages of Pulumi do not have")
}
