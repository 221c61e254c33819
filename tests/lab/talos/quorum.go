package talos

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Quorum is one instant in the life of an etcd cluster: how the votes stood after something changed.
type Quorum struct {
	Time    time.Time
	Cluster uint64 // which one: a cluster that is bootstrapped or recovered is a new one
	Cause   string // what changed: "vm-13: etcd starts"
	Voters  int
	Healthy int // voters that run and reach each other; real ones: that answer
}

// Needed is how many voters have to be healthy.
func (q Quorum) Needed() int { return q.Voters/2 + 1 }

// Margin is how many voters could be lost at that instant; below zero there was no quorum.
func (q Quorum) Margin() int { return q.Healthy - q.Needed() }

// quorumLog is the memory of all etcd clusters of a world.
type quorumLog struct {
	mu       sync.Mutex
	instants []Quorum
	reads    atomic.Int32 // that are under way, to show whether there is a quorum
}

func (l *quorumLog) add(q Quorum) {
	l.mu.Lock()
	defer l.mu.Unlock()

	q.Time = time.Now()
	l.instants = append(l.instants, q)
}

// Quorum returns every change of every etcd cluster since a time, in order; of each cluster from the instant on at
// which it first had a quorum.
func (f *Firmware) Quorum(since time.Time) []Quorum {
	for f.quorum.reads.Load() > 0 {
		time.Sleep(time.Millisecond)
	}

	f.quorum.mu.Lock()
	defer f.quorum.mu.Unlock()

	return slices.DeleteFunc(slices.Clone(f.quorum.instants), func(q Quorum) bool { return q.Time.Before(since) })
}

// LowestQuorum returns the instant since a time at which an etcd cluster had the lowest margin, the first of them;
// false when nothing changed.
func (f *Firmware) LowestQuorum(since time.Time) (Quorum, bool) {
	var (
		lowest Quorum
		found  bool
	)

	for _, q := range f.Quorum(since) {
		if !found || q.Margin() < lowest.Margin() {
			lowest, found = q, true
		}
	}

	return lowest, found
}
