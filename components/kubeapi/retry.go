package kubeapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"talos-proxmox/components/wait"
)

// errNoAnswer is why an API server is given up that takes a request and does not answer it.
var errNoAnswer = errors.New("no answer")

// WithRetry returns a client that outlives the API server that it began with. A request is sent again, to each of the
// servers in turn and for at most the bound, when its connection fails, when it is not answered, or when it is
// answered with a server error: the API server may be restarted by a setting of its own, or be gone with its machine.
// What is waited for is said. Everything that this package asks for may be asked twice.
func (c *Client) WithRetry(bound time.Duration, progress wait.Reporter, servers ...string) (*Client, error) {
	if c.config == nil {
		return c, nil
	}

	config := rest.CopyConfig(c.config)

	first, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}

	hosts := []string{first.Host}
	for _, s := range servers {
		if host := net.JoinHostPort(s, port); s != "" && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}

	// A server alone is given all the time there is.
	each := requestTimeout
	if len(hosts) > 1 {
		each = max(bound/time.Duration(len(hosts)), wait.RequestTimeout)
	}

	config.Timeout += bound + time.Duration(len(hosts))*each
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &retry{next: next, bound: bound, each: each, progress: progress, hosts: hosts}
	})

	api, err := kubernetes.NewForConfig(config)

	return &Client{api, config}, err
}

// retry sends requests that fail again.
type retry struct {
	next  http.RoundTripper
	bound time.Duration
	// each is how long one server may take to answer.
	each     time.Duration
	progress wait.Reporter

	mu sync.Mutex
	// hosts are the servers, the one that answered last first.
	hosts []string
}

// RoundTrip implements http.RoundTripper.
func (r *retry) RoundTrip(req *http.Request) (reply *http.Response, err error) {
	if req.URL.Query().Has("watch") {
		// Its answer has no end.
		return r.next.RoundTrip(req)
	}

	err = wait.Until(req.Context(), r.bound, r.progress, func(context.Context) error {
		var missed []string

		for _, host := range r.order() {
			if reply != nil {
				reply.Body.Close()
			}

			reply, err = r.send(req, host) //nolint:bodyclose // closed above, or by who gets it

			switch {
			case err == nil && reply.StatusCode < http.StatusInternalServerError:
				r.prefer(host)

				return nil
			case req.Context().Err() != nil:
				return err
			case err != nil:
				missed = append(missed, fmt.Sprintf("%s (%v)", host, wait.Reason(err)))
			default:
				missed = append(missed, fmt.Sprintf("%s (%s)", host, reply.Status))
			}
		}

		return wait.For("the Kubernetes API at %s", strings.Join(missed, ", "))
	})

	if reply != nil {
		// A server has said itself what is wrong.
		return reply, nil
	}

	return nil, err
}

// send asks one server, and reads all of its answer: its machine may go down while it answers.
func (r *retry) send(req *http.Request, host string) (*http.Response, error) {
	ctx, cancel := context.WithTimeoutCause(req.Context(), r.each, errNoAnswer)
	defer cancel()

	attempt := req.Clone(ctx)
	attempt.URL.Host, attempt.Host = host, host

	if req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}

		attempt.Body = body
	}

	reply, err := r.next.RoundTrip(attempt)

	var answer []byte
	if err == nil {
		answer, err = io.ReadAll(reply.Body)
		err = errors.Join(err, reply.Body.Close())
	}

	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}

	if err != nil {
		return nil, err
	}

	reply.Body = io.NopCloser(bytes.NewReader(answer))

	return reply, nil
}

func (r *retry) order() []string {
	r.mu.Lock()
	defer r.mu.Unlock()

	return slices.Clone(r.hosts)
}

// prefer has a server asked first from now on.
func (r *retry) prefer(host string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	others := slices.DeleteFunc(slices.Clone(r.hosts), func(h string) bool { return h == host })
	r.hosts = append([]string{host}, others...)
}
