package talos

import (
	"slices"
	"strings"
	"sync"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// services is the table of what Talos runs by itself.
type services struct {
	node *node

	mu  sync.Mutex
	all map[string]*service
}

// service is one of them.
type service struct {
	id     string
	state  string
	events []*machineapi.ServiceEvent
	// health tells why the service is not healthy, empty when it is; nil when its health is not known.
	health func() string
	seen   string // the health last announced
	since  time.Time
}

// The states of a service.
const (
	statePreparing = "Preparing"
	stateRunning   = "Running"
	stateFinished  = "Finished"
	stateFailed    = "Failed"
)

// maxServiceEvents is how many events Talos keeps of each service.
const maxServiceEvents = 64

func newServices(n *node) *services { return &services{node: n, all: map[string]*service{}} }

// set moves a service to a state, adding it to the table when it is new.
func (s *services) set(id, state, message string, health func() string) {
	s.mu.Lock()

	svc := s.all[id]
	if svc == nil {
		svc = &service{id: id}
		s.all[id] = svc
	}

	changed := svc.state != state || len(svc.events) == 0 || svc.events[len(svc.events)-1].GetMsg() != message
	svc.state, svc.health = state, health

	if changed {
		svc.since = time.Now()
		svc.event(state, message)
	}
	s.mu.Unlock()

	if changed {
		s.node.events.add("", &machineapi.ServiceStateEvent{
			Service: id, Action: machineapi.ServiceStateEvent_Action(
				machineapi.ServiceStateEvent_Action_value[strings.ToUpper(state)]), Message: message,
		})
		s.node.kick.notify()
	}
}

func (svc *service) event(state, message string) {
	svc.events = append(svc.events, &machineapi.ServiceEvent{Msg: message, State: state, Ts: timestamppb.Now()})
	if len(svc.events) > maxServiceEvents {
		svc.events = svc.events[1:]
	}
}

// start sets services running that have nothing else to tell.
func (s *services) start(ids ...string) {
	for _, id := range ids {
		s.set(id, stateRunning, "Started task "+id, healthy)
	}
}

func healthy() string { return "" }

// running tells whether a service runs, whatever its health.
func (s *services) running(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.all[id] != nil && s.all[id].state == stateRunning
}

// known tells whether a service has been begun at all.
func (s *services) known(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.all[id] != nil
}

// serviceInfo is a service as it is now.
type serviceInfo struct {
	id, state string
	known     bool   // whether the health is known
	problem   string // why it is not healthy
	events    []*machineapi.ServiceEvent
	since     time.Time
}

func (i serviceInfo) healthy() bool { return i.state == stateRunning && i.known && i.problem == "" }

// list returns all services, by name.
func (s *services) list() []serviceInfo {
	s.mu.Lock()
	out := make([]serviceInfo, 0, len(s.all))
	checks := make([]func() string, 0, len(s.all))

	for _, svc := range s.all {
		out = append(out, serviceInfo{id: svc.id, state: svc.state, events: slices.Clone(svc.events), since: svc.since})
		checks = append(checks, svc.health)
	}
	s.mu.Unlock()

	// the checks look elsewhere: never under the lock
	for i, check := range checks {
		if out[i].state == stateRunning && check != nil {
			out[i].known, out[i].problem = true, check()
		}
	}

	slices.SortFunc(out, func(a, b serviceInfo) int { return strings.Compare(a.id, b.id) })

	return out
}

// note records changes of health in the services' own events, as Talos does.
func (s *services) note(list []serviceInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, info := range list {
		svc, now := s.all[info.id], ""

		switch {
		case info.healthy():
			now = "Health check successful"
		case info.known:
			now = "Health check failed: " + info.problem
		}

		if now != "" && now != svc.seen {
			svc.event(info.state, now)
		}

		svc.seen = now
	}
}

func (i serviceInfo) proto() *machineapi.ServiceInfo {
	return &machineapi.ServiceInfo{
		Id: i.id, State: i.state,
		Events: &machineapi.ServiceEvents{Events: i.events},
		Health: &machineapi.ServiceHealth{
			Unknown: !i.known, Healthy: i.healthy(), LastMessage: i.problem, LastChange: timestamppb.New(i.since),
		},
	}
}
