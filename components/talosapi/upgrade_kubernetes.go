package talosapi

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/go-kubernetes/kubernetes/upgrade"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// fromConfiguration begins the names of manifests that the machine configuration holds (Talos:
// controllers/k8s/control_plane.go).
const fromConfiguration = "99-"

// Manifests are what Talos itself installs into Kubernetes, as a control plane would install it now: kube-proxy,
// CoreDNS, the network. What the machine configuration adds is not among them.
func Manifests(ctx context.Context, t Target, c Credentials) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured

	err := with(ctx, t, c, func(ctx context.Context, api *client.Client) error {
		manifests, err := safe.StateListAll[*k8s.Manifest](ctx, api.COSI)
		if err != nil {
			return err
		}

		for m := range manifests.All() {
			if strings.HasPrefix(m.Metadata().ID(), fromConfiguration) {
				continue
			}

			for _, object := range m.TypedSpec().Items {
				all = append(all, &unstructured.Unstructured{Object: object.Object})
			}
		}

		return nil
	})
	if err != nil {
		return nil, errors.New(brief(err))
	}

	return all, nil
}

// Removed are the flags, feature gates and admission plugins that the Kubernetes components of a node run with and that
// are gone in the version to go to: with them, a component does not start. The list is that of talosctl upgrade-k8s.
func Removed(ctx context.Context, t Target, c Credentials, controlPlane bool, from, to string) ([]string, error) {
	path, err := upgrade.NewPath(from, to)
	if err != nil {
		return nil, err
	}

	controls, workers := []string{t.Address}, []string(nil)
	if !controlPlane {
		controls, workers = nil, controls
	}

	err = with(ctx, t, c, func(ctx context.Context, api *client.Client) error {
		checks, err := upgrade.NewChecks(path, api.COSI, nil, controls, workers, func(string, ...any) {})
		if err != nil {
			return err
		}

		return checks.Run(ctx)
	})

	var removed upgrade.ComponentRemovedItemsError
	if !errors.As(err, &removed) {
		return nil, err
	}

	var found []string

	for _, kind := range []struct {
		form  string
		items []upgrade.ComponentItem
	}{
		{"the flag --%s", removed.CLIFlags},
		{"the feature gate %s", removed.FeatureGates},
		{"the admission plugin %s", removed.AdmissionFlags},
	} {
		for _, item := range kind.items {
			found = append(found, fmt.Sprintf("%s of %s runs with "+kind.form+
				", which is removed in Kubernetes %s: it would not start; remove it in a separate update first",
				item.Component, t.Name, item.Value, to))
		}
	}

	return found, nil
}
