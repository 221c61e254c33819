package talosapi

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestPollSaysWhatChanges(t *testing.T) {
	answers := []string{"a cat", "a cat", "a dog", ""}

	var said []string

	err := poll(t.Context(), time.Minute, func(m string) { said = append(said, m) }, func(context.Context) (string, error) {
		next := answers[0]
		answers = answers[1:]

		return next, nil
	})

	require.NoError(t, err)
	require.Len(t, said, 2, "the same is not said twice")
	assert.Equal(t, "waiting for a cat (0s of at most 1m0s)", said[0])
	assert.Contains(t, said[1], "waiting for a dog (")
}

func TestPollGivesUp(t *testing.T) {
	err := poll(t.Context(), time.Millisecond, func(string) {}, func(context.Context) (string, error) { return "Godot", nil })
	assert.EqualError(t, err, "gave up after 1ms, waiting for Godot")
}

func TestPollEndsWithAnError(t *testing.T) {
	want := errors.New("no")
	err := poll(t.Context(), time.Minute, func(string) {}, func(context.Context) (string, error) { return "", want })
	assert.Equal(t, want, err)
}

func TestWaitAnswering(t *testing.T) {
	// Nobody listens on the Talos port of this address.
	err := WaitAnswering(t.Context(), Target{Name: "n1", Address: "127.255.255.254"}, 10*time.Millisecond, func(string) {})
	assert.EqualError(t, err, "gave up after 10ms, waiting for n1 to answer at 127.255.255.254 (connection refused)")
}

func TestBrief(t *testing.T) {
	assert.Equal(t, "connection refused", brief(status.Error(codes.Unavailable,
		`connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.11:50000: connect: connection refused"`)))
	assert.Equal(t, "gone", brief(status.Error(codes.Unavailable, "gone")))
	assert.Equal(t, "bootstrap is not available yet", brief(status.Error(codes.FailedPrecondition, "bootstrap is not available yet")))
	assert.Equal(t, "no connection", brief(errors.New("no connection")))
}

func TestReason(t *testing.T) {
	assert.EqualError(t, reason(&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}), "connection refused")
}
