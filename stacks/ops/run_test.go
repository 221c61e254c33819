package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

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

	var exit endedError

	require.ErrorAs(t, <-ended, &exit)
	assert.Equal(t, 3, exit.ExitCode())
	assert.FileExists(t, filepath.Join(dir, "done"))
	require.NoError(t, writer.Close())
}

// TestSignals: without a terminal, a signal that reaches this process reaches the CLI, once.
func TestSignals(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\ntrap 'echo >>caught' TERM\ntouch ready\nfor i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done\nexit 4\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pulumi"), []byte(script), 0o700)) //nolint:gosec // it is run
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))

	before := os.Stdin
	t.Cleanup(func() { os.Stdin = before })

	var err error
	os.Stdin, err = os.Open(os.DevNull)
	require.NoError(t, err)

	ended := make(chan error)

	go func() { ended <- pulumi(dir, []string{"up"}) }()

	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, "ready"))

		return err == nil
	}, time.Minute, time.Millisecond)
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))

	var exit endedError

	require.ErrorAs(t, <-ended, &exit)
	assert.Equal(t, 4, exit.ExitCode(), "it is for the CLI to end")

	caught, err := os.ReadFile(filepath.Join(dir, "caught"))
	require.NoError(t, err)
	assert.Equal(t, "\n", string(caught))
}
