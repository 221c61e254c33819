package placement

import "container/heap"

// slots is the queue of the hosts' next slots, interleaved: the host with the fewest workers first, of those the first
// in the order of the configuration.
type slots struct {
	hosts []host
	queue []int // hosts
	place []int // of each host in the queue; -1 when it is not there
}

func newSlots(hosts []host) *slots {
	s := &slots{hosts: hosts, queue: make([]int, len(hosts)), place: make([]int, len(hosts))}
	for i := range hosts {
		s.queue[i], s.place[i] = i, i
	}

	heap.Init(s)

	return s
}

// first is the host of the next slot.
func (s *slots) first() int { return s.queue[0] }

// taken tells that a host has another worker.
func (s *slots) taken(host int) {
	if at := s.place[host]; at >= 0 {
		heap.Fix(s, at)
	}
}

func (s *slots) remove(host int) { heap.Remove(s, s.place[host]) }

func (s *slots) add(host int) { heap.Push(s, host) }

// Len, Less, Swap, Push and Pop are for package heap.
func (s *slots) Len() int { return len(s.queue) }

func (s *slots) Less(i, j int) bool {
	a, b := s.queue[i], s.queue[j]
	if s.hosts[a].workers != s.hosts[b].workers {
		return s.hosts[a].workers < s.hosts[b].workers
	}

	return a < b
}

func (s *slots) Swap(i, j int) {
	s.queue[i], s.queue[j] = s.queue[j], s.queue[i]
	s.place[s.queue[i]], s.place[s.queue[j]] = i, j
}

func (s *slots) Push(host any) {
	s.place[host.(int)] = len(s.queue)
	s.queue = append(s.queue, host.(int))
}

func (s *slots) Pop() any {
	last := s.queue[len(s.queue)-1]
	s.queue, s.place[last] = s.queue[:len(s.queue)-1], -1

	return last
}
