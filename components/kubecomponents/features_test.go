package kubecomponents

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFeatureRemoved: a gate is known until the version that removed it.
func TestFeatureRemoved(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		gate, kubernetes string
		minor            uint64
		removed          bool
	}{
		{"SidecarContainers", "v1.36.2", 0, false},
		{"SidecarContainers", "v1.37.0", 37, true},
		{"SidecarContainers", "v1.38.0", 37, true},
		{"MemoryManager", "v1.37.2", 36, true},
		{"CPUManager", "v1.32.1", 0, false},
		{"CPUManager", "v1.33.0", 33, true},
		{"InPlacePodVerticalScaling", "v1.37.2", 0, false},
		{"CPUManager", "", 0, false},
	} {
		minor, removed := FeatureRemoved(test.gate, test.kubernetes)
		assert.Equal(t, test.removed, removed, test)

		if removed {
			assert.Equal(t, test.minor, minor, test)
		}
	}

	assert.Equal(t, []string{"A", "B"}, Features("A=true, B=false,"))
}

// TestGatesOfKubernetes: no gate of the newest version of Kubernetes is listed as removed, if that is in the cache of
// modules.
func TestGatesOfKubernetes(t *testing.T) {
	t.Parallel()

	home, err := os.UserHomeDir()
	require.NoError(t, err)

	found, err := filepath.Glob(filepath.Join(home, "go/pkg/mod/k8s.io/kubernetes@v1.37.*",
		"test/compatibility_lifecycle/reference/versioned_feature_list.yaml"))
	require.NoError(t, err)

	if len(found) == 0 {
		t.Skip("Kubernetes is not in the cache of modules")
	}

	text, err := os.ReadFile(found[0])
	require.NoError(t, err)

	names := regexp.MustCompile(`(?m)^- name: (\w+)$`).FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(names), 100)

	for _, name := range names {
		_, removed := FeatureRemoved(name[1], "v1.37.0")
		assert.False(t, removed, name[1])
	}

	seen := map[string]uint64{}

	for minor, gates := range removedFeatures {
		for gate := range strings.FieldsSeq(gates) {
			assert.NotContains(t, seen, gate)
			seen[gate] = minor
		}
	}
}
