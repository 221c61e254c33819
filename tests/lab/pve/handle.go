package pve

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/world"
)

// ServeHTTP takes a call through what every call goes through: the journal and its faults, authentication, privileges,
// parameters.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.timeline.Touch()

	path, ok := apiPath(r)
	call := r.Method + " " + path

	defer func() {
		if p := recover(); p != nil {
			s.refuse(w, call, fmt.Sprintf("the lab panicked: %v", p))
		}
	}()

	route, vars := s.match(s.world.Version(), r.Method, path)
	if !ok || route == nil {
		s.refuse(w, call, fmt.Sprintf("Method '%s' not implemented", call))

		return
	}

	fault := s.journal.Enter(journal.Proxmox, "", call)

	// The whole body is read before anything is answered: a connection that is closed on unread data takes the answer with
	// it.
	body, file, err := readBody(r)
	if err != nil {
		reset(w)

		return
	}

	if s.strike(w, r, fault) {
		return
	}

	data, err := s.answer(route, &request{world: s.world, vars: vars, file: file}, r, body, fault)

	var unknown unknownError

	switch {
	case errors.As(err, &unknown):
		s.refuse(w, call, unknown.Error())
	case fault != nil && fault.Kind == journal.LoseReply:
		reset(w)
	case fault != nil && fault.Kind == journal.Truncate && err == nil:
		replyHalf(w, data)
	default:
		reply(w, data, err)
	}
}

// readBody reads the parameters in a body, and the file that comes with them.
func readBody(r *http.Request) ([]byte, *world.UploadedFile, error) {
	if strings.HasPrefix(r.Header.Get("Content-Type"), multipartForm) {
		return readForm(r)
	}

	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))

	return body, nil, err
}

var apiPrefix = regexp.MustCompile(`^/api2/json(/.*?)/?$`)

// apiPath is the path of a call below the API, without the slash that some clients put at its end. Escapes are kept: a
// volume's id may have a slash of its own.
func apiPath(r *http.Request) (string, bool) {
	m := apiPrefix.FindStringSubmatch(r.URL.EscapedPath())
	if m == nil {
		return r.URL.EscapedPath(), false
	}

	return m[1], true
}

// unknownError is a call that the lab does not know, which is never the client's mistake alone.
type unknownError struct{ error }

func (s *Server) refuse(w http.ResponseWriter, call, why string) {
	s.journal.Refused(journal.Proxmox, "", call, why)
	reply(w, nil, &world.Error{Code: http.StatusNotImplemented, Reason: why})
}

// strike carries out the faults that come before a call is answered.
func (s *Server) strike(w http.ResponseWriter, r *http.Request, f *journal.Fault) bool {
	if f == nil {
		return false
	}

	switch f.Kind {
	case journal.Refuse:
		reply(w, nil, &world.Error{Code: http.StatusInternalServerError, Reason: f.Message})
	case journal.Reset:
		reset(w)
	case journal.Answer:
		f.Write(w)
	case journal.Hang:
		replyHalf(&held{w, func() { f.Hold(r.Context(), s.closing.Done()) }}, nil)
	case journal.Stall:
		f.Hold(r.Context(), s.closing.Done())
		reset(w)
	default: // the call is carried out
		return false
	}

	return true
}

// request is one call that a route answers.
type request struct {
	world  *world.World
	caller world.Caller
	vars   map[string]string
	values values
	// file is what was sent with the parameters, nil where none was.
	file *world.UploadedFile
}

func (s *Server) answer(rt *route, req *request, r *http.Request, body []byte, f *journal.Fault) (any, error) {
	if !rt.open {
		id, err := s.authenticate(r)
		if err != nil {
			return nil, err
		}

		req.caller.ID = id
	}

	switch {
	case f == nil:
	case f.Kind == journal.FailTask || f.Kind == journal.FailTaskLate:
		req.caller.Task = &world.TaskFault{Message: f.Message, Late: f.Kind == journal.FailTaskLate}
	case f.Kind == journal.HangTask:
		req.caller.Task = &world.TaskFault{Hang: cmp.Or(f.For, forever)}
	}

	if len(body) > 0 && r.Method != http.MethodPut && r.Method != http.MethodPost {
		return nil, &world.Error{
			Code: http.StatusNotImplemented, Reason: fmt.Sprintf("Unexpected content for method '%s'", r.Method),
		}
	}

	values, err := read(r, body)
	if err != nil {
		return nil, err
	}

	s.noteUnrecorded(rt, values)

	if req.values, err = rt.params.check(values); err != nil {
		return nil, err
	}

	s.noteUnplayed(req.values)

	if path := rt.needs.on(req); path != "" {
		if err := s.world.Require(req.caller, path, rt.needs.any...); err != nil {
			return nil, err
		}
	}

	if host := req.vars["node"]; host != "" {
		if err := s.world.Reach(host); err != nil {
			return nil, err
		}
	}

	if rt.needsQuorum() && !s.world.Quorate() {
		return nil, &world.Error{Code: http.StatusInternalServerError, Reason: "cluster not ready - no quorum?"}
	}

	return rt.handle(req)
}

// noteUnrecorded notes a request that no real server of this version was asked, or not with all of its parameters.
func (s *Server) noteUnrecorded(rt *route, values values) {
	recorded, is := s.recorded[s.world.Version()][rt.String()]

	var unknown []string

	for name := range values.Values {
		if is && !recorded[unnumbered(name)] {
			unknown = append(unknown, name)
		}
	}

	slices.Sort(unknown)

	switch {
	case !is:
		s.journal.NoteUnrecorded(rt.String())
	case len(unknown) > 0:
		s.journal.NoteUnrecorded(rt.String() + "?" + strings.Join(unknown, "&"))
	}
}

// noteUnplayed notes the settings of VMs that the lab keeps and does nothing about.
func (s *Server) noteUnplayed(values values) {
	for name, value := range values.config() {
		if world.Unplayed(name) && value != "" && value != "0" {
			s.journal.Ignore("the setting " + name + " of VMs")
		}
	}
}

// forever is longer than anything runs.
const forever = 24 * time.Hour

// local matches the calls that change nothing in the files of the cluster.
var local = regexp.MustCompile(`^(/access/ticket|.*/(agent/.*|status/(stop|shutdown|reboot|reset)|tasks/{upid}))$`)

// needsQuorum says whether the call writes files of the cluster, which are read-only without quorum.
func (rt *route) needsQuorum() bool {
	return rt.method != http.MethodGet && !local.MatchString(rt.path)
}
