package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPipe: the CLI goes on to its end when the reader of its output goes away, and how it ended is known.
func TestPipe(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\nfor i in $(seq 5000); do echo line; done\ntouch done\nexit 3\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pulumi"), []byte(script), 0o700)) //nolint:gosec // it is run

	reader, writer, err := os.Pipe()
	require.NoError(t, err)

	before := os.Stdout
	os.Stdout = writer

	t.Cleanup(func() { os.Stdout = before })
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))

	ended := make(chan error)

	go func() { ended <- pulumi(dir, []string{"up"}) }()

	_, err = reader.Read(make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, reader.Close())

	var exit *exec.ExitError

	require.ErrorAs(t, <-ended, &exit)
	assert.Equal(t, 3, exit.ExitCode())
	assert.FileExists(t, filepath.Join(dir, "done"))
	require.NoError(t, writer.Close())
}
