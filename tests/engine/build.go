package engine

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

const (
	progressInterval = 5 * time.Second
	// unusedFor is how long a build that this source does not lead to is kept: another checkout may be using it. Making it
	// again takes seconds, because the go command remembers what it compiled.
	unusedFor = 24 * time.Hour
)

// mostCores is how many cores a build keeps busy.
const mostCores = 8

// artefact is a program that is built once and then found in the cache.
type artefact struct {
	name    string   // of its kind, which begins its directory's name in the cache
	what    string   // the same for people
	binary  string   // path of the result below its directory
	dir     string   // of the module it is built in
	inputs  []string // files and directories that decide what comes out
	target  string   // the package, as given to go build
	ldflags string   // further flags of the linker
	tags    string   // of the build
	modules string   // path of the module file; empty: go.mod
	minutes int      // of computing that the build takes where nothing is compiled yet
	finish  []string // arguments with which the program is run once, to write what it needs next to itself
}

// builder builds artefacts into a cache that several processes share.
type builder struct {
	cache string
	log   io.Writer
}

// build returns the artefact's directory, after building it if need be.
func (b *builder) build(ctx context.Context, a artefact) (string, error) {
	key, err := a.key()
	if err != nil {
		return "", fmt.Errorf("%s: %w", a.what, err)
	}
	dir := filepath.Join(b.cache, a.name+"-"+key)
	if b.have(dir) {
		return dir, nil
	}
	unlock, err := b.lock(ctx, a.name, a.what)
	if err != nil {
		return "", err
	}
	defer unlock()
	if b.have(dir) { // another process was faster
		return dir, nil
	}

	b.prune(a.name)
	tmp, err := os.MkdirTemp(b.cache, a.name+temporary)
	if err != nil {
		return "", unwritable(b.cache, err)
	}
	defer os.RemoveAll(tmp)
	if err := b.compile(ctx, a, filepath.Join(tmp, a.binary)); err != nil {
		return "", fmt.Errorf("building %s: %w", a.what, err)
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}
	return dir, os.Rename(tmp, dir)
}

// have says whether a build is there, and marks it as used where the cache can be written.
func (b *builder) have(dir string) bool {
	now := time.Now()
	_ = os.Chtimes(dir, now, now)
	_, err := os.Stat(dir)
	return err == nil
}

// key is a digest of everything that decides what comes out of a build.
func (a artefact) key() (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOOS, runtime.GOARCH, a.binary, a.target, a.ldflags)
	if a.tags != "" {
		fmt.Fprintln(h, a.tags)
	}
	if a.modules != "" {
		fmt.Fprintln(h, filepath.Base(a.modules))
	}
	if len(a.finish) > 0 {
		fmt.Fprintln(h, a.finish)
	}
	for _, input := range a.inputs {
		// WalkDir goes in lexical order, so the digest does not depend on the file system.
		err := filepath.WalkDir(input, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(input, path)
			if err != nil {
				return err
			}
			fmt.Fprintf(h, "%s %d\n%s\n", filepath.ToSlash(name), len(content), content)
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// temporary is in the name of a directory that is being built into, by whoever holds the lock.
const temporary = "-unfinished-"

// prune removes what a killed process left behind, and builds of this kind that have long been unused.
func (b *builder) prune(name string) {
	siblings, _ := filepath.Glob(filepath.Join(b.cache, name+"-*"))
	for _, dir := range siblings {
		info, err := os.Stat(dir)
		if err != nil || !info.IsDir() {
			continue
		}
		if strings.Contains(filepath.Base(dir), temporary) || time.Since(info.ModTime()) > unusedFor {
			_ = os.RemoveAll(dir)
		}
	}
}

// compile runs go build, and shows how far it is.
func (b *builder) compile(ctx context.Context, a artefact, output string) error {
	goTool, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("this takes the go command: %w", err)
	}
	// -v names each package as it is compiled, which is all the progress that go build reports. Symbols are a third of
	// the size, and these are not debugged.
	cmd := exec.CommandContext(ctx, goTool, "build", "-v", "-mod=readonly", "-modfile="+a.modules, "-buildvcs=false",
		"-tags", a.tags, "-ldflags", strings.TrimSpace("-s -w "+a.ldflags), "-o", output, a.target)
	cmd.Dir = a.dir
	cmd.Env = append(os.Environ(), "GOWORK=off") // a workspace around the repository would not know the nested modules
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	p := progress{}
	cmd.Stderr = &p

	started := time.Now()
	fmt.Fprintf(b.log, "building %s: once, then it is in %s\n", a.what, b.cache)
	if a.minutes > 0 {
		cores := min(runtime.NumCPU(), mostCores)
		fmt.Fprintf(b.log, "  up to %d minutes where nothing is compiled yet (%d minutes of computing on %d cores); "+
			"if you interrupt it, it goes on from there\n", (a.minutes+cores-1)/cores, a.minutes, cores)
	}
	stop := every(progressInterval, func() {
		fmt.Fprintf(b.log, "  %4.0f s: %d modules downloaded, %d packages compiled\n",
			time.Since(started).Seconds(), p.downloaded.Load(), p.compiled.Load())
	})
	err = cmd.Run()
	stop()
	if err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("go build %s in %s: %w\n%s", a.target, a.dir, err, p.rest.String()))
	}
	if len(a.finish) > 0 {
		if text, err := exec.CommandContext(ctx, output, a.finish...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w\n%s", a.binary, strings.Join(a.finish, " "), err, text)
		}
	}
	info, err := os.Stat(output)
	if err != nil {
		return err
	}
	fmt.Fprintf(b.log, "  built in %.0f s, %d MB\n", time.Since(started).Seconds(), info.Size()>>20)
	return nil
}

// progress reads what go build -v says.
type progress struct {
	downloaded, compiled atomic.Int32
	line                 []byte
	rest                 bytes.Buffer // what is neither: errors
}

func (p *progress) Write(data []byte) (int, error) {
	p.line = append(p.line, data...)
	for {
		n, line, _ := bufio.ScanLines(p.line, false)
		if n == 0 {
			return len(data), nil
		}
		switch {
		case bytes.HasPrefix(line, []byte("go: downloading ")):
			p.downloaded.Add(1)
		case len(line) > 0 && !bytes.ContainsAny(line, " :#"):
			p.compiled.Add(1)
		default:
			p.rest.Write(line)
			p.rest.WriteByte('\n')
		}
		p.line = p.line[n:]
	}
}

// every calls f at an interval until the function it returns is called.
func every(interval time.Duration, f func()) (stop func()) {
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				f()
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-stopped }
}
