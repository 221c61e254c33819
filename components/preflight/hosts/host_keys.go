package hosts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"golang.org/x/crypto/ssh"

	"talos-proxmox/components/spec"
)

// CheckHostKeys compares the SSH host keys of the hosts that nodes are on with those of the configuration.
func (c Checker) CheckHostKeys(ctx context.Context) error {
	if c.Plan.SSH == nil {
		return nil
	}

	used := map[string]bool{} // by host: whether it is to get a node
	for _, n := range c.Plan.Nodes() {
		used[n.Host] = used[n.Host] || c.Absent[n.VMID]
	}

	for _, host := range slices.Sorted(maps.Keys(used)) {
		configured, there := c.Plan.SSH.HostKeys[host]
		if !there {
			continue
		}

		path := "proxmox.ssh.hostKeys." + host

		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(configured))
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}

		address := net.JoinHostPort(c.Plan.SSH.Addresses[host], strconv.Itoa(c.Plan.SSH.Port))

		shown, err := hostKey(ctx, address, key.Type())

		switch {
		case err != nil && used[host]:
			c.Problems.Add(path, fmt.Sprintf("cannot be compared: %v", err), "",
				"correct proxmox.ssh.addresses."+host+" or the type of the key, or let this machine reach the host's SSH server")
		case err != nil:
			c.Warnings = append(c.Warnings, spec.Problem{Path: path, Rule: fmt.Sprintf("was not compared: %v", err)})
		case ssh.FingerprintSHA256(shown) != ssh.FingerprintSHA256(key):
			c.Problems.Add(path, "is not the key that "+address+" shows: "+ssh.FingerprintSHA256(shown),
				ssh.FingerprintSHA256(key), "find out whether another machine has the address. If the host has new "+
					"keys, compare with 'ssh-keygen -lf' on its own console, and set the new one")
		}
	}

	return ctx.Err()
}

// hostKey is the key of a type that an SSH server shows. It logs in nowhere.
func hostKey(ctx context.Context, address, kind string) (ssh.PublicKey, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()

	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()

	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}

	algorithms := []string{kind}
	if kind == ssh.KeyAlgoRSA {
		algorithms = []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}

	var shown ssh.PublicKey

	enough := errors.New("the key is known")
	_, _, _, err = ssh.NewClientConn(conn, address, &ssh.ClientConfig{
		HostKeyAlgorithms: algorithms,
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			shown = key

			return enough
		},
	})

	if shown == nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}

	return shown, nil
}
