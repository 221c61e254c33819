package sshd

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/crypto/ssh"

	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/world"
)

// Login is the user of all hosts.
type Login struct {
	Username string
	// Password and PublicKey (as in authorized_keys) let him in; empty: not that way.
	Password, PublicKey string
	// Sudo lets a user other than root do what root may, without a password.
	Sudo bool
}

// Server is the SSH server of one host.
type Server struct {
	host     string
	world    *world.World
	journal  *journal.Journal
	touch    func()
	login    Login
	config   *ssh.ServerConfig
	listener net.Listener

	ctx   context.Context
	stop  context.CancelFunc
	work  sync.WaitGroup
	mu    sync.Mutex
	conns map[net.Conn]bool
}

// hostKey is the same in every lab: another lab may get the same address and port, and a client that remembers hosts
// would take it for a forgery.
var hostKey = func() ssh.Signer {
	seed := sha256.Sum256([]byte("the key of the lab's hosts"))

	signer, err := ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(seed[:]))
	if err != nil {
		panic(err)
	}

	return signer
}()

// HostKey is the public key of every host, as in authorized_keys.
func HostKey() string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(hostKey.PublicKey())))
}

// New makes the server of a host. It serves nothing yet.
func New(host string, w *world.World, j *journal.Journal, touch func(), login Login) (*Server, error) {
	s := &Server{host: host, world: w, journal: j, touch: touch, login: login, conns: map[net.Conn]bool{}}
	s.ctx, s.stop = context.WithCancel(context.Background())

	var authorized []byte

	if login.PublicKey != "" {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(login.PublicKey))
		if err != nil {
			return nil, fmt.Errorf("the public key of %s: %w", login.Username, err)
		}

		authorized = key.Marshal()
	}

	refused := errors.New("permission denied")
	allow := func(user string, ok bool) (*ssh.Permissions, error) {
		if user != login.Username || !ok {
			return nil, refused
		}

		return &ssh.Permissions{}, nil
	}

	s.config = &ssh.ServerConfig{
		ServerVersion: "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u6",
		PasswordCallback: func(c ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
			return allow(c.User(), login.Password != "" && string(password) == login.Password)
		},
		PublicKeyCallback: func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			return allow(c.User(), authorized != nil && bytes.Equal(key.Marshal(), authorized))
		},
	}
	s.config.AddHostKey(hostKey)

	return s, nil
}

// Serve answers on the listener until Close. It returns at once.
func (s *Server) Serve(l net.Listener) {
	s.listener = l

	s.work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}

			s.work.Go(func() { s.connection(conn) })
		}
	})
}

// Close ends all connections and what runs in them.
func (s *Server) Close() error {
	s.stop()
	err := s.listener.Close()

	s.mu.Lock()
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.conns = nil
	s.mu.Unlock()

	s.work.Wait()

	return err
}

// keep notes an open connection; false: the server is closing.
func (s *Server) keep(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.conns == nil {
		return false
	}

	s.conns[conn] = true

	return true
}

func (s *Server) connection(conn net.Conn) {
	defer conn.Close()

	if !s.keep(conn) {
		return
	}

	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, conn)
	}()

	s.touch()

	login, channels, requests, err := ssh.NewServerConn(conn, s.config)
	if err != nil {
		s.journal.Enter(journal.SSH, s.host, "login refused")

		return
	}

	if f := s.journal.Enter(journal.SSH, s.host, "login "+login.User()); f != nil && f.Kind == journal.Reset {
		return
	}

	go ssh.DiscardRequests(requests)

	for channel := range channels {
		if channel.ChannelType() != "session" {
			s.journal.Refused(journal.SSH, s.host, "channel "+channel.ChannelType(), "the lab's hosts have sessions only")
			_ = channel.Reject(ssh.UnknownChannelType, "unknown channel type")

			continue
		}

		if c, requests, err := channel.Accept(); err == nil {
			s.work.Go(func() { s.session(c, requests, login.User()) })
		}
	}
}

// session runs the one command of a session.
func (s *Server) session(c ssh.Channel, requests <-chan *ssh.Request, user string) {
	defer c.Close()

	for r := range requests {
		var command struct{ Text string }

		switch {
		case r.Type == "env":
			_ = r.Reply(false, nil) // as OpenSSH does with what AcceptEnv does not name
		case r.Type == "exec" && ssh.Unmarshal(r.Payload, &command) == nil:
			_ = r.Reply(true, nil)

			sh := &shell{server: s, user: user, root: user == "root", severed: &atomic.Bool{}, in: c, out: c, errs: c.Stderr()}
			status := struct{ Code uint32 }{uint32(sh.run(s.ctx, command.Text))}

			if !sh.severed.Load() {
				_, _ = c.SendRequest("exit-status", false, ssh.Marshal(status))
			}

			return
		case r.Type == "subsystem" && ssh.Unmarshal(r.Payload, &command) == nil && command.Text == "sftp":
			_ = r.Reply(true, nil)
			s.sftp(c, user == "root")

			return
		default:
			s.journal.Refused(journal.SSH, s.host, "request "+r.Type, "the lab's hosts run single commands only")
			_ = r.Reply(false, nil)
		}
	}
}
