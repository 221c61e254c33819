package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// checkPipeline checks that a pipeline, whose machines know no host, is told the host keys: the provider accepts any.
func (c Config) checkPipeline(p *plan.Plan) spec.Problems {
	var ps spec.Problems

	if c.Pipeline == nil || !*c.Pipeline || p == nil || p.SSH == nil {
		return nil
	}

	asked := map[string]bool{}

	for _, n := range p.Nodes() {
		if !asked[n.Host] && p.SSH.HostKeys[n.Host] == "" {
			ps.Add("proxmox.ssh.hostKeys."+n.Host, "is required in a pipeline: the provider would accept the key of any machine",
				"", "run 'ssh-keyscan -t ed25519 <address>', compare with 'ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub' on "+
					"the host's console, and set it like ssh-ed25519 AAAA")
		}

		asked[n.Host] = true
	}

	return ps
}

// TrustHostKeys adds the host keys that a login states to a file of known hosts, which is made if it is absent. Without
// a path, a login or keys, it does nothing, and a file that has them all is only read. The provider looks there when it
// connects, and accepts any key of a host without one. A host for which the file has another key of the same type is an
// error (spec.Problems), and then nothing is added.
func TrustHostKeys(path string, login *spec.SSH) error {
	if path == "" || login == nil || len(login.HostKeys) == 0 {
		return nil
	}

	lines, err := unknownHosts(path, login)
	if err != nil || len(lines) == 0 {
		return err
	}

	if err := appendLines(path, lines); err != nil {
		return spec.Problem{
			Path: "proxmox.ssh.hostKeys", Rule: "cannot be added to " + path + ": " + err.Error(),
			Remedy: "make it writable, or add to it:", Detail: strings.Join(lines, "\n"),
		}
	}

	return nil
}

// unknownHosts are the lines that a file of known hosts lacks.
func unknownHosts(path string, login *spec.SSH) ([]string, error) {
	var files []string

	if _, err := os.Stat(path); err == nil {
		files = append(files, path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, unreadable(path, err, "let the user that runs the program read it")
	}

	known, err := knownhosts.New(files...)
	if errors.As(err, new(*fs.PathError)) {
		return nil, unreadable(path, err, "let the user that runs the program read it")
	} else if err != nil {
		return nil, unreadable(path, err, "correct the line that it names, or move the file away")
	}

	var (
		ps    spec.Problems
		lines []string
	)

	for _, host := range slices.Sorted(maps.Keys(login.HostKeys)) {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(login.HostKeys[host]))
		if err != nil {
			return nil, err
		}

		address := net.JoinHostPort(login.Addresses[host], strconv.Itoa(login.Port))

		var other *knownhosts.KeyError

		switch err := known(address, &net.TCPAddr{}, key); {
		case err == nil:
		case !errors.As(err, &other):
			return nil, fmt.Errorf("%s: %w", path, err)
		case slices.ContainsFunc(other.Want, func(k knownhosts.KnownKey) bool { return k.Key.Type() == key.Type() }):
			ps.Add("proxmox.ssh.hostKeys."+host, "is not the key that "+path+" has for "+address,
				ssh.FingerprintSHA256(key), "run: ssh-keygen -R '"+knownhosts.Normalize(address)+"'")
		default:
			lines = append(lines, knownhosts.Line([]string{knownhosts.Normalize(address)}, key))
		}
	}

	return lines, ps.Err()
}

func unreadable(path string, err error, remedy string) error {
	return spec.Problem{
		Path: "proxmox.ssh.hostKeys", Rule: "cannot be compared with " + path + ": " + err.Error(), Remedy: remedy,
	}
}

// appendLines adds lines to a file. A last line of it that has no end gets one.
func appendLines(path string, lines []string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}

	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}

	text := strings.Join(lines, "\n") + "\n"
	if old, err := os.ReadFile(path); err == nil && len(old) > 0 && !strings.HasSuffix(string(old), "\n") {
		text = "\n" + text
	}

	_, err = file.WriteString(text)

	return errors.Join(err, file.Close())
}
