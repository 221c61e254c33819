package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/tests/lab/kube"
	"talos-proxmox/tests/upstream"
)

// program makes the calls of the program.
func program(s *side) {
	c, err := kubeapi.New(s.kubeconfig(), s.address)
	require.NoError(s, err)

	ctx, quiet := s.Context(), func(string) {}
	tell := func() {
		all, err := c.Nodes(ctx)
		require.NoError(s, err)

		for _, n := range all {
			require.NotZero(s, n.Reported)
			n.Boot, n.Reported = "", time.Time{}
			s.note("node", fmt.Sprintf("%+v", n))
		}
	}

	tell()

	s.must(admin, "POST", "/apis/apps/v1/namespaces/default/deployments", web("web", 2, ""))
	s.until("/api/v1/namespaces/default/pods?labelSelector=app%3Dweb", running(2))
	s.budget("default", "web", "web", "minAvailable: 2")

	// all its pods are on one node
	s.fault("cordon", c.Cordon(ctx, "n1"))
	tell()
	s.must(admin, "DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web", "")
	s.fault("drain", c.Drain(ctx, "n1", 20*time.Second, quiet))
	s.until("/api/v1/namespaces/default/pods?labelSelector=app%3Dweb", running(2))
	s.note("pods of n1", fmt.Sprint(len(s.podsOf("web", "n1"))))
	s.note("pods of n2", fmt.Sprint(len(s.podsOf("web", "n2"))))
	s.budget("default", "web", "web", "minAvailable: 2")
	s.fault("cordon the other", c.Cordon(ctx, "n2"))
	s.fault("drain what is held", c.Drain(ctx, "n2", 3*time.Second, quiet))
	s.must(admin, "DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web", "")
	s.fault("uncordon", c.Uncordon(ctx, "n1"))
	s.fault("uncordon the other", c.Uncordon(ctx, "n2"))
	s.fault("uncordon a missing node", c.Uncordon(ctx, "none"))
	tell()

	want := kubeapi.NodeLabels{
		Labels: map[string]string{"node-role.kubernetes.io/worker": "", "example.com/rack": "1"},
		Taints: []corev1.Taint{{Key: "example.com/gpu", Effect: corev1.TaintEffectNoSchedule}},
	}
	changes, err := c.SetLabels(ctx, "n1", want, false)
	s.note("labels", fmt.Sprintf("%+v %v", changes, err))
	changes, err = c.SetLabels(ctx, "n1", want, true)
	s.note("labels again", fmt.Sprintf("%+v %v", changes, err))
	changes, err = c.SetLabels(ctx, "n1", kubeapi.NodeLabels{}, false)
	s.note("no labels", fmt.Sprintf("%+v %v", changes, err))

	var objects []*unstructured.Unstructured

	for _, text := range manifests {
		o := &unstructured.Unstructured{}
		require.NoError(s, yaml.Unmarshal([]byte(text), &o.Object))
		objects = append(objects, o)
	}

	for _, inventory := range []bool{false, true} {
		for _, round := range []string{"sync", "sync again"} {
			var said []string

			err := c.Sync(ctx, objects, inventory, 20*time.Second, func(text string) { said = append(said, text) })
			s.note(fmt.Sprint(round, ", inventory: ", inventory), fmt.Sprint(said, err))
		}
	}

	const synced = "/api/v1/namespaces/kube-system/configmaps/synced"

	s.must(admin, "MERGE", synced, `{metadata: {annotations: {config.k8s.io/owning-inventory: other}}}`)
	s.fault("another's inventory", c.Sync(ctx, objects[:1], true, 20*time.Second, quiet))
	s.must(admin, "MERGE", synced, `{metadata: {annotations: {config.k8s.io/owning-inventory: null}}}`)

	// What needs another object comes first: it is tried again. They are more than a client may ask for at once by default.
	var applied []kubeapi.Manifest

	for i := range 60 {
		applied = append(applied, manifest(s, fmt.Sprintf(
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: late-%d, namespace: late}, data: {a: ours}}`, i)))
	}

	secret := manifest(s, `{apiVersion: v1, kind: Secret, metadata: {name: late, namespace: late}, stringData: {a: ours}}`)
	secret.Secret = true
	applied = append(applied, secret, manifest(s, `{apiVersion: v1, kind: Namespace, metadata: {name: late}}`))

	const late = "/api/v1/namespaces/late/"

	s.fault("apply", c.Apply(ctx, applied, 20*time.Second, quiet))
	s.must(admin, "GET", late+"secrets/late", "")
	s.fault("apply again", c.Apply(ctx, applied, 20*time.Second, quiet))
	s.must(admin, "MERGE", late+"configmaps/late-1", `{data: {a: theirs, b: more}}`)
	s.must(admin, "MERGE", late+"secrets/late", `{data: {a: dGhlaXJz}}`)
	s.fault("apply what others have set", c.Apply(ctx, applied, 20*time.Second, quiet))
	s.must(admin, "GET", late+"configmaps/late-1", "")
	s.must(admin, "GET", late+"secrets/late", "")

	wrong := manifest(s, `{apiVersion: v1, kind: ConfigMap, metadata: {name: late, namespace: late}, data: {a: {b: hunter2}}}`)
	wrong.Secret = true
	err = c.Apply(ctx, []kubeapi.Manifest{wrong}, 20*time.Second, quiet)
	require.ErrorContains(s, err, "ConfigMap late/late: the API server refuses it, with the status 500")

	found, err := c.Removed(ctx, "1.33.0", "1.34.0")
	s.note("removed APIs", fmt.Sprint(found, err))
	s.fault("delete a node that is not there", c.DeleteNode(ctx, "none", anyNode))
	s.join("n4")
	s.fault("delete a node", c.DeleteNode(ctx, "n4", anyNode))
	s.gone("/api/v1/nodes/n4")

	_, there, err := c.Node(ctx, "n4")
	s.note("the node is there", fmt.Sprint(there, err))
	s.must(admin, "DELETE", "/apis/apps/v1/namespaces/default/deployments/web", "")
	s.until("/api/v1/namespaces/default/pods?labelSelector=app%3Dweb", running(0))

	// what Talos and K3s do with the credentials of a kubelet
	k := s.join("n5", func(k *kube.Kubelet) {
		k.StaticPods = []corev1.Pod{{
			TypeMeta: k.Node.TypeMeta, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i:v1"}}},
		}}
		k.StaticPods[0].Name, k.StaticPods[0].Namespace = "kube-apiserver-n5", "kube-system"
		k.StaticPods[0].Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "m", "example.com/settings": "1"}
	})
	s.fault("a static pod", c.WaitStaticPod(ctx, "kube-apiserver", "n5", "i:v1", 10*time.Second, quiet))
	s.fault("its settings", c.CheckStaticPod(ctx, "kube-apiserver", "n5", map[string]string{"example.com/settings": "1"}))
	require.EqualError(s, c.CheckStaticPod(ctx, "kube-apiserver", "n5", map[string]string{"example.com/settings": "2"}),
		"kube-apiserver-n5 to run with its settings")
	require.EqualError(s, c.CheckStaticPod(ctx, "kube-scheduler", "n5", nil), "kube-scheduler-n5 to be there")
	s.fault("a worker's labels and taints", k.Apply(ctx, kube.NodeSpec{
		Labels: map[string]string{"node-role.kubernetes.io/worker": ""},
		Taints: []corev1.Taint{{Key: "example.com/gpu", Effect: corev1.TaintEffectNoSchedule}},
	}))
	s.fault("a worker's cordon", k.Apply(ctx, kube.NodeSpec{Cordoned: true}))
	s.until("/api/v1/nodes/n5", has("NoSchedule"))
	s.fault("and its end", k.Apply(ctx, kube.NodeSpec{}))
	s.fault("its drain", k.Drain(ctx))

	k.StaticPods = []corev1.Pod{}
	s.fault("it has no static pod any more", k.Join(ctx))
	s.gone("/api/v1/namespaces/kube-system/pods/kube-apiserver-n5")
	s.fault("delete it", c.DeleteNode(ctx, "n5", anyNode))
	s.gone("/api/v1/nodes/n5")
}

func anyNode(kubeapi.Node) error { return nil }

func manifest(s *side, text string) kubeapi.Manifest {
	o := &unstructured.Unstructured{}
	require.NoError(s, yaml.Unmarshal([]byte(text), &o.Object))

	return kubeapi.Manifest{Unstructured: o}
}

// drains are of a node with a pod that is deleted and does not go.
func drains(s *side) {
	const one = "/api/v1/namespaces/default/pods/stuck"

	c, err := kubeapi.New(s.kubeconfig(), s.address)
	require.NoError(s, err)

	ctx, quiet := s.Context(), func(string) {}
	facts := func(label string) {
		a := s.must(admin, "GET", one, "")
		s.note(label, fmt.Sprint(a.at("status", "phase"), " ", a.at("metadata", "deletionGracePeriodSeconds"), " ",
			a.at("metadata", "deletionTimestamp") != ""))
	}

	s.must(admin, "POST", "/api/v1/namespaces/default/pods", `
metadata: {name: stuck, labels: {app: stuck}, finalizers: [lab.example/hold]}
spec: {nodeName: n1, terminationGracePeriodSeconds: 1, containers: [{name: c, image: i}]}`)
	s.until(one, func(a answer) bool { return a.at("status", "phase") == "Running" })
	facts("it runs")
	s.fault("cordon", c.Cordon(ctx, "n1"))
	s.fault("drain what does not end", c.Drain(ctx, "n1", 2*time.Second, quiet))
	s.until(one, func(a answer) bool { return a.at("metadata", "deletionGracePeriodSeconds") == "0" })
	facts("it does not go")
	s.fault("drain it again", c.Drain(ctx, "n1", 2*time.Second, quiet))
	s.evict("evict it again", admin, "default", "stuck", "")
	s.do("delete it again", admin, "DELETE", one+"?dryRun=All", `{preconditions: {uid: 00000000-0000-4000-a000-000000000000}}`)
	s.must(admin, "POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
		`{metadata: {name: stuck}, spec: {minAvailable: 1, selector: {matchLabels: {app: stuck}}}}`)
	s.until("/apis/policy/v1/namespaces/default/poddisruptionbudgets/stuck", has("observedGeneration"))
	s.evict("evict it with a budget", admin, "default", "stuck", "")
	s.must(admin, "DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/stuck", "")
	s.must(admin, "MERGE", one, `{metadata: {finalizers: null}}`)
	s.gone(one)
	s.fault("drain the node that is empty", c.Drain(ctx, "n1", 20*time.Second, quiet))
	s.fault("uncordon", c.Uncordon(ctx, "n1"))
}

// manifests are like those that Talos installs.
var manifests = []string{`
apiVersion: v1
kind: ConfigMap
metadata: {name: synced, namespace: kube-system}
data: {k: v}`, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: synced, namespace: kube-system}`, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:synced"}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get]}]`, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: synced}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:synced"}
subjects: [{kind: ServiceAccount, name: synced, namespace: kube-system}]`}

// cilium is a job of the Cilium CLI, which may do nothing at first.
func cilium(s *side) {
	const (
		ofJob = "/api/v1/namespaces/kube-system/pods?labelSelector=app%3Dcilium-install"
		job   = "/apis/batch/v1/namespaces/kube-system/jobs"
		agent = "/apis/apps/v1/namespaces/kube-system/daemonsets/cilium"
	)

	// told is why the containers of the job wait.
	told := func(a answer) string {
		var pods corev1.PodList
		if json.Unmarshal(a.body, &pods) != nil || len(pods.Items) != 1 {
			return ""
		}

		for _, c := range pods.Items[0].Status.ContainerStatuses {
			if c.State.Waiting != nil {
				return c.Name + ": " + c.State.Waiting.Reason + ": " + c.State.Waiting.Message
			}
		}

		return ""
	}
	install := func(version string) {
		s.must(admin, "POST", job, fmt.Sprintf(ciliumJob, strings.ReplaceAll(version, ".", "-"), version))
	}
	installed := func(version string) {
		s.until(job+"/install-"+strings.ReplaceAll(version, ".", "-"), has(`"type":"Complete"`))

		a := s.until(agent, found)

		var set appsv1.DaemonSet
		require.NoError(s, json.Unmarshal(a.body, &set))

		c := set.Spec.Template.Spec.Containers[0]
		s.note("agents", fmt.Sprint(c.Name, " ", c.Image, " ", c.SecurityContext.Capabilities.Add))

		for _, name := range []string{"ipam", "kube-proxy-replacement"} {
			s.note(name, s.must(admin, "GET", "/api/v1/namespaces/kube-system/configmaps/cilium-config", "").at("data", name))
		}

		s.note("operators", s.must(admin, "GET", "/apis/apps/v1/namespaces/kube-system/deployments/cilium-operator", "").
			at("spec", "replicas"))
	}

	s.must(admin, "POST", "/api/v1/namespaces/kube-system/serviceaccounts", `{metadata: {name: cilium-install}}`)
	install("1.18.3")
	s.note("without rights", told(s.until(ofJob, func(a answer) bool { return told(a) != "" })))

	s.must(admin, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `
metadata: {name: cilium-install}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: cilium-install, namespace: kube-system}]`)
	s.note("without values", told(s.until(ofJob, func(a answer) bool { return strings.Contains(told(a), "configmap") })))

	s.must(admin, "POST", "/api/v1/namespaces/kube-system/configmaps", `
metadata: {name: cilium-install}
data: {values.yaml: "ipam: {mode: kubernetes}\nkubeProxyReplacement: true\noperator: {replicas: 1}\n"}`)
	installed("1.18.3")

	s.must(admin, "DELETE", job+"/install-1-18-3?propagationPolicy=Foreground", "")
	s.gone(job + "/install-1-18-3")
	install("1.18.4")
	installed("1.18.4")
}

// ciliumJob is one as the program makes it, with its name and the version of Cilium.
const ciliumJob = `
metadata: {name: install-%[1]s}
spec:
  backoffLimit: 100
  template:
    metadata: {labels: {app: cilium-install}}
    spec:
      hostNetwork: true
      serviceAccountName: cilium-install
      restartPolicy: OnFailure
      tolerations: [{operator: Exists}]
      initContainers:
      - name: install
        image: quay.io/cilium/cilium-cli:v0.19.7
        restartPolicy: Always
        command: [cilium, install, --version, "%[2]s", --values, /values/values.yaml]
        env: &env [{name: KUBERNETES_SERVICE_HOST, value: localhost}, {name: KUBERNETES_SERVICE_PORT, value: "7445"}]
        volumeMounts: &mounts [{name: values, mountPath: /values}]
      containers:
      - name: upgrade
        image: quay.io/cilium/cilium-cli:v0.19.7
        command: [cilium, upgrade, --version, "%[2]s", --values, /values/values.yaml, --reset-values]
        env: *env
        volumeMounts: *mounts
      volumes: [{name: values, configMap: {name: cilium-install}}]`

// kubectl calls the real kubectl.
func kubectl(s *side) {
	binary, err := upstream.Open(s.Context())
	require.NoError(s, err)

	dir := s.TempDir()
	config := filepath.Join(dir, "config")
	require.NoError(s, os.WriteFile(config, s.kubeconfig(), 0o600))
	require.NoError(s, os.WriteFile(filepath.Join(dir, "m.yaml"), []byte(manifests[0]), 0o600))

	run := func(args ...string) {
		out, err := binary.Run(s.Context(), append([]string{
			"kubectl", "--kubeconfig=" + config, "--cache-dir=" + filepath.Join(dir, "cache"),
		}, args...)...)
		text := string(out)

		if err != nil {
			text += err.Error()
		}

		text = strings.ReplaceAll(text, dir, "<dir>")

		var lines []string
		for line := range strings.Lines(text) {
			lines = append(lines, s.plain(shortAges.ReplaceAllString(strings.Join(strings.Fields(line), " "), "<age>")))
		}

		s.note("kubectl "+strings.ReplaceAll(strings.Join(args, " "), dir, "<dir>"), strings.Join(lines, "\n"))
	}

	s.must(admin, "POST", "/apis/apps/v1/namespaces/default/deployments", web("web", 1, ""))
	s.until("/api/v1/namespaces/default/pods?labelSelector=app%3Dweb", running(1))
	run("get", "nodes", "-o", "wide")
	run("get", "nodes", "n1", "-o", "name")
	run("get", "pods", "-A", "-l", "app=web")
	run("get", "ns", "default")
	run("get", "node", "none")
	run("label", "node", "n1", "example.com/a=b")
	run("label", "node", "n1", "example.com/a=c")
	run("label", "node", "n1", "example.com/a-")
	run("taint", "node", "n1", "example.com/a=b:NoSchedule")
	run("taint", "node", "n1", "example.com/a-")
	run("annotate", "node", "n1", "example.com/a=b")
	run("cordon", "n1")
	run("cordon", "n1")
	run("get", "nodes")
	run("uncordon", "n1")
	run("apply", "-f", filepath.Join(dir, "m.yaml"))
	run("apply", "-f", filepath.Join(dir, "m.yaml"))
	run("scale", "deployment", "web", "--replicas=2")
	run("delete", "-f", filepath.Join(dir, "m.yaml"))
	run("delete", "node", "none")
	run("auth", "can-i", "delete", "nodes")
	run("auth", "whoami")
	run("api-resources", "--api-group=policy", "-o", "wide")
	run("apply", "--server-side", "-f", filepath.Join(dir, "m.yaml"))
	run("get", "--raw", "/readyz")
	s.must(admin, "DELETE", "/apis/apps/v1/namespaces/default/deployments/web", "")
	s.until("/api/v1/namespaces/default/pods?labelSelector=app%3Dweb", running(0))
}

// shortAges are the ages that kubectl prints.
var shortAges = regexp.MustCompile(`\b\d+[smh](\d+[smh])?\b`)
