// Package proxmoxapi is what the program asks of Proxmox VE directly, not through the provider: looking things up
// before anything is registered, and the one thing that the provider must not know of, taking an ISO file out of a
// drive.
package proxmoxapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
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
	// Progress is told of waits for locks; nil: nothing is.
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
	// ErrHostSilent means that Proxmox VE cannot reach the host that was asked about.
	ErrHostSilent = errors.New("cannot reach that host")
)

// Client asks one Proxmox VE cluster.
type Client struct {
	endpoint, offline string
	// lockPause is how long it waits before it repeats what a lock has refused.
	taskTimeout, lockPause time.Duration
	progress               func(string)
	api                    *proxmox.Client
}

// requestTimeout bounds each request: look-ups are small, and a preview must not hang on a host that is down.
const requestTimeout = 10 * time.Second

// New returns a client. It makes no connection.
func New(a Access) (*Client, error) {
	u, err := url.Parse(a.Endpoint)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("the Proxmox VE endpoint %q is no URL", a.Endpoint)
	}

	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: a.Insecure, //nolint:gosec // the operator's explicit choice
	}

	login := proxmox.WithAPIToken(a.TokenID, a.TokenSecret)
	if a.TokenID == "" {
		login = proxmox.WithCredentials(&proxmox.Credentials{Username: a.Username, Password: a.Password})
	}

	progress := a.Progress
	if progress == nil {
		progress = func(string) {}
	}

	return &Client{
		endpoint: "https://" + u.Host, offline: a.Offline, taskTimeout: cmp.Or(a.TaskTimeout, 30*time.Minute),
		lockPause: lockPause, progress: progress,
		api: proxmox.NewClient("https://"+u.Host+"/api2/json", login,
			proxmox.WithHTTPClient(&http.Client{Transport: listener{transport}, Timeout: requestTimeout})),
	}, nil
}

// listener keeps what Proxmox VE says when a call fails: when it denies one, the client drops which privilege is
// missing, and most other failures it takes for an answer with nothing in it.
type listener struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (l listener) RoundTrip(r *http.Request) (*http.Response, error) {
	reply, err := l.RoundTripper.RoundTrip(r)
	if err != nil || reply.StatusCode < http.StatusBadRequest {
		return reply, err
	}

	switch reply.StatusCode {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusInternalServerError, http.StatusNotImplemented:
		return reply, nil // these the client knows
	case http.StatusForbidden:
		_, reason, _ := strings.Cut(reply.Status, " ")

		return nil, errors.Join(deniedError(reason), reply.Body.Close())
	default:
		return nil, errors.Join(failedError{reply.StatusCode, reply.Status}, reply.Body.Close())
	}
}

// deniedError is why a call was denied.
type deniedError string

func (e deniedError) Error() string { return string(e) }

// failedError is how a call failed.
type failedError struct {
	code   int
	status string
}

func (e failedError) Error() string { return e.status }

// silent says that a call was handed on to a host which did not answer: from 595 on, a status is the proxy's own.
func (e failedError) silent() bool { return e.code >= 595 && e.code <= 599 }

// get asks for something.
func (c *Client) get(ctx context.Context, path string, into any) error {
	if c.offline != "" {
		return fmt.Errorf("Proxmox VE at %s %w: %s", c.endpoint, ErrOffline, c.offline)
	}

	return c.explain("GET "+path, c.api.Get(ctx, path, into))
}

// explain tells apart what callers must tell apart. Credentials never reach the message.
func (c *Client) explain(call string, err error) error {
	var (
		denied      deniedError
		failed      failedError
		transport   *url.Error
		certificate *tls.CertificateVerificationError
	)

	switch {
	case err == nil:
		return nil
	case errors.Is(err, proxmox.ErrNotAuthorized):
		return fmt.Errorf("Proxmox VE at %s %w (%s)", c.endpoint, ErrRefused, call)
	case errors.As(err, &denied):
		return fmt.Errorf("Proxmox VE at %s %w (%s): %w", c.endpoint, ErrRefused, call, denied)
	case errors.As(err, &failed) && failed.silent():
		return fmt.Errorf("Proxmox VE at %s %w (%s): %w", c.endpoint, ErrHostSilent, call, failed)
	case strings.Contains(err.Error(), "hostname lookup '"):
		// The host has left the cluster, and its VMs have not.
		return fmt.Errorf("Proxmox VE at %s %w (%s): %w", c.endpoint, ErrHostSilent, call, err)
	case errors.As(err, &failed):
		return fmt.Errorf("Proxmox VE at %s answers %s with: %w", c.endpoint, call, failed)
	case errors.As(err, &certificate):
		return fmt.Errorf("Proxmox VE at %s %w: %w", c.endpoint, ErrUntrusted, certificate.Err)
	case errors.As(err, &transport) && transport.Timeout() && handedOn(call, err):
		return fmt.Errorf("Proxmox VE at %s %w (%s): no answer in time", c.endpoint, ErrHostSilent, call)
	case errors.As(err, &transport):
		return fmt.Errorf("Proxmox VE at %s %w: %w", c.endpoint, ErrUnreachable, transport.Err)
	default:
		return fmt.Errorf("Proxmox VE at %s answers %s with: %w", c.endpoint, call, err)
	}
}

// handedOn says that a call which ran out of time is about a host, and that Proxmox VE itself was reached: it waits for
// a host that has just gone longer than we wait for it.
func handedOn(call string, err error) bool {
	var dial *net.OpError

	return strings.Contains(call, " /nodes/") && !(errors.As(err, &dial) && dial.Op == "dial")
}

// task makes a request that Proxmox VE answers with a task, and waits for the end of that. What a lock refuses is sent
// again.
func (c *Client) task(ctx context.Context, host, method, path string, body any) error {
	return c.untilUnlocked(ctx, method+" "+path, always, func() error {
		return c.taskOnce(ctx, host, method, path, body)
	})
}

// vmTask is task for a VM: what a lock refuses is sent again to the same VM only.
func (c *Client) vmTask(ctx context.Context, vm VM, method, path string, body any) error {
	path = qemu(vm) + path

	return c.untilUnlocked(ctx, method+" "+path, c.sameVM(vm), func() error {
		return c.taskOnce(ctx, vm.Host, method, path, body)
	})
}

func (c *Client) taskOnce(ctx context.Context, host, method, path string, body any) error {
	var (
		id   proxmox.UPID
		call = method + " " + path
		send = c.api.Post
	)

	if method == "PUT" {
		send = c.api.Put
	}

	if err := c.explain(call, send(ctx, path, body, &id)); err != nil {
		return err
	}

	task := proxmox.NewTask(id, c.api)

	switch err := task.Wait(ctx, time.Second/4, c.taskTimeout); {
	case proxmox.IsTimeout(err):
		return fmt.Errorf("Proxmox VE on host %s: the task of %s still runs: gave up after %s (lifecycle.taskTimeout)", host,
			call,
			c.taskTimeout)
	case err != nil:
		return c.explain("the task of "+call, err)
	}

	if task.IsFailed {
		return fmt.Errorf("Proxmox VE on host %s: %s", host, task.ExitStatus)
	}

	return nil
}
