package wait

import (
	"context"
	"sync"
	"time"
)

// Future is a value that becomes known while resources are registered.
type Future[T any] struct {
	once  sync.Once
	known chan struct{}
	value T
}

// NewFuture returns one that is not known yet.
func NewFuture[T any]() *Future[T] { return &Future[T]{known: make(chan struct{})} }

// Set makes the value known, once.
func (f *Future[T]) Set(value T) {
	f.once.Do(func() {
		f.value = value
		close(f.known)
	})
}

// Get waits for the value, for at most the bound. A value that is known is returned even if ctx has ended.
func (f *Future[T]) Get(ctx context.Context, bound time.Duration) (T, bool) {
	select {
	case <-f.known:
		return f.value, true
	default:
	}

	select {
	case <-f.known:
		return f.value, true
	case <-ctx.Done():
	case <-time.After(bound):
	}

	var none T

	return none, false
}
