package kube

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"talos-proxmox/tests/lab/journal"
)

// target is what a path of the resource API names.
type target struct {
	group, version      string
	namespace, resource string
	name, sub           string
}

// parse reads /api/v1/... and /apis/group/version/... paths.
func parse(path string) (target, bool) {
	p := strings.Split(strings.Trim(path, "/"), "/")

	var t target

	switch {
	case len(p) >= 3 && p[0] == "api":
		t.version, p = p[1], p[2:]
	case len(p) >= 4 && p[0] == "apis":
		t.group, t.version, p = p[1], p[2], p[3:]
	default:
		return t, false
	}

	// a namespace by itself, its status and its finalizers are the resource, not the scope
	if len(p) >= 3 && p[0] == "namespaces" && (len(p) > 3 || p[2] != "status" && p[2] != "finalize") {
		t.namespace, p = p[1], p[2:]
	}

	t.resource = p[0]
	if len(p) > 1 {
		t.name = p[1]
	}

	if len(p) > 2 {
		t.sub = strings.Join(p[2:], "/")
	}

	return t, true
}

// answer serves a request that no fault has struck.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, who user, authErr error, call string) {
	if s.cfg.Backend != nil {
		// The version is that of the control plane that the lab plays.
		if authErr != nil || !(r.URL.Path == "/version" && s.describe(w, r, call)) {
			s.cfg.Backend.ServeHTTP(w, r)
		}

		return
	}

	if authErr != nil {
		writeError(w, authErr)
		return
	}

	healthy := s.cfg.Healthy()

	switch path := r.URL.Path; {
	case path == "/readyz" || path == "/healthz" || path == "/livez":
		s.health(w, path, healthy, r.URL.Query().Has("verbose"))
		return
	case healthy != nil:
		writeError(w, apierrors.NewInternalError(healthy))
		return
	case s.describe(w, r, call), s.review(w, r, who):
		return
	}

	t, ok := parse(r.URL.Path)
	if !ok {
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	}

	k := kindOf(t.group, t.version, t.resource)

	switch {
	case k == nil && servedElsewhere[schema.GroupResource{Group: t.group, Resource: t.resource}]:
		s.refuse(w, call, "the lab's API server does not have "+t.resource)
		return
	case k == nil:
		if !writeUnknown(w, t.group) {
			http.Error(w, "404 page not found", http.StatusNotFound)
		}

		return
	case k == pods && t.sub == evictionResource:
		if err := s.authorize(who, "create", k, t, everything); err != nil {
			writeError(w, err)
			return
		}

		if err := s.writable("create"); err != nil {
			writeError(w, err)
			return
		}

		s.evict(w, r, t, who)

		return
	case t.sub != "" && (t.sub != "status" || !k.status):
		s.refuse(w, call, "the lab's API server does not have the subresource "+t.sub)
		return
	}

	verb := verbOf(r, t)

	sel, selErr := selectorOf(r, k)
	if selErr != nil {
		sel = everything // who may not ask is told that first
	}

	if err := s.authorize(who, verb, k, t, sel); err != nil {
		writeError(w, err)
		return
	}

	if err := misused(r, verb, t, selErr); err != nil {
		writeError(w, err)
		return
	}

	if err := s.writable(verb); err != nil {
		writeError(w, err)
		return
	}

	s.resource(w, r, t, k, who, verb, call, sel)
}

// writable tells why etcd does not take a request.
func (s *Server) writable(verb string) error {
	deletes := verb == "delete"
	if s.cfg.Writable == nil || !deletes && !slices.Contains([]string{"create", "update", "patch"}, verb) {
		return nil
	}

	return s.cfg.Writable(deletes)
}

// refuse answers what a real API server would do and this one cannot.
func (s *Server) refuse(w http.ResponseWriter, call, why string) {
	s.cfg.Journal.Refused(journal.Kubernetes, s.cfg.Node, call, why)
	writeError(w, &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotImplemented, Reason: "NotImplemented", Message: why,
	}})
}

// health answers /readyz and its relatives in the way of the real ones.
func (s *Server) health(w http.ResponseWriter, path string, etcd error, verbose bool) {
	name := strings.TrimPrefix(path, "/")

	if etcd == nil && !verbose {
		_, _ = fmt.Fprint(w, "ok")
		return
	}

	text, verdict := "[+]ping ok\n[+]log ok\n", "passed"

	if etcd == nil {
		text += "[+]etcd ok\n"
	} else {
		text, verdict = text+"[-]etcd failed: reason withheld\n", "failed"

		w.WriteHeader(http.StatusInternalServerError)
	}

	_, _ = fmt.Fprintf(w, "%s%s check %s\n", text, name, verdict)
}

func verbOf(r *http.Request, t target) string {
	switch r.Method {
	case http.MethodGet:
		watching := r.URL.Query().Get("watch")

		switch {
		case watching == "true" || watching == "1":
			return "watch"
		case t.name == "":
			return "list"
		default:
			return "get"
		}
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if t.name == "" {
			return "deletecollection"
		}

		return "delete"
	default:
		return strings.ToLower(r.Method)
	}
}
