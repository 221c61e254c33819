package talosapi

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestBrief(t *testing.T) {
	assert.Equal(t, "connection refused", brief(status.Error(codes.Unavailable,
		`connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.11:50000: connect: connection refused"`)))
	assert.Equal(t, "gone", brief(status.Error(codes.Unavailable, "gone")))
	assert.Equal(t, "bootstrap is not available yet",
		brief(status.Error(codes.FailedPrecondition, "bootstrap is not available yet")))
	assert.Equal(t, "no connection", brief(errors.New("no connection")))
	assert.Equal(t, "[2Jit is well", brief(status.Error(codes.InvalidArgument, "\x1b[2Jit is well\r")))
	assert.Equal(t, "[2Jgone", brief(status.Error(codes.Unavailable, "dial: \x1b[2Jgone")))
	assert.EqualError(t, notTaken("a", status.Error(codes.InvalidArgument, "\x1b]0;x\ano disk")),
		"it refuses its configuration: ]0;xno disk")
}

// TestBriefQuotesKeysOnly: of what Talos does not know, only the way to it is shown: below it may be a password. The
// node says it of a configuration that it is given, the client of one that it reads.
func TestBriefQuotesKeysOnly(t *testing.T) {
	const (
		message = "error decoding document VolumeConfig/ (line 1): unknown keys found during decoding:"
		quoted  = "\nencryption:\n    keys:\n        - static:\n            passphrase: hunter2\n"
		want    = message + " encryption.keys.static.passphrase"
	)

	assert.Equal(t, want, brief(status.Error(codes.InvalidArgument, message+quoted)))
	assert.Equal(t, want, brief(errors.New(message+quoted)))
}
