// Package wait is how the program waits for something outside of it: bounded, and saying what it waits for.
package wait

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// PollInterval is how often a wait asks again. A node is asked often because the operator waits.
	PollInterval = 250 * time.Millisecond
	// RequestTimeout bounds one question.
	RequestTimeout = 5 * time.Second
	// reportInterval is how often progress is repeated while nothing changes.
	reportInterval = 20 * time.Second
)

// Reporter reports progress to the operator.
type Reporter func(message string)

// notYetError says what is still waited for.
type notYetError string

func (e notYetError) Error() string { return string(e) }

// For is the error of a question that is to be asked again: it says what is waited for.
func For(format string, args ...any) error { return notYetError(fmt.Sprintf(format, args...)) }

// NotYet says whether an error is one of For.
func NotYet(err error) bool { return errors.As(err, new(notYetError)) }

// Until asks until the answer is anything but an error of For, and says what is waited for when that changes.
func Until(ctx context.Context, bound time.Duration, report Reporter, question func(context.Context) error) error {
	parent := ctx

	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()

	var (
		last     string
		reported time.Time
		start    = time.Now()
		end, _   = ctx.Deadline()
		ticker   = time.NewTicker(PollInterval)
	)
	defer ticker.Stop()

	for {
		short, stop := context.WithTimeout(ctx, RequestTimeout)
		err := question(short)

		stop()

		if !NotYet(err) {
			return err
		}

		waiting := err.Error()

		// A question that the bound has cut off has found out nothing. Who is asked may notice that before the context does.
		if last != "" && (ctx.Err() != nil || time.Now().After(end)) {
			waiting = last
		}

		if waiting != last || time.Since(reported) > reportInterval {
			report(fmt.Sprintf("waiting for %s (%s of at most %s)", waiting, time.Since(start).Round(time.Second), bound))

			last, reported = waiting, time.Now()
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

// Reason is the end of a chain of errors: "connection refused" of "dial tcp ...: connect: connection refused". A
// certificate that is not good at this time is a ClockError.
func Reason(err error) error {
	if clock, is := Clock(err.Error()); is {
		return clock
	}

	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}

		err = inner
	}
}

// GracePeriod lets a failure last for a while before it counts: an election, a lost reply.
type GracePeriod struct {
	Bound time.Duration
	since time.Time
}

// Expired says that the failure has lasted for too long. The first call begins the time.
func (p *GracePeriod) Expired() bool {
	if p.since.IsZero() {
		p.since = time.Now()
	}

	return time.Since(p.since) > p.Bound
}

// Reset ends it: nothing fails.
func (p *GracePeriod) Reset() { p.since = time.Time{} }
