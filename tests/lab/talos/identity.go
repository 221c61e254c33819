package talos

import (
	"bytes"
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/role"
)

// The ports of a node.
const (
	apidPort   = 50000
	trustdPort = 50001
)

// certificateTTL is Talos' lifetime of the certificates it issues for itself.
const certificateTTL = x509.DefaultCertificateValidityDuration

// identity is what a node's API shows and trusts.
type identity struct {
	ca     []byte // accepted CAs, PEM
	pool   *stdx509.CertPool
	server *tls.Certificate
	client *tls.Certificate // to speak to other nodes; only control planes have one
}

// certNames are the names that the certificates of the node's own services carry.
func (n *node) certNames() (ips []net.IP, dns []string, fqdn string) {
	host, fqdn := n.fqdn()
	names := append([]string{host, fqdn, "localhost", "127.0.0.1"}, n.config().Machine().Security().CertSANs()...)

	for _, p := range n.addresses() {
		names = append(names, p.Addr().String())
	}

	slices.Sort(names)

	for _, name := range slices.Compact(names) {
		if a, err := netip.ParseAddr(name); err == nil {
			ips = append(ips, a.AsSlice())
		} else if name != "" {
			dns = append(dns, name)
		}
	}

	return ips, dns, fqdn
}

// acceptedCAs are the machine CAs a node trusts, PEM.
func (n *node) acceptedCAs() []byte {
	sec := n.config().Machine().Security()

	var all [][]byte
	for _, ca := range sec.AcceptedCAs() {
		all = append(all, ca.Crt)
	}

	if ca := sec.IssuingCA(); ca != nil &&
		!slices.ContainsFunc(all, func(b []byte) bool { return bytes.Equal(b, ca.Crt) }) {
		all = append(all, ca.Crt)
	}

	return bytes.Join(all, []byte("\n"))
}

// issueIdentity makes a control plane's certificates from the CA in its configuration (Talos:
// controllers/secrets/api.go).
func (n *node) issueIdentity() (*identity, error) {
	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(n.config().Machine().Security().IssuingCA())
	if err != nil {
		return nil, fmt.Errorf("machine.ca: %w", err)
	}

	ips, dns, fqdn := n.certNames()

	server, err := x509.NewKeyPair(ca, x509.IPAddresses(ips), x509.DNSNames(dns), x509.CommonName(fqdn),
		x509.NotBefore(n.now()), x509.NotAfter(n.now().Add(certificateTTL)), x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}))
	if err != nil {
		return nil, err
	}

	client, err := x509.NewKeyPair(ca, x509.CommonName(fqdn), x509.Organization(string(role.Impersonator)),
		x509.NotBefore(n.now()), x509.NotAfter(n.now().Add(certificateTTL)), x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}))
	if err != nil {
		return nil, err
	}

	return newIdentity(n.acceptedCAs(), server.Certificate, client.Certificate)
}

// requestIdentity gets a worker's certificate from the trustd of a control plane.
func (n *node) requestIdentity(ctx context.Context) (*identity, error) {
	accepted := n.acceptedCAs()

	block, err := (&x509.PEMEncodedCertificate{Crt: lastPEM(accepted)}).GetCert()
	if err != nil {
		return nil, fmt.Errorf("machine.ca: %w", err)
	}

	ips, dns, fqdn := n.certNames()

	csr, key, err := x509.NewCSRAndIdentityFromCA(block, x509.IPAddresses(ips), x509.DNSNames(dns), x509.CommonName(fqdn))
	if err != nil {
		return nil, err
	}

	ca, crt, err := n.askTrustd(ctx, csr.X509CertificateRequestPEM)
	if err != nil {
		return nil, err
	}

	server, err := tls.X509KeyPair(crt, key.Key)
	if err != nil {
		return nil, err
	}

	return newIdentity(ca, &server, nil)
}

func newIdentity(ca []byte, server, client *tls.Certificate) (*identity, error) {
	id := &identity{ca: ca, pool: stdx509.NewCertPool(), server: server, client: client}
	if !id.pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("no accepted CAs")
	}

	return id, nil
}

// lastPEM returns the last block of a PEM bundle.
func lastPEM(bundle []byte) []byte {
	i := bytes.LastIndex(bundle, []byte("-----BEGIN"))

	return bundle[max(i, 0):]
}

// serverTLS is the API's side of mutual TLS (Talos: internal/app/apid/main.go). The certificates are looked up for each
// connection, so that a changed configuration takes effect at once.
func (n *node) serverTLS() *tls.Config {
	current := func() *identity {
		n.mu.Lock()
		defer n.mu.Unlock()

		return n.identity
	}

	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			id := current()

			return &tls.Config{
				MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{*id.server},
				Time: n.now, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: id.pool, VerifyPeerCertificate: onlyForClients,
			}, nil
		},
	}
}

// onlyForClients refuses peers whose certificate is not one for clients, say the server certificate of a worker.
func onlyForClients(_ [][]byte, chains [][]*stdx509.Certificate) error {
	if len(chains) == 0 {
		return errors.New("no verified chains")
	}

	for _, cert := range chains[0] {
		if !cert.IsCA && !slices.Equal(cert.ExtKeyUsage, []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}) {
			return fmt.Errorf("certificate %q is missing the client auth extended key usage", cert.Subject)
		}
	}

	return nil
}

// maintenanceTLS is how a node without configuration shows itself: with a certificate from an unknown CA,
// whose names are the addresses that the node has at the time (Talos: controllers/secrets/maintenance.go,
// maintenance_cert_sans.go).
func (n *node) maintenanceTLS() (*tls.Config, error) {
	ca, err := x509.NewSelfSignedCertificateAuthority(x509.Organization("maintenance"))
	if err != nil {
		return nil, err
	}

	var (
		mu   sync.Mutex
		made string
		cert *tls.Certificate
	)

	current := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		ips := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
		for _, p := range n.addresses() {
			ips = append(ips, p.Addr().AsSlice())
		}

		mu.Lock()
		defer mu.Unlock()

		if names := fmt.Sprint(ips); names != made {
			pair, err := x509.NewKeyPair(ca, x509.IPAddresses(ips), x509.CommonName("maintenance-service.talos.dev"),
				x509.NotAfter(time.Now().Add(certificateTTL)), x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
				x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}))
			if err != nil {
				return nil, err
			}

			made, cert = names, pair.Certificate
		}

		return cert, nil
	}

	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, GetCertificate: current}, nil
}
