package kube

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// fieldsOf returns the fields of an object that a field selector may name.
func fieldsOf(obj runtime.Object) fields.Set {
	m := accessor(obj)
	set := fields.Set{"metadata.name": m.GetName(), "metadata.namespace": m.GetNamespace()}

	switch o := obj.(type) {
	case *corev1.Pod:
		set["spec.nodeName"], set["status.phase"] = o.Spec.NodeName, string(o.Status.Phase)
	case *corev1.Node:
		set["spec.unschedulable"] = strconv.FormatBool(o.Spec.Unschedulable)
	case *corev1.Secret:
		set["type"] = string(o.Type)
	}

	return set
}

// watch streams changes. Without a version it begins with what is there.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, t target, k *kind, sel selector) {
	if t.name != "" {
		sel.fields = fields.AndSelectors(sel.fields, fields.OneTermEqualSelector("metadata.name", t.name))
	}

	q := r.URL.Query()
	asTable := wantsTable(r)
	enc := json.NewEncoder(w)
	flush := http.NewResponseController(w).Flush

	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)

	send := func(event watch.EventType, obj runtime.Object) bool {
		var doc any

		if asTable {
			doc = table(k, []runtime.Object{obj}, accessor(obj).GetResourceVersion(), r)
		} else {
			var err error
			if doc, err = jsonOf(k, obj); err != nil {
				return false
			}
		}

		return enc.Encode(map[string]any{"type": event, "object": doc}) == nil && flush() == nil
	}

	version, err := strconv.ParseUint(q.Get("resourceVersion"), 10, 64)
	if err != nil || version == 0 {
		var items []runtime.Object

		items, version = s.cfg.Cluster.list(k, t.namespace)
		for _, obj := range sel.filter(items) {
			if !send(watch.Added, obj) {
				return
			}
		}

		if q.Get("sendInitialEvents") == "true" {
			mark := k.new()
			accessor(mark).SetResourceVersion(strconv.FormatUint(version, 10))
			accessor(mark).SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})

			if !send(watch.Bookmark, mark) {
				return
			}
		}
	}

	_ = flush()

	var timeout <-chan time.Time

	if seconds, err := strconv.Atoi(q.Get("timeoutSeconds")); err == nil && seconds > 0 {
		timer := time.NewTimer(time.Duration(seconds) * time.Second)
		defer timer.Stop()

		timeout = timer.C
	}

	for {
		changes, reached, next, ok := s.cfg.Cluster.since(k, version)
		if !ok {
			_ = enc.Encode(map[string]any{"type": watch.Error, "object": metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
				Status:   metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired,
				Message: "too old resource version",
			}})

			return
		}

		version = reached

		for _, e := range changes {
			if t.namespace != "" && accessor(e.object).GetNamespace() != t.namespace {
				continue
			}

			if event, obj := e.as(sel); event != "" && !send(event, obj) {
				return
			}
		}

		select {
		case <-next:
		case <-timeout:
			return
		case <-s.done:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// as translates a change into what a watch with the selector sees: an object that begins to match is added to it, one
// that ceases to match is deleted from it.
func (e change) as(sel selector) (watch.EventType, runtime.Object) {
	before := e.before != nil && sel.match(e.before)
	after := e.event != watch.Deleted && sel.match(e.object)

	switch {
	case after && before:
		return watch.Modified, e.object
	case after:
		return watch.Added, e.object
	case before:
		return watch.Deleted, e.object
	default:
		return "", nil
	}
}
