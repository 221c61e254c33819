// Package timeline holds the lab's latencies: it makes things take as long as they are set to take, and knows how long
// a whole run had to take because of them (the critical path).
package timeline

import (
	"context"
	"sync"
	"time"
)

// Span is one stretch of time that the lab imposed, say one boot of one VM.
type Span struct {
	Name     string        // "boot", "clone", "install", ...
	Subject  string        // which VM, host or cluster
	Duration time.Duration // how long it had to take
	Started  time.Time
	Ended    time.Time
	// path is the longest chain of imposed time that ends with this span.
	path time.Duration
	last *Span // the predecessor on that chain
}

// Timeline records the spans of one run.
type Timeline struct {
	mu    sync.Mutex
	spans []*Span
	first time.Time
	end   time.Time
}

// New returns an empty timeline.
func New() *Timeline { return &Timeline{} }

// Wait imposes a latency: it sleeps for d, or until the context ends, and returns the span. The spans named in after
// are those that had to end before this one could begin, whatever the client did; nil entries are skipped.
func (t *Timeline) Wait(ctx context.Context, name, subject string, d time.Duration, after ...*Span) (*Span, error) {
	s := &Span{Name: name, Subject: subject, Duration: d, Started: time.Now()}

	t.mu.Lock()
	for _, a := range after {
		if a != nil && a.path > s.path {
			s.path, s.last = a.path, a
		}
	}
	s.path += d
	t.spans = append(t.spans, s)
	t.mu.Unlock()

	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
	case <-ctx.Done():
		return s, ctx.Err()
	}

	t.mu.Lock()
	s.Ended = time.Now()
	t.mu.Unlock()

	return s, nil
}

// Touch notes that a client asked for something: the wall clock of a run is from its first to its last request.
func (t *Timeline) Touch() {
	now := time.Now()

	t.mu.Lock()
	defer t.mu.Unlock()

	if t.first.IsZero() {
		t.first = now
	}
	t.end = now
}

// Report says how long a run had to take and how long it took.
type Report struct {
	// CriticalPath is the longest chain of imposed latencies; Chain names its spans in order.
	CriticalPath time.Duration
	Chain        []Span
	// Wall is the time from the first request to the last.
	Wall time.Duration
}

// Report sums up what happened since the last Reset.
func (t *Timeline) Report() Report {
	t.mu.Lock()
	defer t.mu.Unlock()

	r := Report{Wall: t.end.Sub(t.first)}

	var last *Span
	for _, s := range t.spans {
		if !s.Ended.IsZero() && (last == nil || s.path > last.path) {
			last = s
		}
	}

	if last == nil {
		return r
	}

	r.CriticalPath = last.path
	for s := last; s != nil; s = s.last {
		r.Chain = append([]Span{*s}, r.Chain...)
	}

	return r
}

// Reset forgets what happened, so that the next run is measured by itself. Spans of the past no longer count as
// predecessors.
func (t *Timeline) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()

	for _, s := range t.spans {
		s.path, s.last = 0, nil
	}
	t.spans, t.first, t.end = nil, time.Time{}, time.Time{}
}
