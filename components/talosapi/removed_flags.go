package talosapi

import (
	"context"
	"errors"
	"fmt"

	"github.com/siderolabs/go-kubernetes/kubernetes/upgrade"
	"github.com/siderolabs/talos/pkg/machinery/client"
)

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
