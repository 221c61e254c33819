package talosapi

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestWaitAnswering(t *testing.T) {
	// Nothing listens on the Talos port of this address.
	err := WaitAnswering(t.Context(), Target{Name: "n1", Address: "127.255.255.254"}, 2*time.Second, func(string) {})
	assert.EqualError(t, err, "gave up after 2s, waiting for n1 to answer at 127.255.255.254 (connection refused)")
}
