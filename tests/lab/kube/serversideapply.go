package kube

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// converter knows the fields of all kinds.
var converter = sync.OnceValue(func() managedfields.TypeConverter {
	return applyconfigurations.NewTypeConverter(scheme.Scheme)
})

// fieldManager is the API server's own way to tell who has set which field of a kind.
func (k *kind) fieldManager(sub string) (*managedfields.FieldManager, error) {
	return managedfields.NewDefaultFieldManager(converter(), scheme.Scheme, noDefaults{}, scheme.Scheme, k.gvk(),
		k.gvk().GroupVersion(), sub, nil)
}

// noDefaults: they are filled in when an object is stored.
type noDefaults struct{}

func (noDefaults) Default(runtime.Object) {}

// managerOf is who a request says that it is.
func managerOf(r *http.Request) string {
	agent, _, _ := strings.Cut(r.UserAgent(), "/")

	return cmp.Or(r.URL.Query().Get("fieldManager"), agent, "unknown")
}

// managed notes who has changed which fields of an object. The fields of one that was never applied have no managers:
// the library calls them "before-first-apply" then.
func managed(r *http.Request, k *kind, sub string, now, changed runtime.Object) (runtime.Object, error) {
	if len(accessor(now).GetManagedFields()) == 0 {
		return changed, nil
	}

	m, err := k.fieldManager(sub)
	if err != nil {
		return nil, err
	}

	return m.Update(typed(k, now), typed(k, changed), managerOf(r))
}

// typed is an object that says what it is.
func typed(k *kind, obj runtime.Object) runtime.Object {
	obj.GetObjectKind().SetGroupVersionKind(k.gvk())

	return obj
}

// apply applies a document to an object that may be there or not.
func (s *Server) apply(w http.ResponseWriter, r *http.Request, t target, k *kind, who user, body []byte) {
	q := r.URL.Query()

	if q.Get("fieldManager") == "" {
		writeError(w, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "PatchOptions"}, "",
			field.ErrorList{field.Required(field.NewPath("fieldManager"), "is required for apply patch")}))

		return
	}

	sent := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(body, &sent.Object); err != nil {
		writeError(w, apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err)))

		return
	}

	manager, err := k.fieldManager(t.sub)
	if err != nil {
		writeError(w, err)

		return
	}

	onto := func(now runtime.Object) (runtime.Object, error) {
		return manager.Apply(typed(k, now), sent, q.Get("fieldManager"), q.Get("force") == "true")
	}

	code := http.StatusOK
	obj, err := s.cfg.Cluster.update(k, t.namespace, t.name, dryRun(r), func(now runtime.Object) (runtime.Object, error) {
		changed, err := onto(now)
		if err != nil {
			return nil, err
		}

		return s.admitted(k, t, who, now, changed)
	})

	if apierrors.IsNotFound(err) && t.sub == "" {
		code = http.StatusCreated
		obj, err = s.applyNew(t, k, who, dryRun(r), onto)
	}

	s.reply(w, r, k, code, obj, err)
}

// applyNew creates the object that is applied.
func (s *Server) applyNew(t target, k *kind, who user, dry bool,
	onto func(runtime.Object) (runtime.Object, error),
) (runtime.Object, error) {
	empty := k.new()
	accessor(empty).SetName(t.name)
	accessor(empty).SetNamespace(t.namespace)

	obj, err := onto(empty)
	if err == nil {
		err = prepare(k, t, obj)
	}

	if err == nil {
		err = s.admit(who, k, nil, obj)
	}

	if err != nil {
		return nil, err
	}

	return s.cfg.Cluster.create(k, obj, dry)
}
