package sshd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"

	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/world"
)

// shell is a user's login shell on a host. It runs scripts as bash does, on a host that has no files.
type shell struct {
	server *Server
	user   string
	// root says on whose behalf a command runs.
	root      bool
	in        io.Reader
	out, errs io.Writer
	// severed says that a fault has cut the connection.
	severed *atomic.Bool
}

// run runs a script and returns its exit status.
func (s *shell) run(ctx context.Context, script string, params ...string) int {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(script), "bash")
	if err != nil {
		fmt.Fprintln(s.errs, err)

		return 2
	}

	runner, err := interp.New(
		interp.StdIO(s.in, s.out, s.errs), interp.Params(append([]string{"--"}, params...)...), interp.Dir("/"),
		interp.Env(expand.ListEnviron("PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "SHELL=/bin/bash", "USER="+s.user)),
		interp.ExecHandlers(func(interp.ExecHandlerFunc) interp.ExecHandlerFunc { return s.exec }),
		interp.OpenHandler(s.open), interp.StatHandler(noStat), interp.ReadDirHandler2(noReadDir),
	)
	if err != nil {
		fmt.Fprintln(s.errs, err)

		return 1
	}

	var status interp.ExitStatus

	switch err := runner.Run(ctx, file); {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	default:
		fmt.Fprintln(s.errs, err)

		return 1
	}
}

// There are no files that a script could read or write, but the one that holds nothing.
func (s *shell) open(_ context.Context, path string, _ int, _ os.FileMode) (io.ReadWriteCloser, error) {
	if path == "/dev/null" {
		return null{}, nil
	}

	s.server.journal.Refused(journal.SSH, s.server.host, "open "+path, "the lab's hosts have no files")

	return nil, &os.PathError{Op: "open", Path: path, Err: os.ErrNotExist}
}

type null struct{}

func (null) Read([]byte) (int, error)    { return 0, io.EOF }
func (null) Write(p []byte) (int, error) { return len(p), nil }
func (null) Close() error                { return nil }

func noStat(_ context.Context, name string, _ bool) (os.FileInfo, error) {
	return nil, &os.PathError{Op: "stat", Path: name, Err: os.ErrNotExist}
}

func noReadDir(_ context.Context, path string) ([]os.DirEntry, error) {
	return nil, &os.PathError{Op: "readdir", Path: path, Err: os.ErrNotExist}
}

// errReset ends a script whose connection a fault has cut.
var errReset = errors.New("connection reset")

// process is a command that runs.
type process struct {
	*shell

	ctx       context.Context //nolint:containedctx // ends with the command
	args      []string
	in        io.Reader
	out, errs io.Writer
}

// exec runs one command.
func (s *shell) exec(ctx context.Context, args []string) error {
	hc := interp.HandlerCtx(ctx)

	p := &process{shell: s, ctx: ctx, args: args, in: hc.Stdin, out: hc.Stdout, errs: hc.Stderr}

	switch code := p.command(); {
	case s.severed.Load():
		return errReset
	case code > 0:
		return interp.ExitStatus(code)
	default:
		return nil
	}
}

// command returns the exit status.
func (p *process) command() int {
	name := p.args[0][strings.LastIndex(p.args[0], "/")+1:]

	switch name {
	case "bash", "sh":
		if len(p.args) > 2 && p.args[1] == "-c" {
			inner := *p.shell
			inner.in, inner.out, inner.errs = p.in, p.out, p.errs

			return inner.run(p.ctx, p.args[2], p.args[3:]...)
		}
	case "sudo":
		return p.sudo()
	case "grep":
		return p.grep()
	case "cut":
		return p.cut()
	case "wc":
		return p.wc()
	case "id":
		return p.id()
	case "pvesm", "qm":
		return p.proxmox(name)
	case "tee":
		return p.tee()
	}

	return p.unknown(name)
}

// unknown is what a shell says of a command that is not there. That the lab lacks it is noted.
func (p *process) unknown(name string) int {
	p.server.journal.Refused(journal.SSH, p.server.host, strings.Join(p.args, " "), "the lab's hosts have no such command")

	return p.notFound(name)
}

func (p *process) notFound(name string) int {
	fmt.Fprintf(p.errs, "bash: line 1: %s: command not found\n", name)

	return 127
}

// sudo is not installed on a host unless a user other than root needs it.
func (p *process) sudo() int {
	switch {
	case !p.server.login.Sudo && p.user == "root":
		return p.notFound("sudo")
	case !p.server.login.Sudo:
		fmt.Fprintln(p.errs, "sudo: a password is required")

		return 1
	}

	inner := *p
	as := *p.shell
	as.root = true
	inner.shell = &as

	inner.args = slices.DeleteFunc(slices.Clone(p.args[1:]), func(a string) bool { return a == "-n" })
	if len(inner.args) == 0 {
		return p.unknown("sudo")
	}

	// The path of a user without a terminal has no administrators' programs since the system below Proxmox VE 9.
	if name := inner.args[0]; p.server.world.Version().Major() > 8 && (name == "pvesm" || name == "qm") {
		fmt.Fprintf(p.errs, "sudo: %s: command not found\n", name)

		return 1
	}

	return inner.command()
}

// proxmox runs a command of Proxmox VE, which is for root: others have to know where it is, to be told so.
func (p *process) proxmox(name string) int {
	switch {
	case p.root:
	case p.args[0] == name:
		return p.notFound(name)
	default:
		fmt.Fprintln(p.errs, "please run as root")

		return 255
	}

	p.server.touch()

	if f := p.server.journal.Enter(journal.SSH, p.server.host, strings.Join(p.args, " ")); f != nil {
		switch f.Kind {
		case journal.Refuse:
			fmt.Fprintln(p.errs, f.Message)

			return 255
		case journal.Reset:
			p.severed.Store(true)

			return 255
		default: // not for this face
		}
	}

	if err := p.server.world.Reach(p.server.host); err != nil {
		p.severed.Store(true)

		return 255
	}

	var err error
	if name == "qm" {
		err = p.qm()
	} else {
		err = p.pvesm()
	}

	var refused *world.Error

	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUnknown):
		p.server.journal.Refused(journal.SSH, p.server.host, strings.Join(p.args, " "),
			"the lab's hosts do not know that of "+name)
		fmt.Fprintf(p.errs, "ERROR: unknown command '%s %s'\n", name, strings.Join(p.args[1:], " "))
	case errors.As(err, &refused) && len(refused.Fields) > 0:
		fmt.Fprintln(p.errs, "400 "+refused.Reason)

		for field, what := range refused.Fields {
			fmt.Fprintf(p.errs, "%s: %s\n", field, what)
		}
	default:
		fmt.Fprintln(p.errs, err)
	}

	return 255
}
