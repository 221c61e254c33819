package talosapi

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/client"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// versions are the annotations of a static pod that say what it was rendered from: its settings, its keys and
// certificates, and its files (Talos: controllers/k8s/control_plane_static_pod.go).
var versions = []string{
	constants.AnnotationStaticPodConfigVersion, constants.AnnotationStaticPodSecretsVersion,
	constants.AnnotationStaticPodConfigFileVersion,
}

// extraArgs are the arguments that a configuration adds to those of the parts of Kubernetes.
var extraArgs = map[string]func(talosconfig.Provider) map[string][]string{
	k8s.APIServerID: func(c talosconfig.Provider) map[string][]string { return c.K8sAPIServerConfig().ExtraArgs() },
	k8s.ControllerManagerID: func(c talosconfig.Provider) map[string][]string {
		return c.K8sControllerManagerConfig().ExtraArgs()
	},
	k8s.SchedulerID: func(c talosconfig.Provider) map[string][]string { return c.K8sSchedulerConfig().ExtraArgs() },
	k8s.KubeletID:   func(c talosconfig.Provider) map[string][]string { return c.K8sKubeletConfig().ExtraArgs() },
}

// Rendered is what Talos has a part of Kubernetes started with on a node.
type Rendered struct {
	// Versions are annotations of a static pod that say what it was rendered from.
	Versions map[string]string
	// Changed is when it was rendered otherwise the last time, by the clock of the node.
	Changed time.Time

	args []string
}

// RenderedParts are the parts of Kubernetes as a node renders them now, by name: the kubelet, and the static pods of a
// control plane.
func RenderedParts(ctx context.Context, t Target, c Credentials) (map[string]Rendered, error) {
	all := map[string]Rendered{}

	err := with(ctx, t, c, func(ctx context.Context, api *client.Client) error {
		kubelet, err := safe.StateGetByID[*k8s.KubeletSpec](ctx, api.COSI, k8s.KubeletID)

		switch {
		case state.IsNotFoundError(err):
		case err != nil:
			return err
		default:
			all[k8s.KubeletID] = Rendered{Changed: kubelet.Metadata().Updated(), args: kubelet.TypedSpec().Args}
		}

		pods, err := safe.StateListAll[*k8s.StaticPod](ctx, api.COSI)
		if err != nil {
			return err
		}

		for pod := range pods.All() {
			// The configuration may add others.
			if name := pod.Metadata().ID(); extraArgs[name] != nil {
				if all[name], err = renderedPod(pod); err != nil {
					return err
				}
			}
		}

		return nil
	})
	if err != nil {
		return nil, errors.New(brief(err)) // its words are enough
	}

	return all, nil
}

func renderedPod(resource *k8s.StaticPod) (Rendered, error) {
	var pod corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(resource.TypedSpec().Pod, &pod); err != nil {
		return Rendered{}, err
	}

	r := Rendered{Versions: pod.Annotations, Changed: resource.Metadata().Updated()}
	maps.DeleteFunc(r.Versions, func(key, _ string) bool { return !slices.Contains(versions, key) })

	for _, c := range pod.Spec.Containers {
		r.args = slices.Concat(r.args, c.Command, c.Args)
	}

	return r, nil
}

// MissingArg is an argument that a configuration adds to a part, and that Talos has not rendered; empty: there is none.
// Talos accepts configurations with arguments that it does not let be changed, and then leaves the part as it was.
func (r Rendered) MissingArg(part string, wanted talosconfig.Provider) string {
	extra := extraArgs[part](wanted)

	for _, name := range slices.Sorted(maps.Keys(extra)) {
		var rendered []string

		for _, arg := range r.args {
			if value, is := strings.CutPrefix(arg, "--"+name+"="); is {
				rendered = append(rendered, list(value)...)
			}
		}

		// Talos adds to some lists of its own.
		for _, value := range list(strings.Join(extra[name], ",")) {
			if !slices.Contains(rendered, value) {
				return name
			}
		}
	}

	return ""
}

// list are the values of an argument that may have several.
func list(value string) []string {
	all := strings.Split(value, ",")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}

	return all
}
