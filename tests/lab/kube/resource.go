package kube

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
)

// bodyLimit is etcd's limit for one object, doubled.
const bodyLimit = 3 << 20

// resource serves one verb on one kind.
func (s *Server) resource(w http.ResponseWriter, r *http.Request, t target, k *kind, who user, verb, call string,
	sel selector,
) {
	c := s.cfg.Cluster

	switch verb {
	case "get":
		obj, err := c.get(k, t.namespace, t.name)
		s.reply(w, r, k, http.StatusOK, obj, err)
	case "list", "watch":
		if verb == "watch" {
			s.watch(w, r, t, k, sel)
			return
		}

		items, version := c.list(k, t.namespace)
		s.replyList(w, r, k, sel.filter(items), version)
	case "create":
		obj, warning, err := readObject(r, k)
		if err == nil {
			warn(w, warning)

			if err = prepare(k, t, obj); err == nil {
				err = s.admit(who, k, nil, obj)
			}

			if err == nil {
				obj, err = c.create(k, obj, dryRun(r))
			}
		}

		s.reply(w, r, k, http.StatusCreated, obj, err)
	case "update":
		sent, warning, err := readObject(r, k)
		if err == nil {
			err = sameObject(k, t, sent)
		}

		if err != nil {
			writeError(w, err)
			return
		}

		warn(w, warning)

		obj, err := c.update(k, t.namespace, t.name, dryRun(r), func(now runtime.Object) (runtime.Object, error) {
			if is := accessor(now).GetUID(); accessor(sent).GetUID() != "" && accessor(sent).GetUID() != is {
				return nil, apierrors.NewConflict(k.gr(), t.name, fmt.Errorf(
					"Precondition failed: UID in precondition: %v, UID in object meta: %v", accessor(sent).GetUID(), is))
			}

			changed, err := s.admitted(k, t, who, now, sent)
			if err != nil {
				return nil, err
			}

			return managed(r, k, t.sub, now, changed)
		})
		s.reply(w, r, k, http.StatusOK, obj, err)
	case "patch":
		s.patch(w, r, t, k, who)
	case "delete":
		obj, err := s.remove(r, t, k, who)
		if err == nil && !returned[k] && accessor(obj).GetDeletionTimestamp() == nil {
			writeJSON(w, http.StatusOK, deleted(k, accessor(obj)))
			return
		}

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
func (s *Server) remove(r *http.Request, t target, k *kind, who user) (runtime.Object, error) {
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

	if p := options.Preconditions; p != nil {
		is := accessor(obj)

		switch {
		case p.UID != nil && *p.UID != is.GetUID():
			return nil, otherUID(k.name, t.name, *p.UID, is.GetUID())
		case p.ResourceVersion != nil && *p.ResourceVersion != is.GetResourceVersion():
			return nil, apierrors.NewConflict(schema.GroupResource{Group: k.group, Resource: k.name}, t.name, fmt.Errorf(
				"the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). "+
					"The object might have been modified", *p.ResourceVersion, is.GetResourceVersion()))
		}
	}

	if err := nodeDeletes(who, k, obj); err != nil {
		return nil, err
	}

	if dryRun(r) || len(options.DryRun) > 0 {
		return obj, nil
	}

	return s.cfg.Cluster.remove(k, t.namespace, t.name)
}

// otherUID is the answer to who means another object of the name. Its resource is a kind.
func otherUID(kind, name string, meant, is types.UID) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: kind}, name, fmt.Errorf(
		"the UID in the precondition (%s) does not match the UID in record (%s). "+
			"The object might have been deleted and then recreated", meant, is))
}

var deleteOptions = schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}

// admitted is an object as a request makes it, if who asks may do that.
func (s *Server) admitted(k *kind, t target, who user, now, sent runtime.Object) (runtime.Object, error) {
	changed, err := merged(k, t, now, sent)
	if err == nil {
		err = s.admit(who, k, now, changed)
	}

	if err == nil {
		err = changeable(k, now, changed)
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
		if k == nodes {
			a["metadata"] = b["metadata"]
		}

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

func (s *Server) patch(w http.ResponseWriter, r *http.Request, t target, k *kind, who user) {
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
	case types.ApplyYAMLPatchType:
		s.apply(w, r, t, k, who, body)

		return
	default:
		writeError(w, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType,
			Reason: metav1.StatusReasonUnsupportedMediaType, Message: "415: Unsupported Media Type",
			Details: &metav1.StatusDetails{},
		}})

		return
	}

	obj, err := s.cfg.Cluster.update(k, t.namespace, t.name, dryRun(r), func(now runtime.Object) (runtime.Object, error) {
		doc, err := json.Marshal(now)
		if err != nil {
			return nil, err
		}

		if doc, err = apply(doc); err != nil {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", "", 0,
				false)
		}

		sent := k.new()
		if err := json.Unmarshal(doc, sent); err != nil {
			return nil, apierrors.NewInvalid(schema.GroupKind{}, "",
				field.ErrorList{field.Invalid(field.NewPath("patch"), string(doc), err.Error())})
		}

		if accessor(sent).GetUID() != accessor(now).GetUID() {
			return nil, apierrors.NewInvalid(k.gvk().GroupKind(), t.name, field.ErrorList{
				field.Invalid(field.NewPath("metadata", "uid"), accessor(sent).GetUID(), "field is immutable"),
			})
		}

		changed, err := s.admitted(k, t, who, now, sent)
		if err != nil {
			return nil, err
		}

		return managed(r, k, t.sub, now, changed)
	})
	s.reply(w, r, k, http.StatusOK, obj, err)
}

// readObject decodes a body, JSON, YAML or protobuf. Of fields that the kind does not have it warns, unless the request
// wants them refused or ignored.
func readObject(r *http.Request, k *kind) (runtime.Object, string, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, bodyLimit))
	if err != nil {
		return nil, "", apierrors.NewBadRequest(err.Error())
	}

	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if media == "" {
		media = runtime.ContentTypeJSON
	}

	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), media)
	if !ok {
		return nil, "", apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, r.Method, k.gr(), "",
			"unsupported media type "+media, 0, false)
	}

	serializer := info.Serializer
	if info.StrictSerializer != nil {
		serializer = info.StrictSerializer
	}

	gvk := k.gvk()
	wrong := func(kind, why string) error {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %s", kind, gvk.Version,
			gvk.Kind, why))
	}

	obj, got, err := serializer.Decode(body, &gvk, nil)

	strict, isStrict := runtime.AsStrictDecodingError(err)
	validation := r.URL.Query().Get("fieldValidation")

	switch {
	case isStrict && validation != metav1.FieldValidationStrict && obj != nil:
		if validation == metav1.FieldValidationIgnore {
			return obj, "", nil
		}

		return obj, errors.Join(strict.Errors()...).Error(), nil
	case err != nil && got != nil && got.Kind != "":
		return nil, "", wrong(got.Kind, err.Error())
	case err != nil:
		return nil, "", apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v",
			gvk.Kind, err))
	case *got != gvk:
		return nil, "", wrong(got.Kind, fmt.Sprintf("converting (%s.%s) to (%s.%s): unknown conversion", got.Version, got.Kind,
			cmp.Or(gvk.Group, "core"), gvk.Kind))
	default:
		return obj, "", nil
	}
}

// warn adds the warnings of a line each, as Kubernetes does.
func warn(w http.ResponseWriter, warnings string) {
	for text := range strings.SplitSeq(warnings, "\n") {
		if text != "" {
			w.Header().Add("Warning", fmt.Sprintf("299 - %q", text))
		}
	}
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

func selectorOf(r *http.Request, k *kind) (selector, error) {
	q := r.URL.Query()

	l, err := labels.Parse(q.Get("labelSelector"))
	if err != nil {
		return selector{}, err
	}

	f, err := fields.ParseSelector(q.Get("fieldSelector"))
	if err != nil {
		return selector{}, err
	}

	known := fieldsOf(k.new())

	for _, req := range f.Requirements() {
		if _, ok := known[req.Field]; !ok {
			// its words
			return selector{}, fmt.Errorf("field label not supported: %s", req.Field)
		}
	}

	return selector{l, f}, nil
}

// everything selects all.
var everything = selector{labels.Everything(), fields.Everything()}

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
