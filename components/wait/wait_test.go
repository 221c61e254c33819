package wait

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUntilSaysWhatChanges(t *testing.T) {
	answers := []string{"a cat", "a cat", "a dog", ""}

	var said []string

	err := Until(t.Context(), time.Minute, func(m string) { said = append(said, m) },
		func(context.Context) (string, error) {
			next := answers[0]
			answers = answers[1:]

			return next, nil
		})

	require.NoError(t, err)
	require.Len(t, said, 2, "the same is not said twice")
	assert.Equal(t, "waiting for a cat (0s of at most 1m0s)", said[0])
	assert.Contains(t, said[1], "waiting for a dog (")
}

func TestUntilGivesUp(t *testing.T) {
	err := Until(t.Context(), time.Millisecond, func(string) {},
		func(context.Context) (string, error) { return "Godot", nil })
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

			err := Until(t.Context(), 300*time.Millisecond, func(string) {}, func(ctx context.Context) (string, error) {
				if !answered {
					answered = true

					return "Godot", nil
				}

				cutOff(ctx)

				return "somebody", nil
			})
			assert.EqualError(t, err, "gave up after 300ms, waiting for Godot")
		})
	}
}

func TestUntilEndsWithAnError(t *testing.T) {
	want := errors.New("no")
	err := Until(t.Context(), time.Minute, func(string) {}, func(context.Context) (string, error) { return "", want })
	assert.Equal(t, want, err)
}

func TestReason(t *testing.T) {
	assert.EqualError(t, Reason(&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}),
		"connection refused")
}
