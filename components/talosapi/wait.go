package talosapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// How often a wait asks again, and how long one question may take. A node is asked often because the operator waits.
const (
	pollEvery  = 250 * time.Millisecond
	askTimeout = 5 * time.Second
	// sayEvery is how often progress is repeated while nothing changes.
	sayEvery = 20 * time.Second
)

// Say reports progress to the operator.
type Say func(message string)

// poll asks until done, and says what is waited for when that changes. The question returns an empty text when it is
// answered.
func poll(ctx context.Context, bound time.Duration, say Say, question func(context.Context) (waitingFor string, err error)) error {
	parent := ctx

	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()

	var (
		last   string
		said   time.Time
		start  = time.Now()
		ticker = time.NewTicker(pollEvery)
	)
	defer ticker.Stop()

	for {
		ask, stop := context.WithTimeout(ctx, askTimeout)
		waiting, err := question(ask)

		stop()

		if err != nil {
			return err
		}

		if waiting == "" {
			return nil
		}

		if waiting != last || time.Since(said) > sayEvery {
			say(fmt.Sprintf("waiting for %s (%s of at most %s)", waiting, time.Since(start).Round(time.Second), bound))

			last, said = waiting, time.Now()
		}

		select {
		case <-ctx.Done():
			if parent.Err() != nil {
				return fmt.Errorf("interrupted while waiting for %s: %w", last, context.Cause(parent))
			}

			return fmt.Errorf("gave up after %s, waiting for %s", bound, last)
		case <-ticker.C:
		}
	}
}

// WaitAnswering waits until the node's API port answers, configured or not.
func WaitAnswering(ctx context.Context, t Target, bound time.Duration, say Say) error {
	return poll(ctx, bound, say, func(ctx context.Context) (string, error) {
		if err := answers(ctx, t); err != nil {
			return fmt.Sprintf("%s to answer at %s (%v)", t.Name, t.Address, reason(err)), nil
		}

		return "", nil
	})
}

// reason is the end of a chain of errors: "connection refused" of "dial tcp ...: connect: connection refused".
func reason(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}

		err = inner
	}
}

// WaitReady waits until etcd, the kubelet and the Kubernetes API server are up on every control plane. When it gives up,
// the error says of each node what it still lacked.
func WaitReady(ctx context.Context, nodes []Target, c Credentials, bound time.Duration, say Say) error {
	probes, err := open(ctx, nodes, c)
	if err != nil {
		return err
	}
	defer probes.close()

	return poll(ctx, bound, say, func(ctx context.Context) (string, error) {
		return probes.each(ctx, (*probe).missing), nil
	})
}

func orNot(state string) string {
	if state == "" {
		return "not started yet"
	}

	return strings.ToLower(state)
}
