// Package pve is the Proxmox VE face of the lab: the REST API over a world, as close to the real one as its clients can
// see. It is strict: what it does not know it refuses with 501 and notes in the journal, instead of making up an
// answer.
package pve

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"time"

	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/timeline"
	"talos-proxmox/tests/lab/world"
)

// Server answers for one world.
type Server struct {
	world    *world.World
	journal  *journal.Journal
	timeline *timeline.Timeline
	routes   []route
	// recorded are the routes that a real server of a version was asked, with the parameters that it was given.
	recorded map[world.Version]map[string]map[string]bool
	http     http.Server
	done     chan struct{}
	// closing ends calls that a fault keeps waiting.
	closing context.Context
	close   context.CancelFunc
}

// New makes the face of a world. It serves nothing yet.
func New(w *world.World, j *journal.Journal, t *timeline.Timeline) *Server {
	s := &Server{world: w, journal: j, timeline: t, done: make(chan struct{})}
	s.closing, s.close = context.WithCancel(context.Background())
	s.routes = s.table()
	s.recorded = map[world.Version]map[string]map[string]bool{
		world.Version8: s.recordedRoutes(world.Version8), world.Version9: s.recordedRoutes(world.Version9),
	}
	s.http = http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}

	return s
}

// Serve answers on the listener until Close. It returns at once; connections are accepted when it has.
func (s *Server) Serve(l net.Listener) error {
	addr, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil {
		return fmt.Errorf("the address of the Proxmox VE face: %w", err)
	}

	cert, err := certificate(addr.Addr())
	if err != nil {
		return fmt.Errorf("the certificate of the Proxmox VE face: %w", err)
	}

	// Proxmox VE speaks HTTP/1.1 only.
	config := &tls.Config{
		Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13,
		NextProtos: []string{"http/1.1"},
	}

	go func() {
		defer close(s.done)
		_ = s.http.Serve(tls.NewListener(l, config))
	}()

	return nil
}

// Close ends all connections. It is for a server that has been told to serve.
func (s *Server) Close() error {
	s.close()
	err := s.http.Close()
	<-s.done

	return err
}

// certificate is self-signed, as on a Proxmox VE that was not given another.
func certificate(addr netip.Addr) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "pve.lab", Organization: []string{"Proxmox Virtual Environment"}},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(365 * 24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost", "pve.lab"},
		IPAddresses:  []net.IP{addr.AsSlice()},
		IsCA:         true, BasicConstraintsValid: true,
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}

	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
