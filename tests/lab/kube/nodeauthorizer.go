package kube

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// nodeRules are what the kubelet of any node may do with a kind (Kubernetes: plugin/pkg/auth/authorizer/rbac/
// bootstrappolicy, NodeRules; Talos and K3s add the slices).
var nodeRules = map[*kind][]string{
	services:  {"get", "list", "watch"},
	endpoints: {"get"},
	slicesOf:  {"get", "list", "watch"},
	requests:  {"create", "get", "list", "watch"},
	events:    {"create", "update", "patch"},
}

// nodeMay tells whether the kubelet of a node may do something, and else, where it is known, why not (Kubernetes:
// plugin/pkg/auth/authorizer/node).
func (s *Server) nodeMay(node, verb string, k *kind, t target, sel selector) (bool, string) {
	reads := slices.Contains([]string{"get", "list", "watch"}, verb)

	switch k {
	case nodes:
		if !reads {
			return verb == "update" || verb == "patch" || verb == "create" && t.sub == "", ""
		}

		switch name := sel.named(t.name); {
		case t.sub != "":
			return false, ""
		case name == node:
			return true, ""
		case name == "":
			return false, fmt.Sprintf("node '%s' cannot read all nodes, only its own Node object", node)
		default:
			return false, fmt.Sprintf("node '%s' cannot read '%s', only its own Node object", node, name)
		}
	case pods:
		switch {
		case t.sub == "status":
			return verb == "update" || verb == "patch", ""
		case t.sub == evictionResource:
			return verb == "create", ""
		case verb == "list" || verb == "watch":
			if on, _ := sel.fields.RequiresExactMatch("spec.nodeName"); on == node {
				return true, ""
			}

			return false, "can only list/watch pods with spec.nodeName field selector"
		case verb == "get":
			if obj, err := s.cfg.Cluster.get(pods, t.namespace, t.name); err == nil && obj.(*corev1.Pod).Spec.NodeName == node {
				return true, ""
			}

			return false, fmt.Sprintf("no relationship found between node '%s' and this object", node)
		default:
			return verb == "create" || verb == "delete", ""
		}
	case leases:
		switch {
		case verb == "list" || verb == "watch" || verb == "deletecollection":
			return false, "can only get, create, update, patch, or delete a node lease"
		case t.namespace != corev1.NamespaceNodeLease:
			return false, fmt.Sprintf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
		case verb != "create" && t.name != node:
			return false, "can only access node lease with the same name as the requesting node"
		default:
			return true, ""
		}
	case secrets, configMaps: // no pod of the lab mounts one
		switch {
		case !reads:
			return false, "can only read resources of this type"
		case t.namespace == "":
			return false, "can only read namespaced object of this type"
		case t.name == "":
			return false, "No Object name found"
		default:
			return false, fmt.Sprintf("no relationship found between node '%s' and this object", node)
		}
	default:
		return slices.Contains(nodeRules[k], verb), ""
	}
}

// named is the name of the only object that a request is about, empty if it is about several.
func (s selector) named(name string) string {
	if name == "" && s.fields != nil {
		name, _ = s.fields.RequiresExactMatch("metadata.name")
	}

	return name
}
