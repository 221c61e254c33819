package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"talos-proxmox/tests/engine"
)

// Binary is etcd, its utility and the control plane of Kubernetes.
type Binary struct {
	path string
	// Version of Kubernetes, "v1.37.2".
	Version string
}

// Open finds the binary, or builds it.
func Open(ctx context.Context) (*Binary, error) {
	path, version, err := engine.Kubernetes(ctx, engine.Options{})
	if err != nil {
		return nil, err
	}

	return &Binary{path: path, Version: version}, nil
}

// Run runs a command that ends by itself, and returns what it prints.
func (b *Binary) Run(ctx context.Context, args ...string) ([]byte, error) {
	var stderr bytes.Buffer

	cmd := exec.CommandContext(ctx, b.path, args...)
	cmd.Stderr = &stderr

	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", args[0], err, stderr.Bytes())
	}

	return out, nil
}

// Process is a server that runs until it is stopped, or until this process ends.
type Process struct {
	name string
	log  string
	cmd  *exec.Cmd
	life io.Closer // its standard input
	done chan struct{}
}

// start starts a server that writes its log into a directory.
func (b *Binary) start(dir, name string, args ...string) (*Process, error) {
	p := &Process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}

	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()

	p.cmd = exec.Command(b.path, append([]string{name}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = log, log, dir
	// A lab has a dozen of them on a few cores: a thread each works, and none looks for work in vain.
	p.cmd.Env = append(os.Environ(), "GOMAXPROCS=1")

	if p.life, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}

	if err := p.cmd.Start(); err != nil {
		return nil, err
	}

	go func() {
		_ = p.cmd.Wait() // its log says how it ended

		close(p.done)
	}()

	return p, nil
}

// Stop ends the process as a power failure does.
func (p *Process) Stop() {
	_ = p.cmd.Process.Kill()
	<-p.done
	_ = p.life.Close()
}

// Done is closed when the process has ended, however that was.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exited is how a process has ended by itself.
type Exited struct {
	Name string
	Code int
	Log  string // the end of it
}

func (e *Exited) Error() string {
	return fmt.Sprintf("%s has ended with code %d: %s", e.Name, e.Code, e.Log)
}

// Exited is how the process has ended, once it is done.
func (p *Process) Exited() *Exited {
	const killed = 128 + int(syscall.SIGKILL)

	code := p.cmd.ProcessState.ExitCode()
	if code < 0 {
		code = killed
	}

	return &Exited{Name: p.name, Code: code, Log: p.Tail()}
}

// Pause keeps the process from doing anything until Resume; others find that it does not answer.
func (p *Process) Pause() { _ = p.cmd.Process.Signal(syscall.SIGSTOP) } // nothing to pause where it has ended

// Resume lets it go on.
func (p *Process) Resume() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

// Cost is the time of processors that a process has used, once it has stopped, and the most memory that it had.
func (p *Process) Cost() (cpu time.Duration, memory int64) {
	state := p.cmd.ProcessState
	if state == nil {
		return 0, 0
	}

	return state.UserTime() + state.SystemTime(), maxResident(state)
}

// await asks again and again until an answer is nil, as long as the process runs.
func (p *Process) await(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if err == nil {
			return nil
		}

		select {
		case <-p.done:
			return p.Exited()
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %s", p.name, errors.Join(ctx.Err(), err), p.Tail())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Tail is the end of the log.
func (p *Process) Tail() string {
	const most = 4096

	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}

	return string(text[max(0, len(text)-most):])
}

// freePort is a port of an address that nothing listens at.
func freePort(address string) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return 0, err
	}
	defer l.Close()

	return l.Addr().(*net.TCPAddr).Port, nil
}
