package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// counted are the kinds whose generation counts the changes of their specification.
var counted = map[*kind]bool{
	pods: true, daemonSets: true, deployments: true, jobs: true, budgets: true,
	kindOf("apps", "v1", "replicasets"): true, kindOf("apps", "v1", "statefulsets"): true,
	kindOf("batch", "v1", "cronjobs"): true, kindOf("networking.k8s.io", "v1", "networkpolicies"): true,
}

// returned are the kinds whose deletion is answered with the object (Kubernetes: ReturnDeletedObject).
var returned = map[*kind]bool{
	pods: true, namespaces: true, services: true, serviceAccounts: true,
	kindOf("", "v1", "persistentvolumes"): true, kindOf("", "v1", "persistentvolumeclaims"): true,
	kindOf("storage.k8s.io", "v1", "storageclasses"): true,
}

// deleted is what the deletion of the others is answered with.
func deleted(k *kind, m metav1.Object) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: m.GetName(), Group: k.group, Kind: k.resource, UID: m.GetUID()},
	}
}

// specOf is everything of an object but its metadata and status.
func specOf(obj runtime.Object) map[string]any {
	raw, err := json.Marshal(obj)
	if err != nil {
		panic(err) // it came in as JSON, or was made by this package
	}

	var m map[string]any

	_ = json.Unmarshal(raw, &m) // just written

	for _, key := range []string{"metadata", "status", "kind", "apiVersion"} {
		delete(m, key)
	}

	return m
}

// misused tells what is wrong with a request itself, before anything is looked at.
func misused(r *http.Request, verb string, t target, selErr error) error {
	q := r.URL.Query()

	switch {
	case selErr != nil && (verb == "list" || verb == "watch"):
		return apierrors.NewBadRequest(selErr.Error())
	case verb == "create" && t.name != "":
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed,
			Message: "the server does not allow this method on the requested resource", Details: &metav1.StatusDetails{},
		}}
	case q.Has("dryRun") && q.Get("dryRun") != metav1.DryRunAll:
		kind := map[string]string{"create": "Create", "update": "Update", "patch": "Patch", "delete": "Delete"}[verb] + "Options"

		return apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind(kind).GroupKind(), "", field.ErrorList{
			field.NotSupported(field.NewPath("dryRun"), q["dryRun"], []string{metav1.DryRunAll}),
		})
	}

	if version := q.Get("resourceVersion"); version != "" && (verb == "list" || verb == "watch") {
		if _, err := strconv.ParseUint(version, 10, 64); err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v",
				field.Invalid(field.NewPath("resourceVersion"), version, err.Error())))
		}
	}

	return nil
}

// sameObject tells whether what is sent is what the path names.
func sameObject(k *kind, t target, obj runtime.Object) error {
	m := accessor(obj)

	if k.namespaced {
		if m.GetNamespace() != "" && m.GetNamespace() != t.namespace {
			return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
		}

		m.SetNamespace(t.namespace)
	}

	if t.name != "" && m.GetName() != t.name {
		if m.GetName() == "" {
			return apierrors.NewBadRequest("name must be provided") // its words
		}

		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)",
			m.GetName(), t.name))
	}

	return nil
}

// prepare makes a new object ready to be stored, or tells what is wrong with it.
func prepare(k *kind, t target, obj runtime.Object) error {
	if err := sameObject(k, t, obj); err != nil {
		return err
	}

	if accessor(obj).GetResourceVersion() != "" {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
			Message: "resourceVersion should not be set on objects to be created",
		}}
	}

	generateName(accessor(obj))

	// Its status is unknown when it is created.
	switch o := obj.(type) {
	case *corev1.Pod:
		o.Status = corev1.PodStatus{}
	case *appsv1.Deployment:
		o.Status = appsv1.DeploymentStatus{}
	case *appsv1.DaemonSet:
		o.Status = appsv1.DaemonSetStatus{}
	}

	return valid(k, obj)
}

var standardFinalizers = []string{
	string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents,
}

// valid checks what every kind is checked for, and of nodes their taints.
func valid(k *kind, obj runtime.Object) error {
	m := accessor(obj)

	name := validation.ValidateNameFunc(validation.NameIsDNSSubdomain)
	if k.group == "rbac.authorization.k8s.io" {
		name = func(string, bool) []string { return nil } // its names are free
	}

	errs := validation.ValidateObjectMetaAccessor(m, k.namespaced, name, field.NewPath("metadata"))

	for i, f := range m.GetFinalizers() {
		if !strings.Contains(f, "/") && !slices.Contains(standardFinalizers, f) {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "finalizers").Index(i), f,
				"name is neither a standard finalizer name nor is it fully qualified"))
		}
	}

	if n, ok := obj.(*corev1.Node); ok {
		errs = append(errs, validTaints(n.Spec.Taints)...)
	}

	if len(errs) > 0 {
		return apierrors.NewInvalid(k.gvk().GroupKind(), m.GetName(), errs)
	}

	return nil
}

func validTaints(taints []corev1.Taint) (errs field.ErrorList) {
	seen := map[string]bool{}

	for i, t := range taints {
		path := field.NewPath("metadata", "taints").Index(i) // its path

		switch id := t.Key + ":" + string(t.Effect); {
		case t.Effect != corev1.TaintEffectNoSchedule && t.Effect != corev1.TaintEffectPreferNoSchedule &&
			t.Effect != corev1.TaintEffectNoExecute:
			errs = append(errs, field.NotSupported(path.Child("effect"), t.Effect, []corev1.TaintEffect{
				corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute,
			}))
		case seen[id]:
			duplicate := field.Duplicate(path, t)
			duplicate.Detail = "taints must be unique by key and effect pair"
			errs = append(errs, duplicate)
		default:
			seen[id] = true
		}
	}

	return errs
}

// changeable checks what a change makes of an object.
func changeable(k *kind, before, after runtime.Object) error {
	var errs field.ErrorList

	immutable := func(was *bool, same bool, path string) {
		if was != nil && *was && !same {
			errs = append(errs, field.Forbidden(field.NewPath(path), "field is immutable when `immutable` is set"))
		}
	}

	switch now := after.(type) {
	case *corev1.ConfigMap:
		was := before.(*corev1.ConfigMap)
		immutable(was.Immutable, equal(was.Data, now.Data), "data")
	case *corev1.Secret:
		was := before.(*corev1.Secret)
		immutable(was.Immutable, equal(was.Data, now.Data), "data")
	}

	if accessor(before).GetDeletionTimestamp() != nil {
		added := slices.DeleteFunc(slices.Clone(accessor(after).GetFinalizers()), func(f string) bool {
			return slices.Contains(accessor(before).GetFinalizers(), f)
		})
		if len(added) > 0 {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "finalizers"), fmt.Sprintf(
				"no new finalizers can be added if the object is being deleted, found new finalizers %#v", added)))
		}
	}

	if len(errs) > 0 {
		return apierrors.NewInvalid(k.gvk().GroupKind(), accessor(after).GetName(), errs)
	}

	return valid(k, after)
}

// admit is what the admission plugins say to a request that makes an object, or changes one.
func (s *Server) admit(who user, k *kind, before, after runtime.Object) error {
	name, isNode := strings.CutPrefix(who.name, nodePrefix)
	if !isNode || !who.in("system:nodes") {
		return nil
	}

	forbid := func(format string, args ...any) error {
		return apierrors.NewForbidden(k.gr(), accessor(after).GetName(), fmt.Errorf(format, args...))
	}

	switch o := after.(type) {
	case *corev1.Node:
		return nodeRestriction(who, before, after)
	case *corev1.Pod:
		if before != nil {
			if before.(*corev1.Pod).Spec.NodeName != name {
				return forbid("node %q can only update pod status for pods with spec.nodeName set to itself", name)
			}

			return nil
		}

		return s.mirrorOnly(name, o, forbid)
	}

	if k == leases && before == nil && accessor(after).GetName() != name {
		return forbid("can only access node lease with the same name as the requesting node")
	}

	return nil
}

// mirrorOnly tells what keeps a kubelet from making a pod: it makes the mirrors of its static pods, and no others.
func (s *Server) mirrorOnly(node string, p *corev1.Pod, forbid func(string, ...any) error) error {
	owner := metav1.GetControllerOf(p)

	switch {
	case p.Annotations[corev1.MirrorPodAnnotationKey] == "":
		return forbid("pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey,
			node)
	case p.Spec.NodeName != node:
		return forbid("node %q can only create pods with spec.nodeName set to itself", node)
	case len(p.OwnerReferences) != 1 || p.OwnerReferences[0].Kind != "Node" || p.OwnerReferences[0].Name != node:
		return forbid("node %q can only create pods with an owner reference set to itself", node)
	case owner == nil:
		return forbid("node %q can only create pods with a controller owner reference set to itself", node)
	}

	n := s.cfg.Cluster.Node(node)

	switch {
	case n == nil:
		return apierrors.NewNotFound(nodes.gr(), node)
	case owner.UID != n.UID:
		return forbid("node %s UID mismatch: expected %s got %s", node, owner.UID, n.UID)
	default:
		return nil
	}
}

// nodeDeletes tells what keeps a kubelet from deleting a pod.
func nodeDeletes(who user, k *kind, obj runtime.Object) error {
	name, isNode := strings.CutPrefix(who.name, nodePrefix)
	p, isPod := obj.(*corev1.Pod)

	if !isNode || !isPod || !who.in("system:nodes") || p.Spec.NodeName == name {
		return nil
	}

	return apierrors.NewForbidden(k.gr(), p.Name,
		fmt.Errorf("node %q can only delete pods with spec.nodeName set to itself", name))
}

// nodeEvicts tells what keeps a kubelet from evicting a pod.
func (s *Server) nodeEvicts(who user, t target) error {
	name, isNode := strings.CutPrefix(who.name, nodePrefix)
	if !isNode || !who.in("system:nodes") {
		return nil
	}

	obj, err := s.cfg.Cluster.get(pods, t.namespace, t.name)
	if err != nil {
		return err
	}

	if obj.(*corev1.Pod).Spec.NodeName == name {
		return nil
	}

	return apierrors.NewForbidden(pods.gr(), t.name,
		errors.New("node "+name+" can only evict pods with spec.nodeName set to itself"))
}
