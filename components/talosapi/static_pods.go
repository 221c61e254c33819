package talosapi

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// versions are the annotations of a static pod that say what it was rendered from: its settings, its keys and
// certificates, and its files (Talos: controllers/k8s/control_plane_static_pod.go).
var versions = []string{
	constants.AnnotationStaticPodConfigVersion, constants.AnnotationStaticPodSecretsVersion,
	constants.AnnotationStaticPodConfigFileVersion,
}

// parts are the parts of the control plane.
var parts = []string{k8s.APIServerID, k8s.ControllerManagerID, k8s.SchedulerID}

// StaticPods are the parts of the control plane as a node renders them now: by their names, "kube-apiserver", the
// annotations that say what each was rendered from.
func StaticPods(ctx context.Context, t Target, c Credentials) (map[string]map[string]string, error) {
	all := map[string]map[string]string{}

	err := with(ctx, t, c, func(ctx context.Context, api *client.Client) error {
		pods, err := safe.StateListAll[*k8s.StaticPod](ctx, api.COSI)
		if err != nil {
			return err
		}

		for pod := range pods.All() {
			// The configuration may add others.
			if name := pod.Metadata().ID(); slices.Contains(parts, name) {
				object := unstructured.Unstructured{Object: pod.TypedSpec().Pod}
				annotations := object.GetAnnotations()
				maps.DeleteFunc(annotations, func(key, _ string) bool { return !slices.Contains(versions, key) })
				all[name] = annotations
			}
		}

		return nil
	})
	if err != nil {
		return nil, errors.New(brief(err)) // its words are enough
	}

	return all, nil
}
