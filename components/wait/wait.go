// Package wait is how the program waits for something outside of it: bounded, and saying what it waits for.
package wait

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// Every is how often a wait asks again. A node is asked often because the operator waits.
	Every = 250 * time.Millisecond
	// Ask bounds one question.
	Ask = 5 * time.Second
	// repeat is how often progress is repeated while nothing changes.
	repeat = 20 * time.Second
)

// Say reports progress to the operator.
type Say func(message string)

// notYetError says what is still waited for.
type notYetError string

func (e notYetError) Error() string { return string(e) }

// For is the error of a question that is to be asked again: it says what is waited for.
func For(format string, args ...any) error { return notYetError(fmt.Sprintf(format, args...)) }

// NotYet says whether an error is one of For.
func NotYet(err error) bool { return errors.As(err, new(notYetError)) }

// Until asks until the answer is anything but an error of For, and says what is waited for when that changes.
func Until(ctx context.Context, bound time.Duration, say Say, question func(context.Context) error) error {
	parent := ctx

	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()

	var (
		last   string
		said   time.Time
		start  = time.Now()
		end, _ = ctx.Deadline()
		ticker = time.NewTicker(Every)
	)
	defer ticker.Stop()

	for {
		ask, stop := context.WithTimeout(ctx, Ask)
		err := question(ask)

		stop()

		if !NotYet(err) {
			return err
		}

		waiting := err.Error()

		// A question that the bound has cut off has found out nothing. Who is asked may notice that before the context does.
		if last != "" && (ctx.Err() != nil || time.Now().After(end)) {
			waiting = last
		}

		if waiting != last || time.Since(said) > repeat {
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

// Reason is the end of a chain of errors: "connection refused" of "dial tcp ...: connect: connection refused".
func Reason(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}

		err = inner
	}
}

// Patience lets what is amiss last for a while before it counts: an election, a lost reply.
type Patience struct {
	Bound time.Duration
	since time.Time
}

// Over says that what is amiss has been so for too long. The first call begins the time.
func (p *Patience) Over() bool {
	if p.since.IsZero() {
		p.since = time.Now()
	}

	return time.Since(p.since) > p.Bound
}

// Reset begins anew: nothing is amiss.
func (p *Patience) Reset() { p.since = time.Time{} }
