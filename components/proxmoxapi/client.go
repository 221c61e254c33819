// Package proxmoxapi is what the program asks of Proxmox VE directly, not through the provider: looking things up
// before anything is registered, and the one thing that the provider must not know of, taking an ISO file out of a
// drive.
package proxmoxapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/luthermonson/go-proxmox"
)

// Access is where Proxmox VE is and how to log in: with an API token, or with a user name and a password.
type Access struct {
	// Endpoint is "https://host:8006"; a path is dropped.
	Endpoint string
	// Insecure accepts any server certificate.
	Insecure bool
	// TokenID is "user@realm!name".
	TokenID, TokenSecret string
	// Username is "user@realm".
	Username, Password string
	// Offline says that nothing is to be asked, and why.
	Offline string
	// TaskTimeout bounds a task: a guest to shut down, a datastore to make a disk larger, a host to download an image.
	// It also bounds how long a lock of a VM is waited for. 0: half an hour.
	TaskTimeout time.Duration
	// GracePeriod is how long a look-up is repeated that fails for a reason that may pass. 0: ten seconds.
	GracePeriod time.Duration
	// Once sends each request once, as previews do.
	Once bool
	// Progress is told of waits; nil: nothing is.
	Progress func(message string)
}

// Errors that callers tell apart.
var (
	// ErrUnreachable means that nothing answered, so nothing is known.
	ErrUnreachable = errors.New("cannot be reached")
	// ErrRefused means that the credentials are wrong or may not do what was asked.
	ErrRefused = errors.New("refuses the credentials")
	// ErrUntrusted means that this machine does not trust the server's certificate.
	ErrUntrusted = errors.New("shows a certificate that this machine does not trust")
	// ErrOffline means that nothing is to be asked.
	ErrOffline = errors.New("is not asked")
	// ErrHostUnreachable means that Proxmox VE cannot reach the host that was asked about.
	ErrHostUnreachable = errors.New("cannot reach that host")
)

// IgnoreUnreachable is the error of a preview: without Proxmox VE nothing is known, which the preview has said.
func IgnoreUnreachable(err error) error {
	if errors.Is(err, ErrUnreachable) || errors.Is(err, ErrOffline) {
		return nil
	}

	return err
}

// Client asks one Proxmox VE cluster.
type Client struct {
	endpoint, offline string
	// lockPause is how long it waits before it repeats what a lock has refused.
	taskTimeout, lockPause time.Duration
	progress               func(string)
	transport              *transport
	// login returns a client that has not logged in yet.
	login func() *proxmox.Client

	mu      sync.Mutex
	session *proxmox.Client
}

// New returns a client. It makes no connection.
func New(a Access) (*Client, error) {
	u, err := url.Parse(a.Endpoint)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("the Proxmox VE endpoint %q is not a URL", a.Endpoint)
	}

	base := http.DefaultTransport.(*http.Transport).Clone()
	base.TLSClientConfig = &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: a.Insecure, //nolint:gosec // the operator's explicit choice
	}

	progress := a.Progress
	if progress == nil {
		progress = func(string) {}
	}

	c := &Client{
		endpoint: "https://" + u.Host, offline: a.Offline, taskTimeout: cmp.Or(a.TaskTimeout, 30*time.Minute),
		lockPause: lockPause, progress: progress,
	}
	c.transport = &transport{
		next: base, timeout: requestTimeout, grace: cmp.Or(a.GracePeriod, 10*time.Second), longest: c.taskTimeout,
		pause: retryPause, token: a.TokenID != "", progress: progress,
	}

	if a.Once {
		c.transport.grace = 0
	}

	login := proxmox.WithAPIToken(a.TokenID, a.TokenSecret)
	if a.TokenID == "" {
		login = proxmox.WithCredentials(&proxmox.Credentials{Username: a.Username, Password: a.Password})
	}

	api := &http.Client{Transport: c.transport, CheckRedirect: sameServer}
	c.login = func() *proxmox.Client {
		return proxmox.NewClient(c.endpoint+"/api2/json", login, proxmox.WithHTTPClient(api))
	}
	c.session = c.login()

	return c, nil
}

// sameServer follows redirections of a server to itself only: net/http sends headers and bodies along, and they hold
// the credentials.
func sameServer(r *http.Request, via []*http.Request) error {
	const most = 10 // as net/http

	switch first := via[0].URL; {
	case r.URL.Scheme != first.Scheme || r.URL.Host != first.Host:
		return fmt.Errorf("redirects to %s://%s, which is not sent the credentials", r.URL.Scheme, r.URL.Host)
	case len(via) >= most:
		return fmt.Errorf("redirects more than %d times", most)
	default:
		return nil
	}
}

// get asks for something.
func (c *Client) get(ctx context.Context, path string, into any) error {
	if c.offline != "" {
		return fmt.Errorf("Proxmox VE at %s %w: %s", c.endpoint, ErrOffline, c.offline)
	}

	return c.request(ctx, http.MethodGet, path, nil, into)
}

// request sends a request. What a session has expired for is sent again with a new one: a ticket is good for two hours.
func (c *Client) request(ctx context.Context, method, path string, body, into any) error {
	var data []byte

	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return err
		}
	}

	session := c.api()
	err := session.Req(ctx, method, path, data, into)

	if errors.Is(err, proxmox.ErrNotAuthorized) && !c.transport.token && c.transport.answered.Load() {
		err = c.renewed(session).Req(ctx, method, path, data, into)
	}

	return c.explain(method+" "+path, err)
}

func (c *Client) api() *proxmox.Client {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.session
}

// renewed is a client that logs in again, instead of one whose session has expired.
func (c *Client) renewed(expired *proxmox.Client) *proxmox.Client {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.session == expired {
		c.session = c.login()
	}

	return c.session
}

// explain tells apart what callers must tell apart. Credentials never reach the message.
func (c *Client) explain(call string, err error) error {
	var (
		denied      deniedError
		failed      failedError
		transport   *url.Error
		certificate *tls.CertificateVerificationError
	)

	timeout := errors.As(err, &transport) && transport.Timeout()
	if transport != nil {
		err = transport.Err // without the address, which may name what was looked up
	}

	switch {
	case err == nil:
		return nil
	case errors.Is(err, proxmox.ErrNotAuthorized):
		return fmt.Errorf("Proxmox VE at %s %w (%s)", c.endpoint, ErrRefused, call)
	case errors.As(err, &denied):
		return fmt.Errorf("Proxmox VE at %s %w (%s): %w", c.endpoint, ErrRefused, call, denied)
	case errors.As(err, &failed) && failed.hostUnreachable():
		return fmt.Errorf("Proxmox VE at %s %w (%s): %w", c.endpoint, ErrHostUnreachable, call, err)
	case strings.Contains(err.Error(), "hostname lookup '"):
		// The host has left the cluster, and its VMs have not.
		return fmt.Errorf("Proxmox VE at %s %w (%s): %w", c.endpoint, ErrHostUnreachable, call, err)
	case failed.code > 0, errors.As(err, new(notAnswerError)):
		return fmt.Errorf("Proxmox VE at %s answers %s with: %w", c.endpoint, call, err)
	case errors.As(err, &certificate):
		return fmt.Errorf("Proxmox VE at %s %w: %w", c.endpoint, ErrUntrusted, certificate.Err)
	case timeout && strings.Contains(call, " /nodes/") && !dialing(err):
		// Proxmox VE itself was reached: it waits for a host that has just gone longer than we wait for it.
		return fmt.Errorf("Proxmox VE at %s %w (%s): %w", c.endpoint, ErrHostUnreachable, call, err)
	case transport != nil:
		return fmt.Errorf("Proxmox VE at %s %w: %w", c.endpoint, ErrUnreachable, err)
	default:
		return fmt.Errorf("Proxmox VE at %s answers %s with: %w", c.endpoint, call, err)
	}
}

// lockPause is how long a client waits before it repeats what a lock has refused.
const lockPause = 5 * time.Second
