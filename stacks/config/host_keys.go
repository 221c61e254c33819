package config

import (
	"errors"
	"fmt"
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

	if !c.Pipeline || p == nil || p.SSH == nil {
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
// a path, a login or keys, it does nothing. The provider looks there when it connects, and accepts any key of a host
// without one. A host for which the file has another key of the same type is an error (spec.Problems).
func TrustHostKeys(path string, login *spec.SSH) error {
	if path == "" || login == nil || len(login.HostKeys) == 0 {
		return nil
	}

	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}

	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()

	known, err := knownhosts.New(path)
	if err != nil {
		return spec.Problem{
			Path: "proxmox.ssh.hostKeys", Rule: "cannot be added to " + path + ": " + err.Error(),
			Remedy: "correct the line that it names, or move the file away",
		}
	}

	var ps spec.Problems

	for _, host := range slices.Sorted(maps.Keys(login.HostKeys)) {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(login.HostKeys[host]))
		if err != nil {
			return err
		}

		address := net.JoinHostPort(login.Addresses[host], strconv.Itoa(login.Port))

		var other *knownhosts.KeyError

		switch err := known(address, &net.TCPAddr{}, key); {
		case err == nil:
		case !errors.As(err, &other):
			return fmt.Errorf("%s: %w", path, err)
		case slices.ContainsFunc(other.Want, func(k knownhosts.KnownKey) bool { return k.Key.Type() == key.Type() }):
			ps.Add("proxmox.ssh.hostKeys."+host, "is not the key that "+path+" has for "+address,
				ssh.FingerprintSHA256(key), "run: ssh-keygen -R '"+knownhosts.Normalize(address)+"'")
		default:
			_, err = file.WriteString(separator(path) + knownhosts.Line([]string{knownhosts.Normalize(address)}, key) + "\n")
			if err != nil {
				return err
			}
		}
	}

	return errors.Join(ps.Err(), file.Close())
}

// separator ends a last line that has no end.
func separator(path string) string {
	if text, err := os.ReadFile(path); err == nil && len(text) > 0 && !strings.HasSuffix(string(text), "\n") {
		return "\n"
	}

	return ""
}
