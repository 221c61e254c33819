package components

import (
	"context"
	"sync"
	"time"
)

// future is a value that becomes known while resources are registered.
type future[T any] struct {
	once  sync.Once
	known chan struct{}
	value T
}

func newFuture[T any]() *future[T] { return &future[T]{known: make(chan struct{})} }

func (l *future[T]) set(value T) {
	l.once.Do(func() {
		l.value = value
		close(l.known)
	})
}

// get waits for the value, for at most the bound.
func (l *future[T]) get(ctx context.Context, bound time.Duration) (T, bool) {
	select {
	case <-l.known:
		return l.value, true
	case <-ctx.Done():
	case <-time.After(bound):
	}

	var none T

	return none, false
}
