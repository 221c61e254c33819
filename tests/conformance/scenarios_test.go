package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"talos-proxmox/tests/upstream"
)

// prepare makes what Talos' manifests make in a fresh cluster, where it is missing (Talos: internal/app/machined/pkg/
// controllers/k8s/templates.go).
func prepare(s *side) {
	id, secret, _ := strings.Cut(bootstrapToken, ".")

	if s.name == "real" {
		s.must(admin, "POST", "/api/v1/namespaces/kube-system/secrets", fmt.Sprintf(`
metadata: {name: bootstrap-token-%s}
type: bootstrap.kubernetes.io/token
stringData: {token-id: %q, token-secret: %q, usage-bootstrap-authentication: "true",
  auth-extra-groups: "system:bootstrappers:nodes"}`, id, id, secret))

		s.must(admin, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", `
metadata: {name: "system:talos-nodes"}
rules: [{apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}]`)

		for name, binding := range map[string][2]string{
			"system-bootstrap-approve-node-client-csr": {
				"system:bootstrappers:nodes", "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
			},
			"system-bootstrap-node-bootstrapper": {"system:bootstrappers:nodes", "system:node-bootstrapper"},
			"system:talos-nodes":                 {"system:nodes", "system:talos-nodes"},
		} {
			s.must(admin, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", fmt.Sprintf(`
metadata: {name: %q}
subjects: [{kind: Group, name: %q, apiGroup: rbac.authorization.k8s.io}]
roleRef: {kind: ClusterRole, name: %q, apiGroup: rbac.authorization.k8s.io}`, name, binding[0], binding[1]))
		}

		// The service account of pods is made by a controller.
		s.until("/api/v1/namespaces/default/serviceaccounts/default", found)
		s.until("/api/v1/namespaces/kube-system/serviceaccounts/default", found)
	}

	s.join("n1")
	s.join("n2")

	for _, n := range []string{"n1", "n2"} {
		s.until("/api/v1/nodes/"+n, func(a answer) bool {
			taints, _ := a.object()["spec"].(map[string]any)

			return taints["podCIDR"] != nil && taints["taints"] == nil
		})
	}
}

// has says that an answer has a text in it.
func has(text string) func(answer) bool {
	return func(a answer) bool { return strings.Contains(string(a.body), text) }
}

func found(a answer) bool { return a.code == http.StatusOK }

// scenarios are played on both sides, in this order.
var scenarios = []struct {
	name string
	play func(*side)
}{
	{"who asks", users},
	{"what there is", discovery},
	{"objects", objects},
	{"versions of objects", versions},
	{"deletions", deletions},
	{"nodes", nodes},
	{"watches", watches},
	{"evictions", evictions},
	{"pods that do not end", drains},
	{"tables", tables},
	{"removed", removed},
	{"program", program},
	{"Cilium by a job", cilium},
	{"kubectl", kubectl},
}

func users(s *side) {
	s.do("without credentials", anonymous, "GET", "/api/v1/nodes", "")
	s.do("a token that is wrong", anonymous, "GET", "/api/v1/nodes", "", "Authorization: Bearer abcdef.0000000000000000")
	s.do("a guest lists nodes", guest, "GET", "/api/v1/nodes", "")
	s.do("a guest reads a node", guest, "GET", "/api/v1/nodes/n1", "")
	s.do("a guest deletes a pod", guest, "DELETE", "/api/v1/namespaces/default/pods/none", "")
	s.do("a guest makes a deployment", guest, "POST", "/apis/apps/v1/namespaces/default/deployments", `{metadata: {name: g}}`)
	s.do("a guest asks for the version", guest, "GET", "/version", "")
	s.do("a joining machine lists nodes", joining, "GET", "/api/v1/nodes", "")
	s.do("health", admin, "GET", "/readyz", "")
	s.do("who am I", admin, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews",
		`{apiVersion: authentication.k8s.io/v1, kind: SelfSubjectReview}`)

	for _, user := range []string{admin, guest, node("n1")} {
		for _, verb := range []string{"list", "delete"} {
			s.do("may "+user+" "+verb+" nodes", user, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
				fmt.Sprintf(`{apiVersion: authorization.k8s.io/v1, kind: SelfSubjectAccessReview,
spec: {resourceAttributes: {verb: %s, resource: nodes, version: v1}}}`, verb))
		}
	}
}

func discovery(s *side) {
	for _, path := range []string{
		"/version", "/api", "/apis", "/apis/apps", "/apis/policy", "/api/v1", "/apis/apps/v1", "/apis/policy/v1",
		"/apis/coordination.k8s.io/v1", "/apis/certificates.k8s.io/v1", "/apis/rbac.authorization.k8s.io/v1",
		"/apis/none.example/v1", "/apis/none.example", "/apis/policy/v1beta1/poddisruptionbudgets", "/api/v1/none",
		"/api/v1/namespaces/default/none/x", "/apis/batch/v1beta1/cronjobs", "/none",
	} {
		s.do("GET "+path, admin, "GET", path, "")
	}
}

func objects(s *side) {
	const all = "/api/v1/namespaces/default/configmaps"

	s.do("create", admin, "POST", all, `{metadata: {name: a, labels: {x: "1"}}, data: {k: v}}`)
	s.do("create twice", admin, "POST", all, `{metadata: {name: a}}`)
	s.do("create without a name", admin, "POST", all, `{data: {k: v}}`)
	s.do("create with a wrong name", admin, "POST", all, `{metadata: {name: A_b}}`)
	s.do("create in another namespace", admin, "POST", all, `{metadata: {name: b, namespace: kube-system}}`)
	s.do("create in no namespace", admin, "POST", "/api/v1/namespaces/none/configmaps", `{metadata: {name: b}}`)
	s.do("create another kind", admin, "POST", all, `{apiVersion: v1, kind: Secret, metadata: {name: b}}`)
	s.do("create what is none", admin, "POST", all, `[1]`)
	s.do("create with a wrong label", admin, "POST", all, `{metadata: {name: b, labels: {"a b": c}}}`)
	s.do("create with a version", admin, "POST", all, `{metadata: {name: b, resourceVersion: "1"}}`)
	s.do("dry run", admin, "POST", all+"?dryRun=All", `{metadata: {name: dry}}`)
	s.do("after a dry run", admin, "GET", all+"/dry", "")
	s.do("a dry run that is none", admin, "POST", all+"?dryRun=Some", `{metadata: {name: dry}}`)
	s.do("a field too many", admin, "POST", all, `{metadata: {name: extra}, more: 1}`)
	s.do("a field too many, strictly", admin, "POST", all+"?fieldValidation=Strict", `{metadata: {name: strict}, more: 1}`)
	s.do("a field too many, ignored", admin, "POST", all+"?fieldValidation=Ignore", `{metadata: {name: ignored}, more: 1}`)
	s.do("get", admin, "GET", all+"/a", "")
	s.do("get none", admin, "GET", all+"/none", "")
	s.do("get none of apps", admin, "GET", "/apis/apps/v1/namespaces/default/deployments/none", "")
	s.do("list", admin, "GET", all+"?labelSelector=x%3D1", "")
	s.do("list nothing", admin, "GET", all+"?labelSelector=x%3D2", "")
	s.do("list with a wrong selector", admin, "GET", all+"?labelSelector=%21%21", "")
	s.do("list with a wrong field", admin, "GET", all+"?fieldSelector=data.k%3Dv", "")
	s.do("list by name", admin, "GET", all+"?fieldSelector=metadata.name%3Da", "")
	s.do("merge", admin, "MERGE", all+"/a", `{data: {k: w, l: "2"}}`)
	s.do("merge nothing new", admin, "MERGE", all+"/a", `{data: {k: w}}`)
	s.do("merge none", admin, "MERGE", all+"/none", `{data: {k: w}}`)
	s.do("merge a wrong type", admin, "MERGE", all+"/a", `{data: 1}`)
	s.do("strategic merge", admin, "STRATEGIC", all+"/a", `{data: {l: null}}`)
	s.do("JSON patch", admin, "JSONPATCH", all+"/a", `[{op: replace, path: /data/k, value: x}]`)
	s.do("JSON patch of nothing", admin, "JSONPATCH", all+"/a", `[{op: remove, path: /data/none}]`)
	s.do("JSON patch that tests", admin, "JSONPATCH", all+"/a", `[{op: test, path: /data/k, value: z}]`)
	s.do("an unknown patch", admin, "PATCH", all+"/a", `{}`)
	s.do("no method", admin, "POST", all+"/a", `{metadata: {name: a}}`)

	s.do("immutable", admin, "POST", all, `{metadata: {name: fixed}, immutable: true, data: {k: v}}`)
	s.do("change what is immutable", admin, "MERGE", all+"/fixed", `{data: {k: w}}`)

	s.do("a secret", admin, "POST", "/api/v1/namespaces/default/secrets", `{metadata: {name: s}, stringData: {k: v}}`)
	s.do("a namespace", admin, "POST", "/api/v1/namespaces", `{metadata: {name: own}}`)
	s.do("the namespace again", admin, "GET", "/api/v1/namespaces/own", "")
	s.do("a lease", admin, "POST", "/apis/coordination.k8s.io/v1/namespaces/own/leases",
		`{metadata: {name: l}, spec: {holderIdentity: me, leaseDurationSeconds: 15}}`)
	s.do("a service account", admin, "POST", "/api/v1/namespaces/own/serviceaccounts", `{metadata: {name: s}}`)
	s.do("a role", admin, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/own/roles",
		`{metadata: {name: r}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`)
	s.do("a binding", admin, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/own/rolebindings",
		`{metadata: {name: r}, subjects: [{kind: User, name: u}], roleRef: {kind: Role, name: r}}`)
	s.do("a storage class", admin, "POST", "/apis/storage.k8s.io/v1/storageclasses",
		`{metadata: {name: c}, provisioner: example.com/p}`)
	s.do("a service", admin, "POST", "/api/v1/namespaces/own/services",
		`{metadata: {name: s}, spec: {clusterIP: None, selector: {a: b}, ports: [{port: 80}]}}`)
	s.do("a budget", admin, "POST", "/apis/policy/v1/namespaces/own/poddisruptionbudgets",
		`{metadata: {name: b}, spec: {minAvailable: 1, selector: {matchLabels: {a: b}}}}`)
	s.do("a budget with both", admin, "POST", "/apis/policy/v1/namespaces/own/poddisruptionbudgets?dryRun=All",
		`{metadata: {name: c}, spec: {minAvailable: 1, maxUnavailable: 1, selector: {matchLabels: {a: b}}}}`)
	s.do("a deployment without a selector", admin, "POST", "/apis/apps/v1/namespaces/own/deployments?dryRun=All",
		`{metadata: {name: d}, spec: {template: {spec: {containers: [{name: c, image: i}]}}}}`)
	s.do("a pod without containers", admin, "POST", "/api/v1/namespaces/own/pods?dryRun=All", `{metadata: {name: p}, spec: {}}`)
	s.do("apply", admin, "APPLY", all+"/applied?fieldManager=one",
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: applied}, data: {k: v}}`)
	s.do("apply a conflict", admin, "APPLY", all+"/applied?fieldManager=two",
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: applied}, data: {k: w}}`)
	s.do("apply with force", admin, "APPLY", all+"/applied?fieldManager=two&force=true",
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: applied}, data: {k: w}}`)
	s.do("apply without a manager", admin, "APPLY", all+"/applied",
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: applied}, data: {k: w}}`)
	s.do("a privileged pod", admin, "POST", "/api/v1/namespaces/default/pods?dryRun=All",
		`{metadata: {name: root}, spec: {hostNetwork: true, containers: [{name: c, image: i}]}}`)
	s.do("a privileged pod of the system, tried", admin, "POST", "/api/v1/namespaces/kube-system/pods?dryRun=All",
		`{metadata: {name: root}, spec: {hostNetwork: true, containers: [{name: c, image: i}]}}`)
	s.do("a webhook", admin, "POST",
		"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations?dryRun=All",
		`{metadata: {name: w}}`)
	s.do("a custom resource definition", admin, "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/none", "")
}

func versions(s *side) {
	const one = "/api/v1/namespaces/default/configmaps/versioned"

	a := s.must(admin, "POST", "/api/v1/namespaces/default/configmaps", `{metadata: {name: versioned}, data: {k: v}}`)
	first, uid := a.at("metadata", "resourceVersion"), a.at("metadata", "uid")

	put := func(label, meta string) {
		s.do(label, admin, "PUT", one, fmt.Sprintf(`{metadata: {name: versioned, %s}, data: {k: %q}}`, meta, label))
	}

	put("without a version", "")
	put("with an old version", fmt.Sprintf("resourceVersion: %q", first))
	put("with a wrong version", `resourceVersion: "x"`)
	put("with another uid", "uid: 00000000-0000-4000-a000-000000000000")
	put("with its uid", "uid: "+uid)
	s.do("another name", admin, "PUT", one, `{metadata: {name: other}}`)
	s.do("put none", admin, "PUT", "/api/v1/namespaces/default/configmaps/none", `{metadata: {name: none}, data: {k: v}}`)
	s.do("merge with an old version", admin, "MERGE", one, fmt.Sprintf(`{metadata: {resourceVersion: %q}, data: {k: m}}`, first))
	s.do("merge with another uid", admin, "MERGE", one, `{metadata: {uid: 00000000-0000-4000-a000-000000000000}, data: {k: m}}`)
	s.do("node without a version", admin, "PUT", "/api/v1/nodes/n1?dryRun=All", `{metadata: {name: n1, labels: {x: z}}}`)
	s.do("lease without a version", admin, "PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1",
		`{metadata: {name: n1}, spec: {leaseDurationSeconds: 40, holderIdentity: n1}}`)
	s.do("list from a version", admin, "GET", "/api/v1/namespaces/own/configmaps?resourceVersion=0&fieldSelector=metadata.name%3Dnone", "")
	s.do("list from a wrong version", admin, "GET", "/api/v1/namespaces/own/configmaps?resourceVersion=x", "")
}

func deletions(s *side) {
	const all = "/api/v1/namespaces/default/configmaps"

	a := s.must(admin, "POST", all, `{metadata: {name: doomed}}`)
	s.do("delete another uid", admin, "DELETE", all+"/doomed",
		`{preconditions: {uid: 00000000-0000-4000-a000-000000000000}}`)
	s.do("delete another version", admin, "DELETE", all+"/doomed", `{preconditions: {resourceVersion: "1"}}`)
	s.do("delete, dry", admin, "DELETE", all+"/doomed?dryRun=All", "")
	s.do("delete", admin, "DELETE", all+"/doomed", fmt.Sprintf(`{preconditions: {uid: %s}}`, a.at("metadata", "uid")))
	s.do("delete again", admin, "DELETE", all+"/doomed", "")
	s.do("delete what is held", admin, "POST", all, `{metadata: {name: held, finalizers: [lab.example/hold]}}`)
	s.do("delete the held one", admin, "DELETE", all+"/held", "")
	s.do("delete the held one again", admin, "DELETE", all+"/held", "")
	s.do("the held one", admin, "GET", all+"/held", "")
	s.do("change the held one", admin, "MERGE", all+"/held", `{data: {k: v}}`)
	s.do("hold it more", admin, "MERGE", all+"/held", `{metadata: {finalizers: [lab.example/hold, lab.example/more]}}`)
	s.do("let it go", admin, "MERGE", all+"/held", `{metadata: {finalizers: null}}`)
	s.do("it is gone", admin, "GET", all+"/held", "")
	s.do("a finalizer without a domain", admin, "POST", all, `{metadata: {name: wrong, finalizers: [hold]}}`)
	s.do("delete options that are none", admin, "DELETE", all+"/a", `{preconditions: 1}`)
	s.do("propagation that is none", admin, "DELETE", all+"/a?dryRun=All", `{propagationPolicy: Some}`)
	s.do("in the background", admin, "DELETE", all+"/fixed", `{propagationPolicy: Background}`)

	s.must(admin, "POST", "/apis/apps/v1/namespaces/default/deployments", web("web", 1, ""))
	s.until("/api/v1/namespaces/default/pods?labelSelector=app%3Dweb", running(1))
	s.do("a deployment", admin, "DELETE", "/apis/apps/v1/namespaces/default/deployments/web", `{propagationPolicy: Background}`)
	s.until("/api/v1/namespaces/default/pods?labelSelector=app%3Dweb", running(0))

	s.do("a namespace that Kubernetes needs", admin, "DELETE", "/api/v1/namespaces/kube-system", "")
	s.must(admin, "POST", "/api/v1/namespaces", `{metadata: {name: brief}}`)
	s.must(admin, "POST", "/api/v1/namespaces/brief/configmaps", `{metadata: {name: inside}}`)
	s.must(admin, "DELETE", "/api/v1/namespaces/brief", "")
	s.gone("/api/v1/namespaces/brief")
	s.do("what was in it", admin, "GET", "/api/v1/namespaces/brief/configmaps/inside", "")
	s.do("delete a collection", admin, "DELETE", all+"?labelSelector=x%3Dnone", "")
}

// web is a deployment of pods that any node can run.
func web(name string, replicas int, more string) string {
	return fmt.Sprintf(`
metadata: {name: %s}
spec:
  replicas: %d
  selector: {matchLabels: {app: %s}}
  template:
    metadata: {labels: {app: %s}}
    spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: i%s}]}`, name, replicas, name, name, more)
}

// running says that a list has so many pods, and all run.
func running(n int) func(answer) bool {
	return func(a answer) bool {
		items, _ := a.object()["items"].([]any)
		for _, item := range items {
			if text(item, "status", "phase") != "Running" || text(item, "metadata", "deletionTimestamp") != "" {
				return false
			}
		}

		return len(items) == n
	}
}

func nodes(s *side) {
	const all = "/api/v1/nodes"

	own := func(labels string) string {
		return fmt.Sprintf(`{metadata: {name: n3, labels: {%s}}, spec: {taints: [{key: a, effect: NoSchedule}]}}`, labels)
	}

	s.do("another's registration", node("n2"), "POST", all, own(""))
	s.do("a role by the kubelet", node("n3"), "POST", all, own(`node-role.kubernetes.io/worker: ""`))
	s.do("a restricted label", node("n3"), "POST", all, own(`tenant.node-restriction.kubernetes.io/x: "1"`))
	s.do("several of them", node("n3"), "POST", all,
		own(`node-role.kubernetes.io/worker: "", k8s.io/x: "1", example.com/x: "1", topology.kubernetes.io/zone: z`))
	s.do("registration", node("n3"), "POST", all,
		own(`example.com/x: "1", topology.kubernetes.io/zone: z, node.kubernetes.io/instance-type: t`))
	s.until(all+"/n3", has("podCIDR"))
	s.do("registration again", node("n3"), "POST", all, own(""))
	s.do("read itself", node("n3"), "GET", all+"/n3", "")
	s.do("read another", node("n3"), "GET", all+"/n1", "")
	s.do("list all", node("n3"), "GET", all+"?fieldSelector=metadata.name%3Dn3", "")
	s.do("list without a selector", node("n3"), "GET", all, "")
	s.do("a label", node("n3"), "MERGE", all+"/n3", `{metadata: {labels: {example.com/y: "2"}}}`)
	s.do("a forbidden label", node("n3"), "MERGE", all+"/n3", `{metadata: {labels: {node-role.kubernetes.io/worker: ""}}}`)
	s.do("a taint", node("n3"), "MERGE", all+"/n3", `{spec: {taints: [{key: b, effect: NoSchedule}]}}`)
	s.do("no taint", node("n3"), "MERGE", all+"/n3", `{spec: {taints: null}}`)
	s.do("cordons itself", node("n3"), "MERGE", all+"/n3", `{spec: {unschedulable: true}}`)
	s.until(all+"/n3", has("node.kubernetes.io/unschedulable"))
	s.do("uncordons itself", node("n3"), "MERGE", all+"/n3", `{spec: {unschedulable: null}}`)
	s.until(all+"/n3", func(a answer) bool { return !has("node.kubernetes.io/unschedulable")(a) })
	s.do("an owner", node("n3"), "MERGE", all+"/n3",
		`{metadata: {ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: 00000000-0000-4000-a000-000000000000}]}}`)
	s.do("another's label", node("n3"), "MERGE", all+"/n1", `{metadata: {labels: {a: b}}}`)
	s.do("its status", node("n3"), "STRATEGIC", all+"/n3/status",
		`{status: {conditions: [{type: Ready, status: "False", reason: R, message: M}]}}`)
	s.do("another's status", node("n3"), "STRATEGIC", all+"/n1/status", `{status: {conditions: []}}`)
	s.do("deletes itself", node("n3"), "DELETE", all+"/n3", "")
	s.do("reads a secret", node("n3"), "GET", "/api/v1/namespaces/default/secrets/s", "")
	s.do("lists secrets", node("n3"), "GET", "/api/v1/namespaces/default/secrets", "")
	s.do("lists services", node("n3"), "GET", "/api/v1/services?labelSelector=x%3Dnone", "")
	s.do("lists its pods", node("n3"), "GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn3", "")
	s.do("lists all pods", node("n3"), "GET", "/api/v1/pods", "")
	s.do("lists deployments", node("n3"), "GET", "/apis/apps/v1/deployments", "")
	s.do("reads the slices of the API", node("n3"), "GET",
		"/apis/discovery.k8s.io/v1/endpointslices?labelSelector=x%3Dnone", "")
	s.do("another's lease", node("n3"), "POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
		`{metadata: {name: n4}, spec: {holderIdentity: n4}}`)
	s.do("its lease", node("n3"), "POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
		`{metadata: {name: n3}, spec: {holderIdentity: n3, leaseDurationSeconds: 40}}`)

	mirror := func(name, nodeName, annotation string) string {
		uid := s.send(admin, "GET", all+"/n3", "").at("metadata", "uid")

		return fmt.Sprintf(`
metadata:
  name: %s
  annotations: {%s}
  ownerReferences: [{apiVersion: v1, kind: Node, name: n3, uid: %s, controller: true}]
spec: {nodeName: %s, hostNetwork: true, containers: [{name: c, image: i}]}`, name, annotation, uid, nodeName)
	}

	const system = "/api/v1/namespaces/kube-system/pods"

	s.do("a pod that is no mirror", node("n3"), "POST", system, mirror("static-n3", "n3", ""))
	s.do("a mirror on another node", node("n3"), "POST", system, mirror("static-n3", "n1", `kubernetes.io/config.mirror: m`))
	s.do("a mirror", node("n3"), "POST", system, mirror("static-n3", "n3", `kubernetes.io/config.mirror: m`))
	s.known("another evicts it", node("n1"), "POST", system+"/static-n3/eviction",
		`{apiVersion: policy/v1, kind: Eviction, metadata: {name: static-n3}}`)
	s.do("the status of the mirror", node("n3"), "STRATEGIC", system+"/static-n3/status",
		`{status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`)
	s.do("another's mirror", node("n1"), "DELETE", system+"/static-n3", `{gracePeriodSeconds: 0}`)
	s.do("the end of the mirror", node("n3"), "DELETE", system+"/static-n3", `{gracePeriodSeconds: 0}`)
	s.gone(system + "/static-n3")

	// what an administrator does
	s.do("a role by an administrator", admin, "MERGE", all+"/n3", `{metadata: {labels: {node-role.kubernetes.io/worker: ""}}}`)
	s.do("a taint by an administrator", admin, "MERGE", all+"/n3", `{spec: {taints: [{key: b, value: "1", effect: NoExecute}]}}`)
	s.do("a taint of no effect", admin, "MERGE", all+"/n3", `{spec: {taints: [{key: b, effect: Sometimes}]}}`)
	s.do("a taint twice", admin, "MERGE", all+"/n3",
		`{spec: {taints: [{key: b, effect: NoSchedule}, {key: b, value: x, effect: NoSchedule}]}}`)
	s.do("a wrong label of a node", admin, "MERGE", all+"/n3", `{metadata: {labels: {"a/b/c": d}}}`)
	s.do("status by the way of the node", admin, "MERGE", all+"/n3", `{status: {phase: Running}}`)
	s.do("labels by the way of the status", admin, "MERGE", all+"/n3/status", `{metadata: {labels: {by: status}}}`)
	s.do("delete a node", admin, "DELETE", all+"/n3", "")
	s.do("its name is free", admin, "GET", all+"/n3", "")
	s.do("its pods", admin, "GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn3", "")
}

// events are the first ones of a watch, with the names of the objects.
func (s *side) events(label, user, path string, n int, change func()) {
	s.Helper()

	client, err := rest.HTTPClientFor(s.config(user))
	require.NoError(s, err)

	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
	defer cancel()

	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://%s:%d%s", s.address, upstream.Port, path), nil)
	require.NoError(s, err)

	res, err := client.Do(r)
	require.NoError(s, err)
	defer res.Body.Close()

	if change != nil {
		change()
	}

	var seen []string

	for lines := bufio.NewScanner(res.Body); len(seen) < n && lines.Scan(); {
		var e struct {
			Type   string
			Object map[string]any
		}

		require.NoError(s, json.Unmarshal(lines.Bytes(), &e))

		what := text(e.Object, "metadata", "name")
		if e.Type == "ERROR" {
			what = text(e.Object, "reason") + " " + text(e.Object, "code")
		}

		seen = append(seen, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Type, text(e.Object, "kind"), what)))
	}

	s.note(label, fmt.Sprint(res.StatusCode, " ", res.Header.Get("Content-Type"), " ", strings.Join(seen, ", ")))
}

func watches(s *side) {
	const all = "/api/v1/namespaces/own/configmaps"

	a := s.must(admin, "GET", "/api/v1/namespaces/own/configmaps", "")
	version := a.at("metadata", "resourceVersion")

	change := func() {
		s.must(admin, "POST", all, `{metadata: {name: w1, labels: {x: "1"}}}`)
		s.must(admin, "POST", all, `{metadata: {name: w2}}`)
		s.must(admin, "MERGE", all+"/w1", `{metadata: {labels: {x: "2"}}}`)
		s.must(admin, "MERGE", all+"/w1", `{metadata: {labels: {x: "2"}}}`)
		s.must(admin, "DELETE", all+"/w2", "")
	}

	s.events("watch from a version", admin, all+"?watch=1&fieldSelector=metadata.name%21%3Dkube-root-ca.crt&resourceVersion="+version, 4, change)
	s.events("watch what has been", admin, all+"?watch=true&fieldSelector=metadata.name%21%3Dkube-root-ca.crt&resourceVersion="+version, 4, nil)
	s.events("watch what matches", admin, all+"?watch=1&labelSelector=x%3D1&resourceVersion="+version, 2, nil)
	s.events("watch one", admin, all+"?watch=1&fieldSelector=metadata.name%3Dw1&resourceVersion="+version, 2, nil)
	s.events("watch from now", admin, all+"?watch=1&fieldSelector=metadata.name%3Dw1", 1, nil)
	s.events("watch from anywhere", admin, all+"?watch=1&resourceVersion=0&fieldSelector=metadata.name%3Dw1", 1, nil)
	s.events("watch until a mark", admin, all+"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"+
		"&allowWatchBookmarks=true&fieldSelector=metadata.name%3Dw1", 2, nil)
	s.events("watch for a second", admin, all+"?watch=1&timeoutSeconds=1&resourceVersion="+version+
		"&labelSelector=x%3Dnone", 1, nil)
	s.do("watch from a wrong version", admin, "GET", all+"?watch=1&resourceVersion=x", "")
	s.do("watch by a guest", guest, "GET", all+"?watch=1", "")
}

// podsOf are the names of the pods of a deployment that are on no node, or on the one.
func (s *side) podsOf(app, nodeName string) []string {
	s.Helper()

	query := "labelSelector=" + url.QueryEscape("app="+app)
	if nodeName != "" {
		query += "&fieldSelector=" + url.QueryEscape("spec.nodeName="+nodeName)
	}

	var out []string

	items, _ := s.must(admin, "GET", "/api/v1/pods?"+query, "").object()["items"].([]any)
	for _, item := range items {
		out = append(out, text(item, "metadata", "name"))
	}

	return out
}

func (s *side) evict(label, user, namespace, name, more string) answer {
	s.Helper()

	return s.do(label, user, "POST", "/api/v1/namespaces/"+namespace+"/pods/"+name+"/eviction",
		fmt.Sprintf(`{apiVersion: policy/v1, kind: Eviction, metadata: {name: %s, namespace: %s}, %s}`, name, namespace, more))
}

// budget makes a disruption budget, and waits until it is counted.
func (s *side) budget(namespace, name, app, spec string) {
	s.Helper()

	path := "/apis/policy/v1/namespaces/" + namespace + "/poddisruptionbudgets"
	s.must(admin, "POST", path, fmt.Sprintf(`{metadata: {name: %s}, spec: {%s, selector: {matchLabels: {app: %s}}}}`,
		name, spec, app))
	s.counted(namespace, name)
}

func (s *side) counted(namespace, name string) answer {
	s.Helper()

	return s.until("/apis/policy/v1/namespaces/"+namespace+"/poddisruptionbudgets/"+name, func(a answer) bool {
		status, _ := a.object()["status"].(map[string]any)

		return status["observedGeneration"] != nil && text(status, "expectedPods") != "0"
	})
}

func evictions(s *side) {
	const (
		pods    = "/api/v1/namespaces/default/pods"
		budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
	)

	s.must(admin, "POST", "/apis/apps/v1/namespaces/default/deployments", web("web", 2, ""))
	s.until(pods+"?labelSelector=app%3Dweb", running(2))

	pod := s.podsOf("web", "")[0]
	s.evict("evict none", admin, "default", "none", "")
	s.evict("evict by a guest", guest, "default", pod, "")
	s.do("evict another name", admin, "POST", pods+"/"+pod+"/eviction",
		`{apiVersion: policy/v1, kind: Eviction, metadata: {name: other}}`)
	s.evict("evict, dry", admin, "default", pod, `deleteOptions: {dryRun: [All]}`)
	s.evict("evict another uid", admin, "default", pod,
		`deleteOptions: {preconditions: {uid: 00000000-0000-4000-a000-000000000000}}`)

	s.budget("default", "all", "web", "minAvailable: 2")
	s.record("a budget that is full", s.counted("default", "all"))
	s.evict("evict what is held", admin, "default", pod, "")
	s.evict("evict what is held, dry", admin, "default", pod, `deleteOptions: {dryRun: [All]}`)

	for _, spec := range []string{"minAvailable: 50%", "minAvailable: 100%", "maxUnavailable: 1", "maxUnavailable: 0"} {
		s.must(admin, "DELETE", budgets+"/all", "")
		s.budget("default", "all", "web", spec)
		s.record("a budget of "+spec, s.counted("default", "all"))
	}

	s.must(admin, "DELETE", budgets+"/all", "")
	s.budget("default", "one", "web", "minAvailable: 1")
	s.evict("evict one", admin, "default", pod, "")
	s.gone(pods + "/" + pod)
	s.until(pods+"?labelSelector=app%3Dweb", running(2))

	s.budget("default", "two", "web", "minAvailable: 0")
	s.evict("evict with two budgets", admin, "default", s.podsOf("web", "")[0], "")
	s.must(admin, "DELETE", budgets+"/one", "")
	s.must(admin, "DELETE", budgets+"/two", "")

	// pods of a daemon set and pods of no controller
	s.must(admin, "POST", pods, `{metadata: {name: single, labels: {app: single}},
spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: i}]}}`)
	s.until(pods+"/single", func(a answer) bool { return a.at("status", "phase") == "Running" })
	s.must(admin, "POST", budgets, `{metadata: {name: single}, spec: {maxUnavailable: 1, selector: {matchLabels: {app: single}}}}`)
	s.record("a budget of a pod of no controller", s.until(budgets+"/single", func(a answer) bool {
		status, _ := a.object()["status"].(map[string]any)

		return status["observedGeneration"] != nil
	}))
	s.evict("evict the single one", admin, "default", "single", "")
	s.must(admin, "DELETE", budgets+"/single", "")

	// pods that are not ready; Talos does not let them load modules
	s.must(admin, "POST", "/apis/apps/v1/namespaces/kube-system/deployments",
		web("held", 1, ", securityContext: {capabilities: {add: [SYS_MODULE]}}"))
	s.until("/api/v1/namespaces/kube-system/pods?labelSelector=app%3Dheld", running(1))

	sick := s.podsOf("held", "")[0]
	s.budget("kube-system", "held", "held", "minAvailable: 1")
	s.evict("evict what is not ready", admin, "kube-system", sick, "")
	s.must(admin, "DELETE", "/apis/policy/v1/namespaces/kube-system/poddisruptionbudgets/held", "")
	s.budget("kube-system", "held", "held", "minAvailable: 1, unhealthyPodEvictionPolicy: AlwaysAllow")
	s.evict("evict what is not ready, always", admin, "kube-system", sick, "")
	s.gone("/api/v1/namespaces/kube-system/pods/" + sick)
	s.must(admin, "DELETE", "/apis/apps/v1/namespaces/kube-system/deployments/held", "")
	s.must(admin, "DELETE", "/apis/apps/v1/namespaces/default/deployments/web", "")
	s.until(pods+"?labelSelector=app%3Dweb", running(0))
}

func tables(s *side) {
	const table = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

	s.do("nodes", admin, "GET", "/api/v1/nodes", "", table)
	s.do("a node", admin, "GET", "/api/v1/nodes/n1", "", table)
	s.do("a node that is not there", admin, "GET", "/api/v1/nodes/none", "", table)
	s.do("namespaces", admin, "GET", "/api/v1/namespaces?fieldSelector=metadata.name%3Ddefault", "", table)
	s.do("config maps", admin, "GET", "/api/v1/namespaces/own/configmaps?labelSelector=x%3D2", "", table)
	s.do("services", admin, "GET", "/api/v1/namespaces/own/services", "", table)
	s.do("pods", admin, "GET", "/api/v1/namespaces/own/pods", "", table)
	s.do("deployments", admin, "GET", "/apis/apps/v1/namespaces/own/deployments", "", table)
	s.do("daemon sets", admin, "GET", "/apis/apps/v1/namespaces/own/daemonsets", "", table)
	s.do("jobs", admin, "GET", "/apis/batch/v1/namespaces/own/jobs", "", table)
	s.do("secrets", admin, "GET", "/api/v1/namespaces/own/secrets", "", table)
	s.do("leases", admin, "GET", "/apis/coordination.k8s.io/v1/namespaces/own/leases", "", table)
	s.do("budgets", admin, "GET", "/apis/policy/v1/namespaces/own/poddisruptionbudgets", "", table)
}

// removed are versions of APIs that are gone, and old ones that remain.
func removed(s *side) {
	for _, path := range []string{
		"/apis/policy/v1beta1", "/apis/batch/v1beta1", "/apis/extensions/v1beta1", "/apis/autoscaling/v2beta2",
		"/apis/flowcontrol.apiserver.k8s.io/v1beta3", "/apis/storage.k8s.io/v1beta1/csistoragecapacities",
	} {
		s.do("GET "+path, admin, "GET", path, "")
	}

	s.do("endpoints", admin, "POST", "/api/v1/namespaces/own/endpoints", `{metadata: {name: e}}`)
}
