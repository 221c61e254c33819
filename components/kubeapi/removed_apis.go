package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/siderolabs/go-kubernetes/kubernetes/upgrade"
)

// Removed are the kinds of objects that there are in the cluster and whose API is gone in the version to go to. The
// list is that of talosctl upgrade-k8s.
func (c *Client) Removed(ctx context.Context, from, to string) ([]string, error) {
	path, err := upgrade.NewPath(from, to)
	if err != nil {
		return nil, err
	}

	checks, err := upgrade.NewChecks(path, nil, c.config, nil, nil, func(string, ...any) {})
	if err != nil {
		return nil, err
	}

	var (
		removed upgrade.ComponentRemovedItemsError
		found   []string
	)

	if err := checks.Run(ctx); !errors.As(err, &removed) {
		return nil, err
	}

	for _, kind := range slices.Sorted(maps.Keys(removed.APIResources)) {
		found = append(found,
			fmt.Sprintf("%d objects use %s, an API that is removed in Kubernetes %s: migrate them to its successor "+
				"first",
				removed.APIResources[kind], kind, to))
	}

	return found, nil
}
