// Package kube is a small Kubernetes: one [Cluster] is what a cluster's etcd holds, and a [Server] is the API server of
// one control plane that answers from it. A [Kubelet] joins a node over HTTPS, as a real one does.
//
// Objects are the types of k8s.io/api, kept in memory. Kinds that this package stores have the usual verbs; the little
// that controllers do for a cluster to look alive (pods of daemon sets and deployments, certificates of kubelets, nodes
// that are lost) is done by [Cluster] itself, at once. Whatever a real API server has and this one has not is refused
// with 501 and recorded, so that a test which depends on it fails instead of passing on a default answer. What it does answer
// is compared with Kubernetes in tests/conformance.
package kube
