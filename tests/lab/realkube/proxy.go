package realkube

import (
	"bytes"
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"

	"talos-proxmox/tests/lab/kube"
	"talos-proxmox/tests/upstream"
)

// proxy passes requests on to a real API server, in the way of a front proxy of Kubernetes: it says with its own
// certificate whose certificate it has seen. Tokens go through as they are.
type proxy struct {
	httputil.ReverseProxy

	withCertificate, bare *http.Transport // with the proxy's certificate, and without
}

// remoteUser begins the headers by which a front proxy names the user.
const remoteUser = "X-Remote-User"

func newProxy(s *upstream.APIServer) (*proxy, error) {
	target, err := url.Parse(s.Host())
	if err != nil {
		return nil, err
	}

	cert, err := s.FrontProxyCertificate()
	if err != nil {
		return nil, err
	}

	pool := stdx509.NewCertPool()
	pool.AppendCertsFromPEM(s.PKI.Server.Crt)

	transport := func(certs ...tls.Certificate) *http.Transport {
		return &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: pool, Certificates: certs, MinVersion: tls.VersionTLS13},
			ForceAttemptHTTP2: true,
		}
	}

	p := &proxy{withCertificate: transport(cert), bare: transport()}
	p.ReverseProxy = httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			identify(r)
		},
		Transport: p, FlushInterval: -1,
		ErrorLog: log.New(io.Discard, "", 0), // clients see it
	}

	return p, nil
}

// identify names the user of a request.
func identify(r *httputil.ProxyRequest) {
	for _, name := range []string{remoteUser, "X-Remote-Group", "X-Remote-Uid"} {
		r.Out.Header.Del(name)
	}

	if r.In.TLS == nil || len(r.In.TLS.VerifiedChains) == 0 {
		return
	}

	subject := r.In.TLS.VerifiedChains[0][0].Subject
	r.Out.Header.Set(remoteUser, subject.CommonName)

	for _, group := range subject.Organization {
		r.Out.Header.Add("X-Remote-Group", group)
	}
}

// RoundTrip implements [http.RoundTripper].
func (p *proxy) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get(remoteUser) != "" {
		return p.withCertificate.RoundTrip(r)
	}

	return p.bare.RoundTrip(r)
}

func (p *proxy) close() {
	p.withCertificate.CloseIdleConnections()
	p.bare.CloseIdleConnections()
}

// ServeHTTP answers for the real API server. What that cannot hold is the lab's: the addresses of API servers, which
// are of the loopback network here.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && r.URL.Path == kube.APIServersPath {
		c := s.cluster
		c.mu.Lock()
		body, err := json.Marshal(kube.APIServers(c.addresses, c.port))
		c.mu.Unlock()

		if err == nil && len(body) > 0 {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.Copy(w, bytes.NewReader(body)) // whoever asked may be gone

			return
		}
	}

	s.proxy.ServeHTTP(w, r)
}
