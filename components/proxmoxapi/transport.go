package proxmoxapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// requestTimeout bounds each request with its answer: look-ups are small, and a preview must not hang on a host that is
// down.
const requestTimeout = 10 * time.Second

// retryPause is how long the client waits before it sends a request again that was not answered.
const retryPause = time.Second

// transport sends requests. It keeps what Proxmox VE says when a call fails: when it denies one, the client library
// drops which privilege is missing, and most other failures it takes for an answer with nothing in it. And it takes
// nothing for an answer of Proxmox VE that is none: a proxy's page, half of a body.
//
// A look-up, or a login, that fails for a reason that may pass is sent again for the grace period. A change is not: see
// Client.untilAdmitted.
type transport struct {
	next http.RoundTripper
	// timeout bounds one request, grace the repetitions of one; 0: nothing is repeated. longest bounds how long a server
	// may ask to wait.
	timeout, grace, longest, pause time.Duration
	// token says that there is no other login to try.
	token    bool
	progress func(string)
	// answered says that Proxmox VE has answered before: then it was the right endpoint, and may come back.
	answered atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	start, call := time.Now(), r.Method+" "+strings.TrimPrefix(r.URL.Path, "/api2/json")

	for {
		reply, err := t.send(r)
		if err == nil {
			t.answered.Store(true)

			return reply, nil
		}

		pause, again := t.again(r, err, time.Since(start))
		if !again || r.Context().Err() != nil {
			return nil, err
		}

		t.progress(fmt.Sprintf("waiting to send %s again (%s): %v", call, time.Since(start).Round(time.Second), err))

		select {
		case <-r.Context().Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}

// repeatable says that a request changes nothing: a look-up, or a login with a password, which makes a ticket.
func repeatable(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/access/ticket")
}

// again says after which pause a request is sent again.
func (t *transport) again(r *http.Request, err error, taken time.Duration) (time.Duration, bool) {
	if t.grace == 0 {
		return 0, false
	}

	var (
		failed failedError
		status = errors.As(err, &failed)
		soon   = taken+t.pause <= t.grace
	)

	switch {
	case !repeatable(r), errors.As(err, new(deniedError)):
		return 0, false
	case status && failed.code == http.StatusTooManyRequests && failed.after > 0:
		return failed.after, taken+failed.after <= t.longest
	case status && failed.code == http.StatusTooManyRequests:
		return t.pause, soon
	case status:
		passing := []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}
		pause := max(t.pause, failed.after)

		return pause, slices.Contains(passing, failed.code) && taken+pause <= t.grace
	case dialing(err):
		return t.pause, soon && t.answered.Load()
	default:
		return t.pause, soon && !untrusted(err)
	}
}

// send sends a request once, and reads all of the answer.
func (t *transport) send(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeoutCause(r.Context(), t.timeout, timeoutError(t.timeout))
	defer cancel()

	once := r.Clone(ctx)

	// The body of a request that is sent again was read the first time.
	if r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}

		once.Body = body
	}

	reply, err := t.next.RoundTrip(once)
	if err != nil {
		return nil, unknown(r, ended(ctx, err))
	}

	_, reason, _ := strings.Cut(reply.Status, " ")

	switch known := []int{http.StatusBadRequest, http.StatusInternalServerError, http.StatusNotImplemented}; {
	case reply.StatusCode == http.StatusForbidden, reply.StatusCode == http.StatusUnauthorized && t.token:
		return nil, errors.Join(deniedError(reason), reply.Body.Close())
	case reply.StatusCode == http.StatusUnauthorized:
		return reply, nil // the library logs in
	case reply.StatusCode >= http.StatusBadRequest && !slices.Contains(known, reply.StatusCode):
		failed := failedError{reply.StatusCode, reply.Status, retryAfter(reply.Header)}

		return nil, errors.Join(unknown(r, failed), reply.Body.Close())
	}

	body, err := io.ReadAll(reply.Body)
	if err = errors.Join(err, reply.Body.Close()); err != nil {
		return nil, unknown(r, fmt.Errorf("an incomplete answer: %w", ended(ctx, err)))
	}

	// Where a redirection leads to, is an answer or is none.
	if reply.StatusCode < http.StatusMultipleChoices && !isAnswer(body) {
		return nil, unknown(r, notAnswerError(reply.Header.Get("Content-Type")))
	}

	reply.Body = io.NopCloser(bytes.NewReader(body))

	return reply, nil
}

// ended says that it was our own time that has run out.
func ended(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.As(cause, new(timeoutError)) && !dialing(err) {
		return cause
	}

	return err
}

// dialing says that a connection was not made.
func dialing(err error) bool {
	var dial *net.OpError

	return errors.As(err, &dial) && dial.Op == "dial"
}

// unknown says of a change that failed that it may have been carried out all the same.
func unknown(r *http.Request, err error) error {
	var failed failedError

	if repeatable(r) || dialing(err) || untrusted(err) ||
		errors.As(err, &failed) && failed.code < http.StatusInternalServerError {
		return err
	}

	return fmt.Errorf("%w; it is unknown whether the request was carried out", err)
}

// isAnswer says whether a body is what Proxmox VE answers everything with: an object with data.
func isAnswer(body []byte) bool {
	var reply map[string]json.RawMessage
	if err := json.Unmarshal(body, &reply); err != nil {
		return false
	}

	_, ok := reply["data"]

	return ok
}

// retryAfter is how long a server asks to wait, in seconds or until a time; 0: it does not.
func retryAfter(header http.Header) time.Duration {
	text := header.Get("Retry-After")

	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(max(seconds, 0)) * time.Second
	}

	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}

	return max(time.Until(at).Round(time.Second), 0)
}

// timeoutError is that nothing was answered within a time.
type timeoutError time.Duration

func (e timeoutError) Error() string { return fmt.Sprintf("no answer within %s", time.Duration(e)) }

// Timeout implements net.Error.
func (timeoutError) Timeout() bool { return true }

// notAnswerError is that something was answered which is not of Proxmox VE, by its content type.
type notAnswerError string

func (e notAnswerError) Error() string {
	kind, _, err := mime.ParseMediaType(string(e))
	if err != nil {
		kind = "content without a type"
	}

	return fmt.Sprintf("%s that is not from the API of Proxmox VE: a proxy may have answered in its place", kind)
}

// deniedError is why a call was denied.
type deniedError string

func (e deniedError) Error() string { return string(e) }

// failedError is how a call failed, and how long the server asks to wait before the next.
type failedError struct {
	code   int
	status string
	after  time.Duration
}

func (e failedError) Error() string {
	if e.after > 0 {
		return fmt.Sprintf("%s (it asks to wait for %s)", e.status, e.after)
	}

	return e.status
}

// silent says that a call was handed on to a host which did not answer: from 595 on, a status is the proxy's own.
func (e failedError) hostUnreachable() bool { return e.code >= 595 && e.code <= 599 }

// untrusted says that it was this machine that has refused the server.
func untrusted(err error) bool { return errors.As(err, new(*tls.CertificateVerificationError)) }
