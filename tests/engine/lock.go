package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lock is held by one process at a time per name: go test runs packages side by side, and each may be the first to need
// something. The kernel releases it when its holder dies.
func (b *builder) lock(ctx context.Context, name, what string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(b.cache, name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, unwritable(b.cache, err)
	}
	started, reported := time.Now(), time.Time{}
	for {
		// It is asked for again and again because a blocking call would not see the context end.
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = file.Close()
			return nil, fmt.Errorf("locking %s: %w", file.Name(), err)
		}
		if time.Since(reported) > progressInterval {
			reported = time.Now()
			fmt.Fprintf(b.log, "  %4.0f s: waiting for another process that makes %s\n", time.Since(started).Seconds(), what)
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("waiting for another process that makes %s: %w", what, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
