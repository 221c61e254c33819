package kube

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
)

// bodyLimit is etcd's limit for one object, doubled.
const bodyLimit = 3 << 20

// resource serves one verb on one kind.
func (s *Server) resource(w http.ResponseWriter, r *http.Request, t target, k *kind, who user, verb, call string) {
	c := s.cfg.Cluster

	switch verb {
	case "get":
		obj, err := c.get(k, t.namespace, t.name)
		s.reply(w, r, k, http.StatusOK, obj, err)
	case "list", "watch":
		sel, err := selectorOf(r)
		if err != nil {
			writeError(w, apierrors.NewBadRequest(err.Error()))
			return
		}

		if verb == "watch" {
			s.watch(w, r, t, k, sel)
			return
		}

		items, version := c.list(k, t.namespace)
		s.replyList(w, r, k, sel.filter(items), version)
	case "create":
		obj, err := readObject(r, k)
		if err == nil {
			if k.namespaced {
				accessor(obj).SetNamespace(t.namespace)
			}

			err = nodeRestriction(who, nil, obj)
			if err == nil && !dryRun(r) {
				obj, err = c.create(k, obj)
			}
		}

		s.reply(w, r, k, http.StatusCreated, obj, err)
	case "update":
		sent, err := readObject(r, k)
		if err != nil {
			writeError(w, err)
			return
		}

		obj, err := c.update(k, t.namespace, t.name, dryRun(r),
			func(now runtime.Object) (runtime.Object, error) { return admitted(k, t, who, now, sent) })
		s.reply(w, r, k, http.StatusOK, obj, err)
	case "patch":
		s.patch(w, r, t, k, who, call)
	case "delete":
		obj, err := s.remove(r, t, k)
		s.reply(w, r, k, http.StatusOK, obj, err)
	case "deletecollection":
		s.refuse(w, call, "the lab's API server does not delete collections")
	default:
		writeError(w, apierrors.NewMethodNotSupported(k.gr(), verb))
	}
}

func dryRun(r *http.Request) bool { return r.URL.Query().Has("dryRun") }

// remove deletes an object as far as the options in the body want it: not at all in a dry run, and not when it is
// another one by now.
func (s *Server) remove(r *http.Request, t target, k *kind) (runtime.Object, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, bodyLimit))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	var options metav1.DeleteOptions

	if len(body) > 0 {
		decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, &deleteOptions, &options)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}

		if o, ok := decoded.(*metav1.DeleteOptions); ok {
			options = *o
		}
	}

	obj, err := s.cfg.Cluster.get(k, t.namespace, t.name)
	if err != nil {
		return nil, err
	}

	if p := options.Preconditions; p != nil && p.UID != nil && *p.UID != accessor(obj).GetUID() {
		return nil, apierrors.NewConflict(k.gr(), t.name, fmt.Errorf(
			"Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, accessor(obj).GetUID()))
	}

	if dryRun(r) || len(options.DryRun) > 0 {
		return obj, nil
	}

	return s.cfg.Cluster.remove(k, t.namespace, t.name)
}

var deleteOptions = schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}

// admitted is an object as a request makes it, if who asks may do that.
func admitted(k *kind, t target, who user, now, sent runtime.Object) (runtime.Object, error) {
	changed, err := merged(k, t, now, sent)
	if err == nil {
		err = nodeRestriction(who, now, changed)
	}

	return changed, err
}

// merged keeps the half of an object that a request does not address: its status, or everything but its status.
func merged(k *kind, t target, now, sent runtime.Object) (runtime.Object, error) {
	if !k.status {
		return sent, nil
	}

	a, err := jsonOf(k, now)
	if err != nil {
		return nil, err
	}

	b, err := jsonOf(k, sent)
	if err != nil {
		return nil, err
	}

	if t.sub == "status" {
		a["status"] = b["status"]
		b = a
	} else {
		b["status"] = a["status"]
	}

	raw, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}

	out := k.new()

	return out, json.Unmarshal(raw, out)
}

func (s *Server) patch(w http.ResponseWriter, r *http.Request, t target, k *kind, who user, call string) {
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))

	body, err := io.ReadAll(io.LimitReader(r.Body, bodyLimit))
	if err != nil {
		writeError(w, apierrors.NewBadRequest(err.Error()))
		return
	}

	var apply func(doc []byte) ([]byte, error)

	switch types.PatchType(media) {
	case types.JSONPatchType:
		apply = func(doc []byte) ([]byte, error) {
			p, err := jsonpatch.DecodePatch(body)
			if err != nil {
				return nil, err
			}

			return p.Apply(doc)
		}
	case types.MergePatchType:
		apply = func(doc []byte) ([]byte, error) { return jsonpatch.MergePatch(doc, body) }
	case types.StrategicMergePatchType:
		apply = func(doc []byte) ([]byte, error) { return strategicpatch.StrategicMergePatch(doc, body, k.new()) }
	default:
		s.refuse(w, call, "the lab's API server does not know patches of type "+media)
		return
	}

	obj, err := s.cfg.Cluster.update(k, t.namespace, t.name, dryRun(r), func(now runtime.Object) (runtime.Object, error) {
		doc, err := json.Marshal(now)
		if err != nil {
			return nil, err
		}

		if doc, err = apply(doc); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}

		sent := k.new()
		if err := json.Unmarshal(doc, sent); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}

		return admitted(k, t, who, now, sent)
	})
	s.reply(w, r, k, http.StatusOK, obj, err)
}

// readObject decodes a body, JSON, YAML or protobuf. Fields that the kind does not have are an error.
func readObject(r *http.Request, k *kind) (runtime.Object, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, bodyLimit))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if media == "" {
		media = runtime.ContentTypeJSON
	}

	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), media)
	if !ok {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, r.Method, k.gr(), "",
			"unsupported media type "+media, 0, false)
	}

	serializer := info.Serializer
	if info.StrictSerializer != nil {
		serializer = info.StrictSerializer
	}

	gvk := k.gvk()

	obj, got, err := serializer.Decode(body, &gvk, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	if *got != gvk {
		return nil, apierrors.NewBadRequest("the object is a " + got.String() + ", not a " + gvk.String())
	}

	return obj, nil
}

// reply answers with one object, or an error.
func (s *Server) reply(w http.ResponseWriter, r *http.Request, k *kind, code int, obj runtime.Object, err error) {
	if err != nil {
		writeError(w, err)
		return
	}

	if wantsTable(r) {
		writeJSON(w, code, table(k, []runtime.Object{obj}, "", r))
		return
	}

	doc, err := jsonOf(k, obj)
	if err != nil {
		writeError(w, err)
		return
	}

	writeJSON(w, code, doc)
}

func (s *Server) replyList(w http.ResponseWriter, r *http.Request, k *kind, items []runtime.Object, version uint64) {
	v := strconv.FormatUint(version, 10)
	if wantsTable(r) {
		writeJSON(w, http.StatusOK, table(k, items, v, r))
		return
	}

	docs := make([]any, 0, len(items))
	for _, obj := range items {
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // items of a list carry none
		docs = append(docs, obj)
	}

	writeJSON(w, http.StatusOK, map[string]any{
		"kind": k.name + "List", "apiVersion": k.gvk().GroupVersion().String(),
		"metadata": metav1.ListMeta{ResourceVersion: v}, "items": docs,
	})
}

// selector is what a list or watch asks for.
type selector struct {
	labels labels.Selector
	fields fields.Selector
}

func selectorOf(r *http.Request) (selector, error) {
	q := r.URL.Query()

	l, err := labels.Parse(q.Get("labelSelector"))
	if err != nil {
		return selector{}, err
	}

	f, err := fields.ParseSelector(q.Get("fieldSelector"))

	return selector{l, f}, err
}

func (s selector) match(obj runtime.Object) bool {
	return s.labels.Matches(labels.Set(accessor(obj).GetLabels())) && s.fields.Matches(fieldsOf(obj))
}

func (s selector) filter(items []runtime.Object) []runtime.Object {
	var out []runtime.Object

	for _, obj := range items {
		if s.match(obj) {
			out = append(out, obj)
		}
	}

	return out
}
