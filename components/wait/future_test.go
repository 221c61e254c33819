package wait

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestFuture(t *testing.T) {
	l := NewFuture[string]()

	_, known := l.Get(t.Context(), time.Millisecond)
	assert.False(t, known)

	ended, cancel := context.WithCancel(t.Context())
	cancel()

	_, known = l.Get(ended, time.Hour)
	assert.False(t, known)

	l.Set("a")
	l.Set("b")

	// Whatever becomes of who asks: a select of two things that are ready takes either.
	for range 100 {
		value, known := l.Get(ended, time.Hour)
		assert.True(t, known)
		assert.Equal(t, "a", value)
	}
}
