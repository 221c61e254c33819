package kube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
)

// describe answers what a client asks to learn about the server: its version and its resources. It reports whether the
// path was one of those.
func (s *Server) describe(w http.ResponseWriter, r *http.Request, call string) bool {
	switch path := r.URL.Path; path {
	case "/version":
		writeJSON(w, http.StatusOK, s.version())
	case "/api":
		writeJSON(w, http.StatusOK, metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{Kind: "APIVersions"},
			Versions: []string{"v1"},
		})
	case "/apis":
		writeJSON(w, http.StatusOK, groups())
	case "/openapi/v3":
		writeJSON(w, http.StatusOK, map[string]any{"paths": map[string]any{}})
	case "/openapi/v2":
		if accept := r.Header.Get("Accept"); strings.Contains(accept, "protobuf") {
			// an empty document, on which kubectl skips its own validation; the server's is strict
			// asked for by a name with "@v1.0", which is no media type, and answered with one that is, as Kubernetes does
			w.Header().Set("Content-Type", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
			return true
		}

		writeJSON(w, http.StatusOK, map[string]any{
			"swagger": "2.0", "info": map[string]any{"title": "Kubernetes", "version": s.cfg.Version},
			"paths": map[string]any{}, "definitions": map[string]any{},
		})
	default:
		if strings.HasPrefix(path, "/metrics") || strings.HasPrefix(path, "/logs") ||
			strings.HasPrefix(path, "/.well-known/") {
			s.refuse(w, call, "the lab's API server does not have "+path)
			return true
		}

		return s.describeGroup(w, strings.Split(strings.Trim(path, "/"), "/"))
	}

	return true
}

func (s *Server) describeGroup(w http.ResponseWriter, p []string) bool {
	switch {
	case len(p) == 2 && p[0] == "api":
		return writeResources(w, "", p[1])
	case len(p) == 3 && p[0] == "apis":
		return writeResources(w, p[1], p[2])
	case len(p) == 2 && p[0] == "apis":
		list := groups()
		i := slices.IndexFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == p[1] })
		if i < 0 {
			return false
		}

		g := list.Groups[i]
		g.Kind, g.APIVersion = "APIGroup", "v1"
		writeJSON(w, http.StatusOK, g)

		return true
	default:
		return false
	}
}

func (s *Server) version() version.Info {
	major, rest, _ := strings.Cut(strings.TrimPrefix(s.cfg.Version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")

	return version.Info{
		Major: major, Minor: minor, GitVersion: s.cfg.Version, GitTreeState: "clean",
		GoVersion: runtime.Version(), Compiler: "gc", Platform: "linux/amd64",
	}
}

func groups() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}

	for _, k := range kinds {
		if k.group == "" || slices.ContainsFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == k.group }) {
			continue
		}

		v := metav1.GroupVersionForDiscovery{GroupVersion: k.group + "/" + k.version, Version: k.version}
		list.Groups = append(list.Groups, metav1.APIGroup{
			Name: k.group, Versions: []metav1.GroupVersionForDiscovery{v},
			PreferredVersion: v,
		})
	}

	return list
}

func writeResources(w http.ResponseWriter, group, ver string) bool {
	gv := ver
	if group != "" {
		gv = group + "/" + ver
	}

	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv}

	for _, k := range kinds {
		if k.group != group || k.version != ver {
			continue
		}

		var categories []string
		if k.inAll() {
			categories = []string{"all"}
		}

		list.APIResources = append(list.APIResources, metav1.APIResource{
			Categories: categories,
			Name:       k.resource, SingularName: strings.ToLower(k.name), Namespaced: k.namespaced, Kind: k.name,
			ShortNames: k.short,
			Verbs:      metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
		})

		if k.status {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: k.resource + "/status", Namespaced: k.namespaced, Kind: k.name, Verbs: metav1.Verbs{"get", "patch", "update"},
			})
		}

		if k.resource == pods.resource && k.group == "" {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: k.resource + "/" + evictionResource, Namespaced: true, Group: eviction.group, Version: eviction.version,
				Kind:  evictionKind,
				Verbs: metav1.Verbs{"create"},
			})
		}
	}

	if len(list.APIResources) == 0 {
		return writeUnknown(w, group)
	}

	writeJSON(w, http.StatusOK, list)

	return true
}

// writeUnknown answers a request for what a group does not have. It reports false, and has not answered, when there is
// no such group.
func writeUnknown(w http.ResponseWriter, group string) bool {
	known := slices.ContainsFunc(kinds, func(k kind) bool { return k.group == group })
	for gr := range servedElsewhere {
		known = known || gr.Group == group
	}

	if known {
		writeError(w, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
			Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{},
		}})
	}

	return known
}

// jsonOf returns an object as JSON, with its kind and version in it.
func jsonOf(k *kind, obj any) (map[string]any, error) {
	raw, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}

	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("reading back a %s: %w", k.name, err)
	}

	m["kind"], m["apiVersion"] = k.name, k.gvk().GroupVersion().String()

	return m, nil
}
