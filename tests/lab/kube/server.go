package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/crypto/x509"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/tests/lab/journal"
)

// ServerConfig is what one API server needs.
type ServerConfig struct {
	// Node is the name of the control plane, for the journal.
	Node string
	// Cluster is what it serves.
	Cluster *Cluster
	// Version is the Kubernetes version, "v1.34.2".
	Version string
	// CA issues the server's certificate, and client certificates are verified against it and AcceptedCAs.
	CA          *x509.PEMEncodedCertificateAndKey
	AcceptedCAs []*x509.PEMEncodedCertificate
	// ClientCA is what client certificates are verified against instead of CA and AcceptedCAs, PEM; nil: those.
	ClientCA []byte
	// Backend answers instead of Cluster, whose objects, and whether etcd answers, are nothing then: a real API server.
	Backend http.Handler
	// Front answers what is not Kubernetes' on the same port; nil: nothing is.
	Front Front
	// MinTLS is the oldest version of TLS that it speaks; 0: TLS 1.2.
	MinTLS uint16
	// Names are the DNS names and addresses of the server's certificate.
	Names []string
	// Healthy says whether etcd answers; an error fails every request.
	Healthy func() error
	// Writable says whether etcd takes writes, or those that only delete; an error fails every such request. It may be
	// nil.
	Writable func(deletes bool) error
	// Now is the clock of its machine; nil: that of the lab.
	Now func() time.Time
	// Journal records the calls.
	Journal *journal.Journal
	// Touch is called for each request that is not a node's own; it may be nil.
	Touch func()
}

// Front is a server in front of Kubernetes.
type Front interface {
	http.Handler
	// Handles says whether a request is the front's.
	Handles(r *http.Request) bool
}

// Server is one API server. It serves the addresses given to [Server.Listen] until it is closed.
type Server struct {
	cfg     ServerConfig
	ca      *x509.CertificateAuthority
	clients *stdx509.CertPool
	http    *http.Server
	tls     *tls.Config
	done    chan struct{} // closed by Close: ends watches

	mu    sync.Mutex
	cert  *tls.Certificate
	conns map[net.Conn]bool
}

// NewServer returns a server that does not listen yet.
func NewServer(cfg ServerConfig) (*Server, error) {
	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(cfg.CA)
	if err != nil {
		return nil, fmt.Errorf("cluster.ca: %w", err)
	}

	if cfg.Now == nil {
		cfg.Now = time.Now
	}

	pool := stdx509.NewCertPool()
	pool.AppendCertsFromPEM(cfg.CA.Crt)

	for _, accepted := range cfg.AcceptedCAs {
		pool.AppendCertsFromPEM(accepted.Crt)
	}

	if cfg.ClientCA != nil {
		pool = stdx509.NewCertPool()
		pool.AppendCertsFromPEM(cfg.ClientCA)
	}

	if cfg.Cluster != nil {
		cfg.Cluster.record(cfg.Journal)
	}

	s := &Server{cfg: cfg, ca: ca, clients: pool, done: make(chan struct{}), conns: map[net.Conn]bool{}}
	s.tls = &tls.Config{
		MinVersion:     max(tls.VersionTLS12, cfg.MinTLS),
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: s.certificate,
		ClientCAs:      pool,
		// One that is not good is let in, and not known: see verify. Without one a token may authenticate.
		ClientAuth: tls.RequestClientCert,
	}

	if err := s.issue(cfg.Now().Add(-skew), cfg.Now().AddDate(1, 0, 0)); err != nil {
		return nil, err
	}

	s.http = &http.Server{
		Handler:           s,
		TLSConfig:         s.tls,
		ReadHeaderTimeout: 30 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0), // refused handshakes are the clients' affair
		ConnState:         s.track,
		ConnContext: func(ctx context.Context,
			c net.Conn,
		) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}

	return s, nil
}

type connKey struct{}

// Listen serves one more listener, in the background.
func (s *Server) Listen(l net.Listener) { go func() { _ = s.http.ServeTLS(l, "", "") }() }

// Close ends all connections and listeners.
func (s *Server) Close() {
	close(s.done)
	_ = s.http.Close()
}

// skew is how long before they are made certificates are good: clocks differ by seconds.
const skew = 10 * time.Second

// Expire gives the server a certificate that has expired, as if it had run for too long. Connections of before end:
// whoever asks after so long makes a new one.
func (s *Server) Expire() error {
	now := s.cfg.Now()
	err := s.issue(now.AddDate(-1, 0, -1), now.AddDate(0, 0, -1))

	s.mu.Lock()
	defer s.mu.Unlock()

	for c := range s.conns {
		_ = c.Close()
	}

	return err
}

// track knows the connections that are open.
func (s *Server) track(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if state == http.StateClosed || state == http.StateHijacked {
		delete(s.conns, c)
	} else {
		s.conns[c] = true
	}
}

func (s *Server) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.cert, nil
}

// issue gives the server a certificate that is good for some time.
func (s *Server) issue(from, to time.Time) error {
	var (
		ips []net.IP
		dns []string
	)

	for _, n := range s.cfg.Names {
		if ip := net.ParseIP(n); ip != nil {
			ips = append(ips, ip)
		} else if n != "" {
			dns = append(dns, n)
		}
	}

	pair, err := x509.NewKeyPair(s.ca,
		x509.IPAddresses(ips), x509.DNSNames(dns),
		x509.CommonName("kube-apiserver"), x509.Organization("kube-master"),
		x509.NotBefore(from), x509.NotAfter(to),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature|stdx509.KeyUsageKeyEncipherment),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}),
	)
	if err != nil {
		return fmt.Errorf("issuing the API server's certificate: %w", err)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.cert = pair.Certificate

	return nil
}

// verify tells whether a client certificate, if there is one, is good by the clock of the machine. The request has its
// chain then, as if the handshake had verified it.
func (s *Server) verify(r *http.Request) bool {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return true
	}

	chains, err := r.TLS.PeerCertificates[0].Verify(stdx509.VerifyOptions{
		Roots: s.clients, CurrentTime: s.cfg.Now(), KeyUsages: []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth},
	})

	known := *r.TLS
	known.VerifiedChains, r.TLS = chains, &known

	return err == nil
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Front != nil && s.cfg.Front.Handles(r) {
		s.cfg.Front.ServeHTTP(w, r)

		return
	}

	call := r.Method + " " + r.URL.Path
	fault := s.cfg.Journal.Enter(journal.Kubernetes, s.cfg.Node, call)

	who, err := s.authenticate(r)
	if s.cfg.Touch != nil && (err != nil || !who.node()) {
		s.cfg.Touch()
	}

	if fault != nil {
		switch fault.Kind {
		case journal.Refuse:
			writeError(w, apierrors.NewInternalError(errors.New(fault.Message)))
			return
		case journal.Answer:
			fault.Write(w)
			return
		case journal.Reset:
			hangUp(r)
			return
		case journal.LoseReply:
			s.answer(&discard{header: http.Header{}}, r, who, err, call)
			hangUp(r)

			return
		case journal.Stall:
			fault.Hold(r.Context(), s.done)
			hangUp(r)

			return
		case journal.Truncate:
			whole := kept{discard: discard{header: http.Header{}}}
			s.answer(&whole, r, who, err, call)
			sendHalf(w, whole.body.Bytes())
			hangUp(r)

			return
		case journal.Hang:
			sendHalf(w, []byte(`{"kind":"Status","apiVersion":"v1"}`))
			fault.Hold(r.Context(), s.done)
			hangUp(r)

			return
		case journal.FailTask: // not for this face
		}
	}

	s.answer(w, r, who, err, call)
}

// hangUp closes the connection under the request.
func hangUp(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		if t, ok := c.(*tls.Conn); ok {
			c = t.NetConn() // no close_notify: the line goes dead
		}

		_ = c.Close()
	}

	panic(http.ErrAbortHandler)
}

// sendHalf announces all of an answer and sends half of it.
func sendHalf(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body[:len(body)/2])
	_ = http.NewResponseController(w).Flush()
}

// kept is a reply of which the body is kept.
type kept struct {
	discard

	body bytes.Buffer
}

func (k *kept) Write(b []byte) (int, error) { return k.body.Write(b) }

// discard is the reply that is not sent.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

// user is who makes a request.
type user struct {
	name   string
	groups []string
}

func (u user) in(group string) bool { return slices.Contains(u.groups, group) }

// node tells whether this is a machine of the cluster itself, joined or joining.
func (u user) node() bool { return u.in("system:nodes") || u.in("system:bootstrappers") }

var errUnauthorized = apierrors.NewUnauthorized("Unauthorized")

// authenticate knows client certificates and bootstrap tokens. No request is anonymous: Talos starts the API server with
// anonymous-auth=false.
func (s *Server) authenticate(r *http.Request) (user, error) {
	if !s.verify(r) {
		return user{}, errUnauthorized
	}

	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		subject := r.TLS.VerifiedChains[0][0].Subject

		return user{name: subject.CommonName, groups: append(slices.Clone(subject.Organization), "system:authenticated")}, nil
	}

	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return user{}, errUnauthorized
	}

	id, secret, ok := strings.Cut(token, ".")
	if !ok {
		return user{}, errUnauthorized
	}

	if s.cfg.Backend != nil {
		// Who it is the backend decides. Only tokens of machines that join have two parts.
		if strings.Contains(secret, ".") {
			return user{}, nil
		}

		return bootstrapper(id), nil
	}

	obj, err := s.cfg.Cluster.get(secrets, metav1.NamespaceSystem, "bootstrap-token-"+id)
	if err != nil {
		return user{}, errUnauthorized
	}

	stored := obj.(*corev1.Secret)
	if stored.Type != corev1.SecretTypeBootstrapToken || string(stored.Data["token-secret"]) != secret {
		return user{}, errUnauthorized
	}

	return bootstrapper(id), nil
}

// bootstrapper is a machine that joins.
func bootstrapper(id string) user {
	return user{
		name:   "system:bootstrap:" + id,
		groups: []string{"system:bootstrappers", "system:bootstrappers:nodes", "system:authenticated"},
	}
}

// authorize applies what RBAC and the node authorizer give to those who ask in a fresh cluster: the admins may do
// everything, the nodes what kubelets do, and others may look at what the server is.
func (s *Server) authorize(u user, verb string, k *kind, t target, sel selector) error {
	allowed, reason := u.in("system:masters") || k == nil, ""

	switch {
	case allowed:
	case u.in("system:nodes"):
		allowed, reason = s.nodeMay(strings.TrimPrefix(u.name, nodePrefix), verb, k, t, sel)
		if reason != "" {
			reason = ": node: " + reason
		}
	case u.in("system:bootstrappers"):
		allowed = k == requests && (verb == "create" || verb == "get" || verb == "list" || verb == "watch")
	}

	if allowed {
		return nil
	}

	resource, where := k.resource, "at the cluster scope"
	if t.sub != "" {
		resource += "/" + t.sub
	}

	if t.namespace != "" {
		where = fmt.Sprintf("in the namespace %q", t.namespace)
	}

	return apierrors.NewForbidden(k.gr(), sel.named(t.name), fmt.Errorf("User %q cannot %s resource %q in API group %q %s%s",
		u.name, verb, resource, k.group, where, reason))
}

// nodePrefix is what the names of kubelets begin with.
const nodePrefix = "system:node:"

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

// writeError answers with the Status object of an error. One that is not the API's own has no reason.
func writeError(w http.ResponseWriter, err error) {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error(),
		}}
	}

	st := known.Status()
	st.Kind, st.APIVersion = "Status", "v1"
	writeJSON(w, int(st.Code), st)
}
