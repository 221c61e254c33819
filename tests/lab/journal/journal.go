// Package journal is the lab's memory of who asked for what, and the place where faults are planted. Every face enters
// each call before it answers it.
package journal

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"time"
)

// Face names one of the lab's servers.
type Face string

// The faces of the lab.
const (
	Proxmox    Face = "proxmox"
	Talos      Face = "talos"
	Kubernetes Face = "kubernetes"
	Factory    Face = "factory"
	SSH        Face = "ssh"
	// Guest is what a machine's own system asks of the world outside the lab.
	Guest Face = "guest"
	// Mirror is what it asks of servers in its own network, whose names end with .lan.
	Mirror Face = "mirror"
)

// Entry is one call. It holds no bodies: what is written here may be printed.
type Entry struct {
	Time    time.Time
	Face    Face
	Subject string // the node called, or empty
	Call    string // "POST /nodes/pve/qemu" or "/machine.MachineService/Bootstrap"
	Unknown string // why the call was refused as unknown, empty when it is known
	Fault   string // the fault that struck it, empty when none did
}

func (e Entry) String() string {
	s := string(e.Face) + " "
	if e.Subject != "" {
		s += e.Subject + " "
	}

	return s + e.Call
}

// Kind says what a fault does to the call it strikes.
type Kind string

// The kinds of fault that a face carries out.
const (
	// Refuse answers with an error and does nothing: HTTP 500 with Message as reason, gRPC Unavailable, or a command that
	// fails with it.
	Refuse Kind = "refuse"
	// Reset closes the connection before anything is done.
	Reset Kind = "reset"
	// LoseReply does what was asked and closes the connection instead of answering.
	LoseReply Kind = "loseReply"
	// FailTask lets the task that the call starts end with Message as its exit status, nothing done (Proxmox only).
	FailTask Kind = "failTask"
	// FailTaskLate lets the task do its work and then end with Message as its exit status (Proxmox only).
	FailTaskLate Kind = "failTaskLate"
	// Answer answers with Code, Header and Message, and does nothing: what a proxy says, or a server that limits requests.
	// Without a Code it is 200 (Proxmox, Kubernetes and Factory only).
	Answer Kind = "answer"
	// Replace answers as if all were well, with Message instead of the content (Factory only).
	Replace Kind = "replace"
	// Truncate does what was asked and ends the connection in the middle of the content (not for Talos
	// and SSH).
	Truncate Kind = "truncate"
	// Hang begins an answer, says nothing more for a while, and closes the connection. Nothing is done (Proxmox and
	// Kubernetes only).
	Hang Kind = "hang"
	// HangTask lets the task that the call starts do nothing for a while, or until it is stopped, and then its work
	// (Proxmox only).
	HangTask Kind = "hangTask"
	// Stall answers nothing for a while, does nothing, and closes the connection.
	Stall Kind = "stall"
	// Interfere only lets Before happen: the call is answered as the world then is.
	Interfere Kind = "interfere"
)

// Fault is a failure planted in the lab.
type Fault struct {
	Face    Face
	Call    *regexp.Regexp // matched against Entry.Call
	Subject string         // only calls of this subject; empty: any
	Skip    int            // let this many matching calls pass first
	Times   int            // strike this many; 0 means once
	Kind    Kind
	Message string
	// Code and Header are those of an Answer.
	Code   int
	Header http.Header
	// For bounds a Stall, a Hang or a HangTask; 0: until the client gives up, or the task is stopped.
	For time.Duration
	// Before happens first, whatever the kind; nil: nothing does. It gets the call that was struck.
	Before func(Entry)
}

// Hold is how long a Stall lasts: until the client gives up (ctx), the server closes, or its time is over.
func (f *Fault) Hold(ctx context.Context, closing <-chan struct{}) {
	var over <-chan time.Time

	if f.For > 0 {
		timer := time.NewTimer(f.For)
		defer timer.Stop()

		over = timer.C
	}

	select {
	case <-ctx.Done():
	case <-closing:
	case <-over:
	}
}

// Write carries out an Answer.
func (f *Fault) Write(w http.ResponseWriter) {
	maps.Copy(w.Header(), f.Header)
	w.WriteHeader(cmp.Or(f.Code, http.StatusOK))
	_, _ = io.WriteString(w, f.Message)
}

// Journal records calls and holds the planted faults. The zero value is ready to use.
type Journal struct {
	mu      sync.Mutex
	entries []Entry
	faults  []*Fault
	// unrecorded are calls that no real server was asked.
	unrecorded []string
	// ignored is what the lab took and did nothing about.
	ignored []string
}

// Plant adds a fault. Faults strike in the order they were planted, one per call.
func (j *Journal) Plant(f Fault) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if f.Times == 0 {
		f.Times = 1
	}
	j.faults = append(j.faults, &f)
}

// Clear takes away the faults that have not struck yet.
func (j *Journal) Clear() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.faults = nil
}

// Enter records a call and returns the fault that strikes it, or nil.
func (j *Journal) Enter(face Face, subject, call string) *Fault {
	entry, struck := j.enter(face, subject, call)

	if struck != nil && struck.Before != nil {
		struck.Before(entry)
	}

	return struck
}

func (j *Journal) enter(face Face, subject, call string) (Entry, *Fault) {
	j.mu.Lock()
	defer j.mu.Unlock()

	e := Entry{Time: time.Now(), Face: face, Subject: subject, Call: call}

	var struck *Fault

	for _, f := range j.faults {
		if f.Times == 0 || f.Face != face || (f.Subject != "" && f.Subject != subject) || !f.Call.MatchString(call) {
			continue
		}

		if f.Skip > 0 {
			f.Skip--
			continue
		}

		f.Times--
		e.Fault = string(f.Kind)
		copied := *f
		struck = &copied

		break
	}

	j.entries = append(j.entries, e)

	return e, struck
}

// Refused records a call that the lab does not know. Any such call fails the run: the lab has no default answers.
func (j *Journal) Refused(face Face, subject, call, why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, Entry{Time: time.Now(), Face: face, Subject: subject, Call: call, Unknown: why})
}

// Entries returns all calls so far, in order.
func (j *Journal) Entries() []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()

	return append([]Entry(nil), j.entries...)
}

// Unknown returns an error that lists the calls the lab refused because it does not know them, nil when there are none
// or only excepted ones.
func (j *Journal) Unknown(except ...func(Entry) bool) error {
	var text string

	for _, e := range j.Entries() {
		if e.Unknown != "" && !slices.ContainsFunc(except, func(f func(Entry) bool) bool { return f(e) }) {
			text += fmt.Sprintf("\n  %s: %s", e, e.Unknown)
		}
	}

	if text == "" {
		return nil
	}

	return fmt.Errorf("the lab was asked for what it does not know:%s", text)
}

// NoteUnrecorded notes a call that no real server was asked when the lab was compared with it: nothing holds the lab's
// answer.
func (j *Journal) NoteUnrecorded(call string) {
	j.mu.Lock()
	defer j.mu.Unlock()

	if !slices.Contains(j.unrecorded, call) {
		j.unrecorded = append(j.unrecorded, call)
	}
}

// Unrecorded are the calls, by their routes and the parameters that are new, that no real server was asked.
func (j *Journal) Unrecorded() []string {
	j.mu.Lock()
	defer j.mu.Unlock()

	return slices.Sorted(slices.Values(j.unrecorded))
}

// Ignore notes what the lab took as the real one would, and did nothing about.
func (j *Journal) Ignore(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()

	if !slices.Contains(j.ignored, what) {
		j.ignored = append(j.ignored, what)
	}
}

// Ignored is what the lab took and did nothing about: what a run says of it, it has not shown.
func (j *Journal) Ignored() []string {
	j.mu.Lock()
	defer j.mu.Unlock()

	return slices.Sorted(slices.Values(j.ignored))
}
