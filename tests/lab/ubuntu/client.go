package ubuntu

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/siderolabs/crypto/x509"
)

// clusterHeader is how a server of the lab says which cluster it is of: real ones differ in what they know.
const clusterHeader = "Lab-Cluster"

// client speaks with a server's supervisor (K3s: pkg/clientaccess).
type client struct {
	url            string
	cluster        string // that answers
	ca             []byte
	user, password string
	http           *http.Client
}

// passwordOf takes a token apart. A full one must name the authority.
func passwordOf(token, ca string) (string, error) {
	_, password, err := credentialsOf(token, []byte(ca), "server")

	return password, err
}

func credentialsOf(token string, ca []byte, fallback string) (user, password string, err error) {
	rest, full := strings.CutPrefix(token, "K10")
	if !full {
		return fallback, token, nil
	}

	hash, credentials, ok := strings.Cut(rest, "::")
	user, password, whole := strings.Cut(credentials, ":")

	if !ok || !whole || len(hash) != sha256.Size*2 {
		return "", "", fmt.Errorf("invalid token format")
	}

	found := sha256.Sum256(ca)
	if now := hex.EncodeToString(found[:]); now != hash {
		return "", "", fmt.Errorf("token CA hash does not match the Cluster CA certificate hash: %s != %s", hash, now)
	}

	return user, password, nil
}

// patience is how long a node that joins waits for its server: it may come up later. K3s tries for ever.
const gracePeriod = 20 * time.Second

// dial gets the server's authority without trusting it, holds it against the token, and from then on trusts it alone,
// by the clock of the machine.
func dial(ctx context.Context, url, token string, now func() time.Time) (*client, error) {
	var (
		ca     []byte
		header http.Header
		err    error
	)

	open := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, //nolint:gosec // as K3s does
	}}

	for deadline := time.Now().Add(gracePeriod); ; {
		if ca, header, err = get(ctx, open, url+"/cacerts", nil); err == nil {
			break
		}

		if time.Now().After(deadline) {
			return nil, fmt.Errorf("failed to get CA certs: %w", err)
		}

		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}

	user, password, err := credentialsOf(token, ca, "node")
	if err != nil {
		return nil, err
	}

	pool := stdx509.NewCertPool()
	pool.AppendCertsFromPEM(ca)

	return &client{
		url: url, cluster: header.Get(clusterHeader), ca: ca, user: user, password: password,
		http: &http.Client{
			Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{
				RootCAs:    pool,
				MinVersion: tls.VersionTLS12,
				Time:       now,
			}, DisableKeepAlives: true},
		},
	}, nil
}

func get(ctx context.Context, c *http.Client, url string, prepare func(*http.Request)) ([]byte, http.Header, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}

	if prepare != nil {
		prepare(r)
	}

	reply, err := c.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer reply.Body.Close()

	body, err := io.ReadAll(reply.Body)
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, reply.Status, strings.TrimSpace(string(body)))
	}

	return body, reply.Header, err
}

func (c *client) ask(ctx context.Context, path string, into any, header map[string]string) error {
	body, _, err := get(ctx, c.http, c.url+path, func(r *http.Request) {
		r.SetBasicAuth(c.user, c.password)

		for name, value := range header {
			r.Header.Set(name, value)
		}
	})
	if err != nil {
		return fmt.Errorf("failed to validate token: %w", err)
	}

	return json.Unmarshal(body, into)
}

// bootstrap gets the authorities, which only servers may have.
func (c *client) bootstrap(ctx context.Context) (files map[string]string, err error) {
	err = c.ask(ctx, "/v1-k3s/server-bootstrap", &files, nil)

	return files, err
}

// config gets what the server runs with.
func (c *client) config(ctx context.Context) (server criticalArgs, err error) {
	err = c.ask(ctx, "/v1-k3s/config", &server, nil)

	return server, err
}

// kubelet gets a node's certificate.
func (c *client) kubelet(ctx context.Context, name, password string) (*x509.PEMEncodedCertificateAndKey, error) {
	var pair struct{ Crt, Key string }

	err := c.ask(ctx, "/v1-k3s/client-kubelet.crt", &pair,
		map[string]string{"k3s-Node-Name": name, "k3s-Node-Password": password})

	return &x509.PEMEncodedCertificateAndKey{Crt: []byte(pair.Crt), Key: []byte(pair.Key)}, err
}
