package k3sconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/components/kubecomponents"
)

// RemovedFeatures are the feature gates, with their options, that the configuration file of a node has and a version of
// Kubernetes does not know any more: K3s of that version ends with them.
func RemovedFeatures(text, kubernetes string) ([]string, error) {
	given, err := readOptions(text)
	if err != nil {
		return nil, err
	}

	var removed []string

	for _, option := range slices.Sorted(maps.Keys(given)) {
		if !strings.HasSuffix(strings.TrimSuffix(option, "+"), "-arg") {
			continue
		}

		for _, arg := range valuesOf(given[option]) {
			flag, list, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			if flag != kubecomponents.FeaturesFlag {
				continue
			}

			for _, gate := range kubecomponents.Features(list) {
				if _, gone := kubecomponents.FeatureRemoved(gate, kubernetes); gone {
					removed = append(removed, fmt.Sprintf("%s of %s", gate, option))
				}
			}
		}
	}

	return removed, nil
}
