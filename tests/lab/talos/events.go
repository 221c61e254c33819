package talos

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// eventLog is what a node tells those that watch it: sequences, tasks, services, its status.
type eventLog struct {
	mu      sync.Mutex
	next    int
	entries []logged
	changed *signal
}

type logged struct {
	at    time.Time
	event *machineapi.Event
}

// maxEvents is how far a watcher can look back (Talos: constants.EventsBufferSize is of that order).
const maxEvents = 1000

func newEventLog() *eventLog { return &eventLog{changed: newSignal()} }

func (l *eventLog) add(actor string, payload proto.Message) {
	value, err := proto.Marshal(payload)
	if err != nil {
		panic(err) // a message of our own making
	}

	l.mu.Lock()
	l.next++
	l.entries = append(l.entries, logged{time.Now(), &machineapi.Event{
		Data:    &anypb.Any{TypeUrl: "talos/runtime/" + string(payload.ProtoReflect().Descriptor().FullName()), Value: value},
		Id:      fmt.Sprintf("%020d", l.next),
		ActorId: actor,
	}})

	if len(l.entries) > maxEvents {
		l.entries = l.entries[len(l.entries)-maxEvents:]
	}
	l.mu.Unlock()

	l.changed.notify()
}

// after returns the events that came after an id.
func (l *eventLog) after(id string) []*machineapi.Event {
	l.mu.Lock()
	defer l.mu.Unlock()

	var out []*machineapi.Event

	for _, e := range l.entries {
		if e.event.GetId() > id {
			out = append(out, e.event)
		}
	}

	return out
}

// start returns the id after which a watch begins: by default the newest one, else as far back as it asks for.
func (l *eventLog) start(req *machineapi.EventsRequest) string {
	l.mu.Lock()
	defer l.mu.Unlock()

	i := len(l.entries)

	switch {
	case req.GetTailId() != "":
		return req.GetTailId()
	case req.GetTailSeconds() > 0:
		since := time.Now().Add(-time.Duration(req.GetTailSeconds()) * time.Second)
		i = slices.IndexFunc(l.entries, func(e logged) bool { return e.at.After(since) })
		if i < 0 {
			i = len(l.entries)
		}
	case req.GetTailEvents() < 0:
		i = 0
	case req.GetTailEvents() > 0:
		i = max(0, len(l.entries)-int(req.GetTailEvents()))
	}

	if i == 0 {
		return ""
	}

	return l.entries[i-1].event.GetId()
}

// Events streams the log. The first message is empty: it tells the client that the watch has begun.
func (s *machined) Events(req *machineapi.EventsRequest, stream machineapi.MachineService_EventsServer) error {
	log := s.node.events
	last := log.start(req)

	if err := stream.Send(&machineapi.Event{
		Data: &anypb.Any{}, Id: fmt.Sprintf("%020d", 0),
		ActorId: req.GetWithActorId(),
	}); err != nil {
		return err
	}

	for closing := false; ; {
		changed := log.changed.next()

		for _, e := range log.after(last) {
			last = e.GetId()

			if req.GetWithActorId() != "" && e.GetActorId() != req.GetWithActorId() {
				continue
			}

			if err := stream.Send(e); err != nil {
				return err
			}
		}

		if closing {
			return nil
		}

		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-s.node.closing:
			closing = true // once more: the last events may be there already
		case <-s.node.ctx.Done():
			return nil
		}
	}
}

// announce tells of a sequence.
func (n *node) announce(sequence, actor string, action machineapi.SequenceEvent_Action) {
	n.events.add(actor, &machineapi.SequenceEvent{Sequence: sequence, Action: action})
}

// fatal tells of a sequence that failed.
func (n *node) fatal(c command, err error) {
	n.events.add(c.actor, &machineapi.SequenceEvent{
		Sequence: c.sequence, Action: machineapi.SequenceEvent_NOOP,
		Error: &common.Error{Code: common.Code_FATAL, Message: "sequence failed: " + err.Error()},
	})
	n.setStage(StageRebooting)
}

// task tells of a task that is done at once.
func (n *node) task(name, actor string) {
	n.events.add(actor, &machineapi.TaskEvent{Task: name, Action: machineapi.TaskEvent_START})
	n.events.add(actor, &machineapi.TaskEvent{Task: name, Action: machineapi.TaskEvent_STOP})
}
