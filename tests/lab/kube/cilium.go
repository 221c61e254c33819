package kube

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

const (
	ciliumName = "cilium"
	// ciliumDir is where the program works in the image of the Cilium CLI.
	ciliumDir = "/root/app"
)

// isCiliumCLI says that an image is the Cilium CLI, released or from its CI.
func isCiliumCLI(image string) bool {
	return strings.Contains(image, "/cilium-cli:") || strings.Contains(image, "/cilium-cli-ci:")
}

var ciliumVersion = regexp.MustCompile(`^v?1\.(1[6-9]|[2-9]\d)\.\d+$`)

// programs is what runs in the containers of a job. The lab knows one program that does something: the Cilium CLI.
type programs struct {
	// helm is the cluster, as the service account of the pod sees it.
	helm helm
	// ignore notes what is not played.
	ignore func(format string, args ...any)
}

// helm is what the Cilium CLI and its Helm ask a cluster for.
type helm interface {
	// readReleases reads what Helm has installed.
	readReleases() error
	// configMap is what the kubelet mounts.
	configMap(name string) (*corev1.ConfigMap, error)
	// installed tells whether the agents are there.
	installed() (bool, error)
	// apply makes an object, or gives it another content.
	apply(obj runtime.Object) error
}

// run runs all containers of a pod, and returns the one that fails and why. A sidecar runs next to the others: its end
// does not count.
func (r programs) run(p *corev1.Pod) (container, problem string) {
	for _, ctr := range append(slices.Clone(p.Spec.InitContainers), p.Spec.Containers...) {
		sidecar := ctr.RestartPolicy != nil && *ctr.RestartPolicy == corev1.ContainerRestartPolicyAlways

		if problem := r.runContainer(p, &ctr); problem != "" && !sidecar {
			return ctr.Name, problem
		}
	}

	return "", ""
}

func (r programs) runContainer(p *corev1.Pod, ctr *corev1.Container) string {
	if isCiliumCLI(ctr.Image) {
		return r.ciliumCLI(p, ctr)
	}

	r.ignore("the program of the job %s, container %s: %s %s", p.GenerateName, ctr.Name, ctr.Image,
		strings.Join(append(slices.Clone(ctr.Command), ctr.Args...), " "))

	return ""
}

// ciliumCLI plays "cilium install" and "cilium upgrade" as far as anybody can see it in the API: the agents, the
// operator and their configuration, of the version and with the values asked for. It returns why the command fails.
func (r programs) ciliumCLI(p *corev1.Pod, ctr *corev1.Container) string {
	// there is no network for pods yet that would lead to the API's service
	if !slices.ContainsFunc(ctr.Env, func(e corev1.EnvVar) bool { return e.Name == "KUBERNETES_SERVICE_HOST" }) ||
		!p.Spec.HostNetwork {
		return "Kubernetes cluster unreachable: dial tcp 10.96.0.1:443: i/o timeout"
	}

	if err := r.helm.readReleases(); err != nil {
		return err.Error()
	}

	command := append(slices.Clone(ctr.Command), ctr.Args...)
	if len(command) < 2 || command[0] != "cilium" {
		r.ignore("a command of the Cilium CLI's image that is not cilium")

		return "exec: no such file or directory"
	}

	verb, version, values, problem := r.ciliumFlags(p, ctr, command[1:])
	if problem != "" {
		return "Error: " + problem
	}

	installed, err := r.helm.installed()

	switch {
	case err != nil:
		return "Error: " + err.Error()
	case verb == "install" && installed:
		return "Error: Unable to install Cilium: cannot re-use a name that is still in use"
	case verb == "upgrade" && !installed:
		return `Error: Unable to upgrade Cilium: "cilium" has no deployed releases`
	}

	for _, obj := range ciliumObjects(version, values) {
		if err := r.helm.apply(obj); err != nil {
			return "Error: " + err.Error()
		}
	}

	return ""
}

// ciliumFlags reads a command line, in any spelling that the Cilium CLI takes. Flags that it knows and that change
// nothing here are noted.
func (r programs) ciliumFlags(p *corev1.Pod, ctr *corev1.Container, args []string) (verb, version string,
	values map[string]any, problem string,
) {
	flags := pflag.NewFlagSet("cilium", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)

	files := flags.StringSliceP("values", "f", nil, "")
	texts := flags.StringArray("set-string", nil, "")
	sets := flags.StringArray("set", nil, "")
	flags.StringVar(&version, "version", "", "")

	for _, name := range []string{"wait", "dry-run", "dry-run-helm-values", "list-versions", "reset-values", "reuse-values"} {
		flags.Bool(name, false, "")
	}

	for _, name := range []string{
		"set-file", "wait-duration", "chart-directory", "repository", "datapath-mode", "nodes-without-cilium",
		"disable-check", "context", "kubeconfig", "as", "as-group", "helm-release-name",
	} {
		flags.String(name, "", "")
	}

	namespace := flags.StringP("namespace", "n", metav1.NamespaceSystem, "")

	if err := flags.Parse(args); err != nil {
		r.ignore("a command line of the Cilium CLI: %v", err)

		return "", "", nil, err.Error()
	}

	if verb = flags.Arg(0); verb != "install" && verb != "upgrade" {
		return "", "", nil, fmt.Sprintf("unknown command %q for \"cilium\"", verb)
	}

	played := []string{"values", "set", "set-string", "version", "reset-values", "namespace"}
	flags.Visit(func(f *pflag.Flag) {
		if !slices.Contains(played, f.Name) || f.Name == "namespace" && *namespace != metav1.NamespaceSystem {
			r.ignore("the flag --%s of the Cilium CLI", f.Name)
		}
	})

	for _, file := range *files {
		found, problem := r.mounted(p, ctr, file)
		if problem != "" {
			return "", "", nil, problem
		}

		values = overlaid(values, found)
	}

	for _, list := range []struct {
		pairs []string
		text  bool
	}{{*sets, false}, {*texts, true}} {
		for _, pairs := range list.pairs {
			for pair := range strings.SplitSeq(pairs, ",") {
				path, value, _ := strings.Cut(pair, "=")
				values = overlaid(values, at(strings.Split(path, "."), value, list.text))
			}
		}
	}

	if !ciliumVersion.MatchString(version) {
		return "", "", nil, "cilium version unsupported " + version
	}

	return verb, strings.TrimPrefix(version, "v"), values, ""
}

// at is a value below keys, of the type that it looks like.
func at(keys []string, text string, isText bool) map[string]any {
	var value any = text

	if number, err := strconv.ParseFloat(text, 64); err == nil && !isText {
		value = number
	} else if on, err := strconv.ParseBool(text); err == nil && !isText {
		value = on
	}

	for _, key := range slices.Backward(keys[1:]) {
		value = map[string]any{key: value}
	}

	return map[string]any{keys[0]: value}
}

// overlaid are values with others over them, as Helm merges them.
func overlaid(values, over map[string]any) map[string]any {
	out := maps.Clone(values)
	if out == nil {
		out = map[string]any{}
	}

	for key, value := range over {
		inner, isBlock := value.(map[string]any)
		below, both := out[key].(map[string]any)

		if isBlock && both {
			value = overlaid(below, inner)
		}

		out[key] = value
	}

	return out
}

// mounted is a YAML file that a container has from a config map.
func (r programs) mounted(p *corev1.Pod, ctr *corev1.Container, file string) (map[string]any, string) {
	at := file
	if !path.IsAbs(at) {
		at = path.Join(cmp.Or(ctr.WorkingDir, ciliumDir), at)
	}

	for _, m := range ctr.VolumeMounts {
		key := path.Base(at)

		switch {
		case m.SubPath != "" && path.Clean(m.MountPath) == at: // the file alone
			key = m.SubPath
		case m.SubPath != "" || path.Clean(m.MountPath) != path.Dir(at):
			continue
		}

		for _, v := range p.Spec.Volumes {
			if v.Name != m.Name || v.ConfigMap == nil {
				continue
			}

			held, err := r.helm.configMap(v.ConfigMap.Name)
			if err != nil {
				return nil, fmt.Sprintf("MountVolume.SetUp failed for volume %q : %s", v.Name, err)
			}

			if text, ok := held.Data[key]; ok {
				var values map[string]any
				if err := yaml.UnmarshalStrict([]byte(text), &values); err != nil {
					return nil, err.Error()
				}

				return values, ""
			}
		}
	}

	return nil, "open " + file + ": no such file or directory"
}

// value looks a Helm value up; what is not there has the chart's default.
func value[T any](values map[string]any, byDefault T, keys ...string) T {
	var at any = values

	for _, k := range keys {
		block, ok := at.(map[string]any)
		if !ok {
			return byDefault
		}

		at = block[k]
	}

	if v, ok := at.(T); ok {
		return v
	}

	return byDefault
}

// ciliumObjects are what the chart makes that can be told from outside.
func ciliumObjects(version string, values map[string]any) []runtime.Object {
	agents := daemonSet(ciliumName, "quay.io/cilium/cilium:v"+version,
		map[string]string{"k8s-app": ciliumName, "app.kubernetes.io/part-of": ciliumName}, "/etc/cni/net.d")
	agent := &agents.Spec.Template.Spec.Containers[0]
	agent.Name = "cilium-agent"
	agent.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{}}

	for _, name := range value(values, []any{"CHOWN", "NET_ADMIN", sysModule}, "securityContext", "capabilities",
		"ciliumAgent") {
		agent.SecurityContext.Capabilities.Add = append(agent.SecurityContext.Capabilities.Add,
			corev1.Capability(fmt.Sprint(name)))
	}

	labels := map[string]string{"io.cilium/app": "operator", "name": "cilium-operator"}
	operatorReplicas := int32(value(values, 2.0, "operator", "replicas"))
	meta := metav1.ObjectMeta{Name: "cilium-operator", Namespace: metav1.NamespaceSystem, Labels: labels}

	return []runtime.Object{
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "cilium-config", Namespace: metav1.NamespaceSystem},
			Data: map[string]string{
				"ipam":                   value(values, "cluster-pool", "ipam", "mode"),
				"kube-proxy-replacement": fmt.Sprint(value(values, false, "kubeProxyReplacement")),
				"cgroup-root":            value(values, "/run/cilium/cgroupv2", "cgroup", "hostRoot"),
			},
		},
		account(ciliumName),
		agents,
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Replicas: &operatorReplicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				HostNetwork: true, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				Containers: []corev1.Container{{Name: "cilium-operator", Image: "quay.io/cilium/operator-generic:v" + version}},
			}},
		}},
	}
}

// sysModule is what the chart gives its agents by default.
const sysModule = "SYS_MODULE"

// refusedByTalos is why a pod's container cannot start on Talos, which lets no pod load kernel modules.
func refusedByTalos(p *corev1.Pod, n *corev1.Node) (container, problem string) {
	if !strings.HasPrefix(n.Status.NodeInfo.OSImage, "Talos") {
		return "", ""
	}

	for _, ctr := range p.Spec.Containers {
		if s := ctr.SecurityContext; s != nil && s.Capabilities != nil && slices.Contains(s.Capabilities.Add, sysModule) {
			return ctr.Name,
				"failed to create containerd task: unable to apply caps: can't apply capabilities: operation not permitted"
		}
	}

	return "", ""
}
