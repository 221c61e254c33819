package ubuntu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing/fstest"
	"time"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"

	"talos-proxmox/tests/lab/journal"
)

// execute runs a script of the machine's as root, and returns its status. What it says is added to a log.
func (s *system) execute(path, log string) int {
	out := &handle{write: func(p string) { s.on.files.append(log, p) }}

	text, there := s.on.files.read(path)
	if !there || s.on.files.mode(path)&0o100 == 0 {
		fmt.Fprintln(out, path+": cannot be executed")

		return 203 // systemd's EXEC
	}

	file, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(text), path)
	if err != nil {
		fmt.Fprintln(out, err)

		return 2
	}

	// What it has begun in the background ends with it.
	ctx, end := context.WithCancel(s.ctx)
	defer end()

	runner, err := interp.New(
		interp.StdIO(nil, out, out), interp.Dir("/"),
		interp.Env(expand.ListEnviron("PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root")),
		interp.ExecHandlers(func(interp.ExecHandlerFunc) interp.ExecHandlerFunc { return s.exec }),
		interp.OpenHandler(s.open), interp.StatHandler(s.stat), interp.ReadDirHandler2(noReadDir),
	)
	if err == nil {
		err = runner.Run(ctx, file)
	}

	var status interp.ExitStatus

	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	default:
		fmt.Fprintln(out, err)

		return 1
	}
}

// open opens a file of the machine.
func (s *system) open(_ context.Context, path string, flag int, _ os.FileMode) (io.ReadWriteCloser, error) {
	text, there := s.on.files.read(path)

	switch {
	case flag&(os.O_WRONLY|os.O_RDWR) == 0 && !there:
		return nil, &os.PathError{Op: "open", Path: path, Err: os.ErrNotExist}
	case flag&(os.O_WRONLY|os.O_RDWR) == 0:
		return &handle{text: strings.NewReader(text)}, nil
	case flag&os.O_APPEND == 0:
		s.on.files.write(path, "")
	}

	return &handle{text: strings.NewReader(""), write: func(p string) { s.on.files.append(path, p) }}, nil
}

// handle is an open file. It is written by Write alone: whatever else could take a text would keep it to itself.
type handle struct {
	text  *strings.Reader
	write func(string)
}

func (h *handle) Read(p []byte) (int, error) { return h.text.Read(p) }

func (h *handle) Write(p []byte) (int, error) {
	h.write(string(p))

	return len(p), nil
}

func (h *handle) Close() error { return nil }

// stat describes a file of the machine.
func (s *system) stat(_ context.Context, path string, _ bool) (os.FileInfo, error) {
	text, there := s.on.files.read(path)
	if !there {
		return nil, &os.PathError{Op: "stat", Path: path, Err: os.ErrNotExist}
	}

	const name = "file"

	return fstest.MapFS{name: {Data: []byte(text)}}.Stat(name)
}

func noReadDir(_ context.Context, path string) ([]os.DirEntry, error) {
	return nil, &os.PathError{Op: "readdir", Path: path, Err: os.ErrNotExist}
}

// exec runs one command of the machine.
func (s *system) exec(ctx context.Context, args []string) error {
	hc := interp.HandlerCtx(ctx)

	code := s.run1(ctx, hc, args)
	if code > 0 {
		return interp.ExitStatus(code)
	}

	return nil
}

// tagged is the one edit that scripts make of a version to put it into a URL.
var tagged = regexp.MustCompile(`^s/\+/%2B/$`)

// run1 is each command that the lab's machines have, as far as scripts use it. Another one, or another use, fails the
// test.
func (s *system) run1(ctx context.Context, hc interp.HandlerContext, args []string) int {
	printf := func(format string, values ...any) { fmt.Fprintf(hc.Stdout, format, values...) }

	switch name := args[0]; {
	case name == "date":
		printf("2026-01-01T00:00:00Z\n")
	case name == "mkdir", name == "modprobe", name == "kill":
	case name == "chmod" && len(args) == 3:
		mode, err := strconv.ParseUint(args[1], 8, 12)
		if err != nil {
			return 1
		}

		s.on.files.chmod(args[2], mode)
	case name == "mv" && len(args) == 4 && args[1] == "-f":
		s.on.files.move(args[2], args[3])
	case name == "grep" && len(args) == 3:
		return s.grep(hc, args[1], args[2])
	case name == "cat" && len(args) == 2:
		text, there := s.on.files.read(args[1])
		if !there {
			return 1
		}

		printf("%s", text)
	case name == "cp" && (len(args) == 3 || len(args) == 4 && args[1] == "-p"):
		text, there := s.on.files.read(args[len(args)-2])
		if !there {
			return 1
		}

		s.on.files.write(args[len(args)-1], text)
	case name == "sleep" && len(args) == 2:
		select {
		case <-time.After(again / 4):
		case <-ctx.Done():
			return 1
		}
	case name == "rm":
		s.on.files.remove(args[len(args)-1])
	case slices.Equal(args, []string{"uname", "-m"}):
		printf("x86_64\n")
	case name == "df":
		printf("Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/sda1 %d 1500000 %d 1%% /\n", s.disk.Size()>>10,
			s.disk.Size()>>10-1500000)
	case slices.Equal(args, []string{"awk", "NR == 2 { print $4 }"}):
		return filter(hc, func(lines []string) string { return strings.Fields(lines[1])[3] })
	case name == "sed" && len(args) == 2 && tagged.MatchString(args[1]):
		return filter(hc, func(lines []string) string { return strings.Replace(lines[0], "+", "%2B", 1) })
	case slices.Equal(args, []string{"mktemp", "-d"}):
		printf("/tmp/tmp.lab\n")
	case name == "curl":
		return s.curl(hc, args)
	case name == "sh" && len(args) == 3:
		return s.install(hc, args[1], args[2])
	case name == "sha256sum":
		return s.sha256sum(hc)
	case name == "timeout" && len(args) == 5 && args[2] == "systemctl" && args[3] == "restart":
		return s.restartK3s(args[4] + ".service")
	case name == "dpkg-query" && len(args) == 5 &&
		slices.Equal(args[1:4], []string{"--show", "--showformat", "${db:Status-Status}"}):
		return s.dpkgQuery(hc, args[4])
	case slices.Equal(args, []string{"apt-get", "update", "--error-on=any"}):
		return s.aptUpdate(hc)
	case name == "apt-get" && len(args) == 6 &&
		slices.Equal(args[1:5], []string{"--option", "DPkg::Lock::Timeout=300", "--yes", "install"}):
		return s.aptInstall(hc, args[5])
	case name == "apt-cache" && len(args) == 3 && args[1] == "show":
		printf("Package: %s\n", args[2])
	case slices.Equal(args, []string{"systemctl", "start", "qemu-guest-agent"}):
		s.startAgent()
	case name == "journalctl" && slices.Contains(args, "--follow"):
		s.follow(ctx, hc)
	case name == "journalctl":
		// The lines that scripts ask for.
		log, _ := s.on.files.read(k3sLog)
		all := strings.SplitAfter(log, "\n")
		printf("%s", strings.Join(all[max(0, len(all)-21):], ""))
	default:
		s.fw.opts.Journal.Refused(journal.Guest, s.hw.Name, strings.Join(args, " "),
			"the lab's machines do not know the command")
		fmt.Fprintf(hc.Stderr, "%s: not found\n", name)

		return 127
	}

	return 0
}

// follow shows what K3s says from now on, as long as the script runs.
func (s *system) follow(ctx context.Context, hc interp.HandlerContext) {
	shown, _ := s.on.files.read(k3sLog)

	for ctx.Err() == nil {
		log, _ := s.on.files.read(k3sLog)
		fmt.Fprint(hc.Stdout, strings.TrimPrefix(log, shown))
		shown = log

		select {
		case <-time.After(again / 10):
		case <-ctx.Done():
		}
	}
}

func filter(hc interp.HandlerContext, of func([]string) string) int {
	text, err := io.ReadAll(hc.Stdin)
	if err != nil {
		return 1
	}

	fmt.Fprintln(hc.Stdout, of(strings.Split(string(text), "\n")))

	return 0
}

// grep shows the lines of a file that match.
func (s *system) grep(hc interp.HandlerContext, pattern, path string) int {
	text, there := s.on.files.read(path)
	re, err := regexp.Compile(pattern)

	if !there || err != nil {
		return 2
	}

	status := 1

	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		if re.MatchString(line) {
			fmt.Fprintln(hc.Stdout, line)

			status = 0
		}
	}

	return status
}

var (
	release = regexp.MustCompile(`^https://raw\.githubusercontent\.com/k3s-io/k3s/(v[^/]+)/(install\.sh)$`)
	// mirrored are files of releases on servers of the machine's own network, in the directory of their version.
	mirrored = regexp.MustCompile(`^https?://[^/]+\.lan(?::\d+)?/(?:.*/)?(v[^/]+)/([^/]+)$`)
)

// airgapImages is the name of the archive with K3s' own images.
const airgapImages = "k3s-airgap-images-amd64.tar.zst"

// releaseFile is a file of a release of K3s, and whether there is one.
func releaseFile(version, name string) (string, bool) {
	files := map[string]string{"k3s": Binary(version), airgapImages: "the images of " + version}

	sums := ""

	for _, of := range []string{airgapImages, "k3s"} {
		sum := sha256.Sum256([]byte(files[of]))
		sums += hex.EncodeToString(sum[:]) + "  " + of + "\n"
	}

	files["sha256sum-amd64.txt"], files["install.sh"] = sums, InstallScript(version)
	text, there := files[name]

	return text, there
}

// curl gets the installation script of a release from GitHub, and all files of one from a mirror.
func (s *system) curl(hc interp.HandlerContext, args []string) int {
	url, out := args[len(args)-1], ""

	if i := slices.Index(args, "--output"); i >= 0 {
		out = args[i+1]
	}

	if err := s.fetch(url); err != nil {
		fmt.Fprintf(hc.Stderr, "curl: (6) %v\n", err)

		return 6
	}

	m := release.FindStringSubmatch(url)
	if m == nil {
		m = mirrored.FindStringSubmatch(url)
	}

	if m != nil {
		version := strings.Replace(m[1], "%2B", "+", 1)

		if text, there := releaseFile(version, m[2]); there && s.fw.released(version) {
			s.on.files.write(out, text)
			fmt.Fprint(hc.Stdout, "200")

			return 0
		}
	}

	fmt.Fprint(hc.Stdout, "404")

	return 0
}

// InstallScript is the installation script of a release.
func InstallScript(version string) string { return script + version }

// script begins the installation script of a release.
const script = "#!/bin/sh\n# the official installation script of K3s "

var anyRelease = regexp.MustCompile(`^v1\.\d+\.\d+\+k3s\d+$`)

func (f *Firmware) released(version string) bool {
	if len(f.opts.Releases) == 0 {
		return anyRelease.MatchString(version)
	}

	return slices.Contains(f.opts.Releases, version)
}

// install is the official script: it gets the binary, holds it against the checksums of its release, and makes a
// service.
func (s *system) install(hc interp.HandlerContext, path, role string) int {
	text, _ := s.on.files.read(path)
	fail := func(why string) int {
		fmt.Fprintln(hc.Stderr, "[ERROR] ", why)

		return 1
	}

	version := hc.Env.Get("INSTALL_K3S_VERSION").String()

	switch {
	case !strings.HasPrefix(text, script):
		return fail(path + " is no installation script of K3s")
	case !s.fw.released(version):
		return fail("Download failed")
	case role != "server" && role != "agent":
		return fail("the lab's K3s is server or agent, not " + role)
	case hc.Env.Get("INSTALL_K3S_SKIP_START").String() != "true":
		return fail("the lab installs K3s without starting it only")
	}

	fmt.Fprintf(hc.Stdout, "[INFO]  Using %s as release\n", version)

	if hc.Env.Get("INSTALL_K3S_SKIP_DOWNLOAD").String() == "true" {
		if s.on.files.mode(binaryPath)&0o100 == 0 {
			return fail("Executable k3s binary not found at " + binaryPath)
		}
	} else {
		if err := s.fetch("https://github.com/k3s-io/k3s/releases/download/" + version + "/k3s"); err != nil {
			return fail("Download failed")
		}

		s.on.files.write(binaryPath, Binary(version))
	}

	if !s.impose("install", s.fw.opts.Latencies.Install) {
		return 1
	}

	name := "k3s"
	if role == "agent" {
		name = "k3s-agent"
	}

	s.on.files.write(units+name+".service", role)
	s.on.files.write(wanted+name+".service", "")

	return 0
}

const binaryPath = "/usr/local/bin/k3s"

// Binary is the k3s binary of a version.
func Binary(version string) string { return "the k3s binary " + version }

// sha256sum holds files against the sums that it reads.
func (s *system) sha256sum(hc interp.HandlerContext) int {
	text, err := io.ReadAll(hc.Stdin)
	if err != nil {
		return 1
	}

	sum, path, ok := strings.Cut(strings.TrimSpace(string(text)), "  ")
	content, there := s.on.files.read(path)
	found := sha256.Sum256([]byte(content))

	if !ok || !there || hex.EncodeToString(found[:]) != sum {
		fmt.Fprintf(hc.Stderr, "%s: FAILED\nsha256sum: WARNING: 1 computed checksum did NOT match\n", path)

		return 1
	}

	return 0
}
