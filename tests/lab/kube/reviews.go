package kube

import (
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
)

// Reviews are questions in the shape of objects: nothing is stored.
var reviews = map[string]*kind{
	"/apis/authentication.k8s.io/v1/selfsubjectreviews": {
		group: "authentication.k8s.io", version: "v1",
		resource: "selfsubjectreviews", name: "SelfSubjectReview",
	},
	"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": {
		group: "authorization.k8s.io", version: "v1",
		resource: "selfsubjectaccessreviews", name: "SelfSubjectAccessReview",
	},
}

// review answers who the client is, and what it may do. It reports whether the path was such a question.
func (s *Server) review(w http.ResponseWriter, r *http.Request, who user) bool {
	k := reviews[r.URL.Path]
	if k == nil {
		return false
	}

	if r.Method != http.MethodPost {
		writeError(w, apierrors.NewMethodNotSupported(k.gr(), verbOf(r, target{})))
		return true
	}

	obj, _, err := readObject(r, k)
	if err == nil {
		obj = s.answerReview(obj, who)
	}

	s.reply(w, r, k, http.StatusCreated, obj, err)

	return true
}

func (s *Server) answerReview(obj runtime.Object, who user) runtime.Object {
	switch o := obj.(type) {
	case *authenticationv1.SelfSubjectReview:
		o.Status.UserInfo = authenticationv1.UserInfo{Username: who.name, Groups: who.groups}
	case *authorizationv1.SelfSubjectAccessReview:
		if a := o.Spec.ResourceAttributes; a != nil {
			k := &kind{group: a.Group, resource: a.Resource}
			if known := kindOf(a.Group, a.Version, a.Resource); known != nil {
				k = known
			} else if known := kindOf(a.Group, "v1", a.Resource); known != nil {
				k = known
			}

			t := target{namespace: a.Namespace, name: a.Name, sub: a.Subresource}
			allowed := s.authorize(who, a.Verb, k, t, everything)
			o.Status.Allowed = allowed == nil
			if allowed != nil {
				o.Status.Reason = reasonOf(allowed)
			}
		} else {
			o.Status.Allowed = true // what the server is may be looked at by all
		}
	}

	return obj
}

// reasonOf is what an authorizer said, without what was asked.
func reasonOf(err error) string {
	if _, why, ok := strings.Cut(err.Error(), ": node: "); ok {
		return "node: " + why
	}

	return ""
}
