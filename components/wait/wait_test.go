package wait

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUntilReportsChanges(t *testing.T) {
	answers := []error{For("a %s", "cat"), For("a cat"), fmt.Errorf("%w", For("a dog")), nil}

	var said []string

	err := Until(t.Context(), time.Minute, func(m string) { said = append(said, m) },
		func(context.Context) error {
			next := answers[0]
			answers = answers[1:]

			return next
		})

	require.NoError(t, err)
	require.Len(t, said, 2, "the same is not said twice")
	assert.Equal(t, "waiting for a cat (0s of at most 1m0s)", said[0])
	assert.Contains(t, said[1], "waiting for a dog (")
}

func TestUntilGivesUp(t *testing.T) {
	err := Until(t.Context(), time.Millisecond, func(string) {},
		func(context.Context) error { return For("Godot") })
	assert.EqualError(t, err, "gave up after 1ms, waiting for Godot")
}

// TestUntilRemembers: what the last whole answer was is said, not that one was cut off, be it by whoever looks at the
// time by itself.
func TestUntilRemembers(t *testing.T) {
	for name, cutOff := range map[string]func(context.Context){
		"by the context": func(ctx context.Context) { <-ctx.Done() },
		"by the time": func(ctx context.Context) {
			end, _ := ctx.Deadline()
			for time.Until(end) > 0 { //nolint:revive // as close to it as can be
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			answered := false

			err := Until(t.Context(), 300*time.Millisecond, func(string) {}, func(ctx context.Context) error {
				if !answered {
					answered = true

					return For("Godot")
				}

				cutOff(ctx)

				return For("another")
			})
			assert.EqualError(t, err, "gave up after 300ms, waiting for Godot")
		})
	}
}

func TestUntilEndsWithAnError(t *testing.T) {
	want := errors.New("no")
	err := Until(t.Context(), time.Minute, func(string) {}, func(context.Context) error { return want })
	assert.Equal(t, want, err)
}

func TestReason(t *testing.T) {
	assert.EqualError(t, Reason(&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}),
		"connection refused")
}
