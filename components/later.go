package components

import (
	"context"
	"sync"
	"time"
)

// later is a value that becomes known while resources are registered.
type later[T any] struct {
	once  sync.Once
	known chan struct{}
	value T
}

func newLater[T any]() *later[T] { return &later[T]{known: make(chan struct{})} }

func (l *later[T]) set(value T) {
	l.once.Do(func() {
		l.value = value
		close(l.known)
	})
}

// get waits for the value, for at most the bound.
func (l *later[T]) get(ctx context.Context, bound time.Duration) (T, bool) {
	select {
	case <-l.known:
		return l.value, true
	case <-ctx.Done():
	case <-time.After(bound):
	}

	var none T

	return none, false
}
