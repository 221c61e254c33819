package engine

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// write makes files below a new directory, from paths and contents.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		mode := os.FileMode(0o600)
		if strings.HasPrefix(content, "#!") {
			mode = 0o700
		}
		require.NoError(t, os.WriteFile(path, []byte(content), mode))
	}
	return dir
}

// hello is the smallest artefact.
func hello(t *testing.T, code string) artefact {
	dir := write(t, map[string]string{"go.mod": "module hello\n\ngo 1.26\n", "main.go": code})
	return artefact{name: "hello", what: "a greeting", binary: "bin/hello", dir: dir, inputs: []string{dir}, target: "."}
}

const compiles, doesNot = "package main\n\nfunc main() {}\n", "package main\n\nfunc main() { return 1 }\n"

// syncBuffer is a log of several builders.
type syncBuffer struct {
	sync.Mutex
	bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.Lock()
	defer b.Unlock()
	return b.Buffer.Write(p)
}

func TestKey(t *testing.T) {
	key := func(a artefact) string {
		k, err := a.key()
		require.NoError(t, err)
		return k
	}
	a := hello(t, compiles)
	first := key(a)
	require.Equal(t, first, key(hello(t, compiles)), "where the source lies does not matter")

	require.NoError(t, os.WriteFile(filepath.Join(a.dir, "main_test.go"), []byte("package main\n"), 0o600))
	require.Equal(t, first, key(a), "nor do its tests")

	flags := a
	flags.ldflags = "-X main.version=1"
	require.NotEqual(t, first, key(flags))

	require.NoError(t, os.WriteFile(filepath.Join(a.dir, "go.sum"), nil, 0o600))
	require.NotEqual(t, first, key(a), "a new file does")
}

func TestBuildOnce(t *testing.T) {
	a, cache := hello(t, compiles), t.TempDir()
	// What a killed process left behind is cleared away.
	require.NoError(t, os.Mkdir(filepath.Join(cache, a.name+temporary+"1"), 0o700))
	// A build of another checkout stays for a while, and not for ever.
	recent, old := filepath.Join(cache, a.name+"-recent"), filepath.Join(cache, a.name+"-old")
	require.NoError(t, os.Mkdir(recent, 0o700))
	require.NoError(t, os.Mkdir(old, 0o700))
	long := time.Now().Add(-2 * unusedFor)
	require.NoError(t, os.Chtimes(old, long, long))

	var log syncBuffer
	var all sync.WaitGroup
	for range 4 { // the lock is on an open file, so goroutines contend for it as processes do
		all.Go(func() {
			dir, err := (&builder{cache: cache, log: &log}).build(t.Context(), a)
			if err == nil {
				_, err = os.Stat(filepath.Join(dir, a.binary))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Equal(t, 1, strings.Count(log.String(), "building a greeting"), log.String())
	require.Contains(t, log.String(), "waiting for another process that makes a greeting")

	key, err := a.key()
	require.NoError(t, err)
	require.ElementsMatch(t, []string{a.name + "-" + key, a.name + "-recent", a.name + ".lock"}, names(t, cache))
}

func TestBuildFails(t *testing.T) {
	a, cache := hello(t, doesNot), t.TempDir()
	_, err := (&builder{cache: cache, log: &syncBuffer{}}).build(t.Context(), a)
	require.ErrorContains(t, err, "building a greeting: go build . in "+a.dir)
	require.ErrorContains(t, err, "too many return values", "with what the compiler said")
	require.Equal(t, []string{a.name + ".lock"}, names(t, cache), "and nothing is left of it")
}

// TestReadOnlyCache: what is there is taken, and what is not cannot be built.
func TestReadOnlyCache(t *testing.T) {
	a, cache := hello(t, compiles), "/proc/self"
	_, err := (&builder{cache: cache, log: &syncBuffer{}}).build(t.Context(), a)
	require.ErrorContains(t, err, "nothing can be built into "+cache)
	require.ErrorContains(t, err, "set "+CacheVariable+" to a directory that can be written")
	require.True(t, (&builder{cache: cache}).have(filepath.Join(cache, "fd")))

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = cacheDir(filepath.Join(file, "cache"))
	require.ErrorContains(t, err, "set "+CacheVariable)
}

func TestWaitingEnds(t *testing.T) {
	b := &builder{cache: t.TempDir(), log: &syncBuffer{}}
	unlock, err := b.lock(t.Context(), "hello", "a greeting")
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.lock(ctx, "hello", "a greeting")
	require.ErrorIs(t, err, context.Canceled)

	unlock()
	unlock, err = b.lock(t.Context(), "hello", "a greeting")
	require.NoError(t, err)
	unlock()
}

func TestProgress(t *testing.T) {
	var p progress
	for _, piece := range []string{
		"go: downloading example.org/a v1.0.0\nruntime\nexample.",
		"org/a\n# example.org/a\na.go:1: no\n",
	} {
		_, err := p.Write([]byte(piece))
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, p.downloaded.Load())
	require.EqualValues(t, 2, p.compiled.Load())
	require.Equal(t, "# example.org/a\na.go:1: no\n", p.rest.String())
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	result := make([]string, len(entries))
	for i, e := range entries {
		result[i] = e.Name()
	}
	return result
}
