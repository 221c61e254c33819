package kube

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// kind is one resource of the API that this package stores.
type kind struct {
	group, version string
	resource       string // plural, as in the path
	name           string // Kind
	short          []string
	namespaced     bool
	status         bool // has a status subresource
}

func (k *kind) gvk() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.group, Version: k.version, Kind: k.name}
}

func (k *kind) gr() schema.GroupResource {
	return schema.GroupResource{Group: k.group, Resource: k.resource}
}

// new returns an empty object of the kind.
func (k *kind) new() runtime.Object {
	obj, err := scheme.Scheme.New(k.gvk())
	if err != nil {
		panic(err) // the table below names a kind that k8s.io/api does not have
	}

	return obj
}

// kinds is the table of what is stored.
var kinds = []kind{
	{"", "v1", "configmaps", "ConfigMap", []string{"cm"}, true, false},
	{"", "v1", "endpoints", "Endpoints", []string{"ep"}, true, false},
	{"", "v1", "events", "Event", []string{"ev"}, true, false},
	{"", "v1", "namespaces", "Namespace", []string{"ns"}, false, true},
	{"", "v1", "nodes", "Node", []string{"no"}, false, true},
	{"", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", []string{"pvc"}, true, true},
	{"", "v1", "persistentvolumes", "PersistentVolume", []string{"pv"}, false, true},
	{"", "v1", "pods", "Pod", []string{"po"}, true, true},
	{"", "v1", "secrets", "Secret", nil, true, false},
	{"", "v1", "serviceaccounts", "ServiceAccount", []string{"sa"}, true, false},
	{"", "v1", "services", "Service", []string{"svc"}, true, true},
	{"apps", "v1", "daemonsets", "DaemonSet", []string{"ds"}, true, true},
	{"apps", "v1", "deployments", "Deployment", []string{"deploy"}, true, true},
	{"apps", "v1", "replicasets", "ReplicaSet", []string{"rs"}, true, true},
	{"apps", "v1", "statefulsets", "StatefulSet", []string{"sts"}, true, true},
	{"batch", "v1", "cronjobs", "CronJob", []string{"cj"}, true, true},
	{"batch", "v1", "jobs", "Job", nil, true, true},
	{"certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", []string{"csr"}, false, true},
	{"coordination.k8s.io", "v1", "leases", "Lease", nil, true, false},
	{"discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", nil, true, false},
	{"networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", []string{"netpol"}, true, false},
	{"policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", []string{"pdb"}, true, true},
	{"rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", nil, false, false},
	{"rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", nil, false, false},
	{"rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", nil, true, false},
	{"rbac.authorization.k8s.io", "v1", "roles", "Role", nil, true, false},
	{"storage.k8s.io", "v1", "storageclasses", "StorageClass", []string{"sc"}, false, false},
}

// servedElsewhere lists resources that a real API server has and this one does not store: asking for one is not a
// mistake of the client's, so it is refused as unknown to the lab rather than answered with 404.
var servedElsewhere = map[schema.GroupResource]bool{
	{Resource: "bindings"}:                                                               true,
	{Resource: "componentstatuses"}:                                                      true,
	{Resource: "limitranges"}:                                                            true,
	{Resource: "podtemplates"}:                                                           true,
	{Resource: "replicationcontrollers"}:                                                 true,
	{Resource: "resourcequotas"}:                                                         true,
	{Group: "apps", Resource: "controllerrevisions"}:                                     true,
	{Group: "networking.k8s.io", Resource: "ingresses"}:                                  true,
	{Group: "networking.k8s.io", Resource: "ingressclasses"}:                             true,
	{Group: "scheduling.k8s.io", Resource: "priorityclasses"}:                            true,
	{Group: "node.k8s.io", Resource: "runtimeclasses"}:                                   true,
	{Group: "storage.k8s.io", Resource: "csidrivers"}:                                    true,
	{Group: "storage.k8s.io", Resource: "csinodes"}:                                      true,
	{Group: "storage.k8s.io", Resource: "volumeattachments"}:                             true,
	{Group: "storage.k8s.io", Resource: "csistoragecapacities"}:                          true,
	{Group: "autoscaling", Resource: "horizontalpodautoscalers"}:                         true,
	{Group: "events.k8s.io", Resource: "events"}:                                         true,
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}:               true,
	{Group: "apiregistration.k8s.io", Resource: "apiservices"}:                           true,
	{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"}:   true,
	{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"}: true,
	{Group: "authentication.k8s.io", Resource: "tokenreviews"}:                           true,
	{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}:                    true,
	{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"}:                 true,
	{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}:               true,
	{Group: "flowcontrol.apiserver.k8s.io", Resource: "flowschemas"}:                     true,
	{Group: "flowcontrol.apiserver.k8s.io", Resource: "prioritylevelconfigurations"}:     true,
	{Group: "resource.k8s.io", Resource: "resourceclaims"}:                               true,
}

// inAll tells whether "kubectl get all" shows the kind.
func (k *kind) inAll() bool {
	switch k.group {
	case "":
		return k.resource == "pods" || k.resource == "services"
	default:
		return k.group == "apps" || k.group == "batch"
	}
}

func kindOf(group, version, resource string) *kind {
	for i := range kinds {
		if k := &kinds[i]; k.group == group && k.version == version && k.resource == resource {
			return k
		}
	}

	return nil
}

func kindOfObject(obj runtime.Object) *kind {
	gvks, _, err := scheme.Scheme.ObjectKinds(obj)
	if err != nil {
		return nil
	}

	for i := range kinds {
		for _, gvk := range gvks {
			if kinds[i].gvk() == gvk {
				return &kinds[i]
			}
		}
	}

	return nil
}
