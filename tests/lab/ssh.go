package lab

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/crypto/ssh"

	"talos-proxmox/tests/lab/sshd"
)

// SSH is the login to all hosts.
type SSH struct {
	// Username; empty: root. Another user may do what root may by sudo, without a password, which root has no sudo for.
	Username string
	// NoSudo takes that from another user.
	NoSudo bool
	// Password; empty: for root the password of root@pam, as on every Proxmox VE host, and none for others.
	Password string
	// PrivateKey in PEM; empty: made up by Start.
	PrivateKey string
}

// SSH is the login to all hosts.
func (l *Lab) SSH() SSH { return l.login }

// SSHAddress is where a host's SSH server is, invalid for a host that is not there. All hosts have the same port: 22,
// or another where whoever runs the lab may not open that one.
func (l *Lab) SSHAddress(host string) netip.AddrPort { return l.ssh[host] }

// SSHHostKey is the public key that the SSH servers of all hosts show.
func (l *Lab) SSHHostKey() string { return sshd.HostKey() }

// serveSSH starts the SSH server of each host that has an address on loopback.
func (l *Lab) serveSSH(c Config, hosts []Host) error {
	l.login = c.SSH
	l.login.Username = cmp.Or(l.login.Username, "root")

	if l.login.Username == "root" && l.credentials.Username == "root@pam" {
		l.login.Password = cmp.Or(l.login.Password, l.credentials.Password)
	}

	public, err := l.login.key()
	if err != nil {
		return err
	}

	listeners, err := listenAll(hosts)
	if err != nil {
		return err
	}

	l.ssh = map[string]netip.AddrPort{}

	for _, h := range hosts {
		listener := listeners[h.Name]
		if listener == nil {
			continue
		}

		server, err := sshd.New(h.Name, l.world, l.journal, l.timeline.Touch, sshd.Login{
			Username: l.login.Username, Password: l.login.Password, PublicKey: public,
			Sudo: l.login.Username != "root" && !l.login.NoSudo,
		})
		if err != nil {
			return errors.Join(err, listener.Close())
		}

		server.Serve(listener)
		l.shells = append(l.shells, server)
		l.ssh[h.Name] = netip.MustParseAddrPort(listener.Addr().String())
	}

	return nil
}

// key returns the public half of the login's key, which is made up when there is none.
func (s *SSH) key() (string, error) {
	if s.PrivateKey == "" {
		_, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return "", err
		}

		block, err := ssh.MarshalPrivateKey(private, "lab")
		if err != nil {
			return "", err
		}

		s.PrivateKey = string(pem.EncodeToMemory(block))
	}

	signer, err := ssh.ParsePrivateKey([]byte(s.PrivateKey))
	if err != nil {
		return "", fmt.Errorf("the private key of %s: %w", s.Username, err)
	}

	return string(ssh.MarshalAuthorizedKey(signer.PublicKey())), nil
}

// sshPort is what clients try that are told of no port.
const sshPort = 22

// listenAll opens one and the same port on all hosts' addresses: clients are told of one port only. It is that of every
// Proxmox VE host where that can be had, which takes root's rights and that no server listens on all addresses.
func listenAll(hosts []Host) (map[string]net.Listener, error) {
	if found, err := listenOnce(hosts, sshPort); err == nil {
		return found, nil
	}

	var last error

	for range 50 {
		var found map[string]net.Listener
		if found, last = listenOnce(hosts, 0); last == nil {
			return found, nil
		}
	}

	return nil, fmt.Errorf("no port is free on all hosts: %w", last)
}

// listenOnce opens the port, or for 0 one that is free on the first host.
func listenOnce(hosts []Host, port uint16) (map[string]net.Listener, error) {
	found := map[string]net.Listener{}

	for _, h := range hosts {
		if !h.Address.IsLoopback() {
			continue
		}

		l, err := net.Listen("tcp4", netip.AddrPortFrom(h.Address, port).String())
		if err != nil {
			for _, open := range found {
				err = errors.Join(err, open.Close())
			}

			return nil, err
		}

		found[h.Name] = l
		port = netip.MustParseAddrPort(l.Addr().String()).Port()
	}

	return found, nil
}
