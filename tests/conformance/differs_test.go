package conformance

// The reasons of differences that concern many answers.
const (
	defaults    = "the lab fills in those defaults of pods and services that something reads"
	annotated   = "an annotation of the controllers that only kubelets read"
	immediate   = "the lab's controllers act at once, before a request is answered"
	hollow      = "an empty document, which no client reads"
	described   = "the lab does not describe its columns"
	notStored   = "refused and recorded: the lab does not store the kind"
	few         = "the lab has fewer groups and resources; asking for one that Kubernetes has is refused and recorded"
	unvalidated = "the lab checks names, labels, finalizers and taints; what the program writes otherwise is made of types"
	wording     = "a text that has an internal form of Kubernetes in it"
)

// differs are the differences that stay, by scenario.
var differs = map[string][]known{
	"who asks": {
		{"a guest asks for the version", "body.*", "of the build"},
		{"who am I", "body.metadata*", hollow},
		{"who am I", "body.status.userInfo.extra*", "the lab has no IDs of credentials"},
		{"may *", "body.metadata extra", hollow},
	},
	"what there is": {
		{"GET /version", "body.*", "of the build"},
		{"GET /api", "body.serverAddressByClientCIDRs*", "an address of the machine"},
		{"GET /api*", "body.* missing", few},
		{"GET /api/v1", "body.apiVersion extra", hollow},
		{"GET /api/v1", "body.resources[namespaces].verbs*", "the lab has no list of verbs for each kind"},
	},
	"objects": {
		{"create what is none", "body.message", wording},
		{"list with a wrong field", "body.message", wording},
		{"merge a wrong type", "body.*message", wording},
		{"a storage class", "body.*", defaults},
		{"a service", "body.spec*", defaults},
		{"a budget", "body.status*", immediate},
		{"a budget with both", "answer", unvalidated},
		{"a deployment without a selector", "answer", unvalidated},
		{"a pod without containers", "answer", unvalidated},
		{"a privileged pod", "answer", "the lab has no PodSecurity: pods of the program and of Talos are in kube-system"},
		{"a privileged pod of the system, tried", "body.*", defaults},
		{"a webhook", "answer", notStored},
		{"a custom resource definition", "answer", notStored},
	},
	"versions of objects": {
		{"with a wrong version", "answer", unvalidated},
		{"with another uid", "body.message", wording},
		{"node without a version", "answer", unvalidated},
		{"lease without a version", "answer", unvalidated},
	},
	"deletions": {
		{"propagation that is none", "answer", unvalidated},
		{"delete a collection", "answer", "refused and recorded: the lab deletes no collections"},
	},
	"nodes": {
		{"*", "*node.kubernetes.io/not-ready*", immediate},
		{"*", "*node.kubernetes.io/unreachable*", immediate},
		{"*", "body.*metadata.annotations.node.alpha.kubernetes.io/ttl missing", annotated},
		{"registration", "body.spec.podCIDR*", immediate},
		{"*cordons itself", "body.spec.taints[node.kubernetes.io/unschedulable]*", immediate},
		{"a taint twice", "body.*message", wording},
		{"*mirror", "body.metadata.labels.topology.kubernetes.io/zone missing", "Kubernetes 1.35 and later copy it to pods"},
		{"*mirror", "body.spec.*", defaults},
		{"*mirror", "body.status.qosClass missing", defaults},
		{"the end of the mirror", "body.metadata.*", "the lab answers with the pod as it was"},
	},
	"watches": {
		{"watch from a wrong version", "answer", wording},
	},
	"tables": {
		{"*", "body.columnDefinitions[*].description", described},
		{"*", "body.columnDefinitions*", "the lab has the columns of the kinds that people look at"},
		{"*", "body.rows*.cells*", "the lab has the columns of the kinds that people look at"},
		{"*", "body.rows*.object.metadata.annotations.node.alpha.kubernetes.io/ttl missing", annotated},
		{"*", "body.metadata*", hollow},
	},
	"removed": {
		{"*csistoragecapacities", "answer", notStored},
		{"endpoints", "header.Warning[0] missing", "the lab does not warn of what is deprecated"},
	},
	"kubectl": {
		{"kubectl get nodes -o wide", "", "the architecture behind the kernel's version is new in Kubernetes 1.37"},
		{"kubectl scale *", "", "refused and recorded: the lab has no scale subresource"},
		{"kubectl auth whoami", "", "the lab has no IDs of credentials"},
	},
}
