package upgradepath

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPath(t *testing.T) {
	const now = "v1.34.2"

	for name, c := range map[string]struct {
		from, to Versions
		refused  string
	}{
		"nothing":                   {from: Versions{"v1.12.4", now}, to: Versions{"v1.12.4", now}},
		"a patch":                   {from: Versions{"v1.12.2", now}, to: Versions{"v1.12.4", now}},
		"a minor version":           {from: Versions{"v1.11.6", now}, to: Versions{"v1.12.4", now}},
		"two, where Talos takes it": {from: Versions{"v1.10.9", "v1.33.6"}, to: Versions{"v1.12.4", "v1.33.6"}},
		"two, to 1.13":              {from: Versions{"v1.11.6", now}, to: Versions{"v1.13.9", now}},
		"two, to 1.14":              {from: Versions{"v1.12.4", now}, to: Versions{"v1.14.1", now}},
		"back by one":               {from: Versions{"v1.12.4", now}, to: Versions{"v1.11.6", now}},
		"both":                      {from: Versions{"v1.11.6", "v1.33.6"}, to: Versions{"v1.12.4", now}},
		"Kubernetes by one":         {from: Versions{"v1.12.4", now}, to: Versions{"v1.12.4", "v1.35.0"}},
		"Kubernetes back a patch":   {from: Versions{"v1.12.4", now}, to: Versions{"v1.12.4", "v1.34.1"}},
		"what is not known":         {from: Versions{"v1.11.6", ""}, to: Versions{"v1.12.4", now}},
		"too far": {
			from: Versions{"v1.9.5", "v1.32.0"}, to: Versions{"v1.12.4", "v1.32.0"},
			refused: "cluster.versions.talos: Talos v1.9.5 cannot become v1.12.4 at once: host version 1.9.5 is too old to " +
				"upgrade to Talos 1.12.4; " +
				"go through the last v1.10, then the last v1.11, each in an update of its own, and then to v1.12.4",
		},
		"too far, to 1.13": {
			from: Versions{"v1.10.9", "v1.33.6"}, to: Versions{"v1.13.9", "v1.33.6"},
			refused: "cluster.versions.talos: Talos v1.10.9 cannot become v1.13.9 at once: host version 1.10.9 is too old to " +
				"upgrade to Talos 1.13.9; " +
				"go through the last v1.11, then the last v1.12, each in an update of its own, and then to v1.13.9",
		},
		"too far, to 1.14": {
			from: Versions{"v1.11.6", now}, to: Versions{"v1.14.1", now},
			refused: "cluster.versions.talos: Talos v1.11.6 cannot become v1.14.1 at once: host version 1.11.6 is too old to " +
				"upgrade to Talos 1.14.1; " +
				"go through the last v1.12, then the last v1.13, each in an update of its own, and then to v1.14.1",
		},
		"too far back": {
			from: Versions{"v1.12.4", now}, to: Versions{"v1.10.9", now},
			refused: "cluster.versions.talos: Talos v1.12.4 cannot become v1.10.9 at once: host version 1.12.4 is too new to " +
				"downgrade to Talos 1.10.9; " +
				"go through the last v1.11, each in an update of its own, and then to v1.10.9",
		},
		"Kubernetes too far": {
			from: Versions{"v1.12.4", "v1.32.1"}, to: Versions{"v1.12.4", "v1.35.0"},
			refused: "cluster.versions.kubernetes: Kubernetes v1.32.1 cannot become v1.35.0 at once: upgrades go " +
				"one minor version at a time; " +
				"go through the last v1.33, then the last v1.34, each in an update of its own, and then to v1.35.0",
		},
		"Kubernetes back": {
			from: Versions{"v1.12.4", now}, to: Versions{"v1.12.4", "v1.33.6"},
			refused: "cluster.versions.kubernetes: Kubernetes v1.34.2 cannot become v1.33.6: a downgrade to an earlier minor " +
				"version is not supported; set v1.34 or the next",
		},
		"Kubernetes too old for the next Talos": {
			from: Versions{"v1.11.6", "v1.29.9"}, to: Versions{"v1.12.4", "v1.30.1"},
			refused: "cluster.versions.talos: Kubernetes v1.29.9 is running, which is not compatible with Talos " +
				"v1.12.4: version of " +
				"Kubernetes 1.29.9 is too old to be " +
				"used with Talos 1.12.4; change cluster.versions.kubernetes first, in an update of its own",
		},
		"Kubernetes 1.31 on Talos 1.14": {
			from: Versions{"v1.13.9", "v1.31.9"}, to: Versions{"v1.14.1", "v1.31.9"},
			refused: "cluster.versions.talos: Kubernetes v1.31.9 is running, which is not compatible with Talos " +
				"v1.14.1: version of " +
				"Kubernetes 1.31.9 is too old to be " +
				"used with Talos 1.14.1; change cluster.versions.kubernetes first, in an update of its own",
		},
		"Talos too old for the next Kubernetes": {
			from: Versions{"v1.11.6", now}, to: Versions{"v1.12.4", "v1.35.0"},
			refused: "cluster.versions.kubernetes: Talos v1.11.6 is running, which is not compatible with " +
				"Kubernetes v1.35.0: version of " +
				"Kubernetes 1.35.0 is too new to be " +
				"used with Talos 1.11.6; change cluster.versions.talos first, in an update of its own",
		},
		"two problems": {
			from: Versions{"v1.9.5", "v1.30.0"}, to: Versions{"v1.12.4", "v1.32.0"},
			refused: "cluster.versions.talos: Talos v1.9.5 cannot become v1.12.4 at once: host version 1.9.5 is too old to " +
				"upgrade to Talos 1.12.4; " +
				"go through the last v1.10, then the last v1.11, each in an update of its own, and then to v1.12.4\n" +
				"cluster.versions.kubernetes: Kubernetes v1.30.0 cannot become v1.32.0 at once: upgrades go one " +
				"minor version at a time; " +
				"go through the last v1.31, each in an update of its own, and then to v1.32.0",
		},
		"no version": {
			from: Versions{"latest", ""}, to: Versions{"v1.12.4", ""},
			refused: `version "latest": Invalid character(s) found in major number "0latest"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check(c.from, c.to)
			if c.refused == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, c.refused)
			}
		})
	}
}

// TestHops: whatever is refused, the way that is named instead leads there, and Talos takes every step of it.
func TestHops(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Before v1.6, not even the next version may be gone back from.
		minor := rapid.IntRange(6, 14)
		from := fmt.Sprintf("v1.%d.%d", minor.Draw(t, "from"), rapid.IntRange(0, 9).Draw(t, "patch"))
		to := fmt.Sprintf("v1.%d.%d", minor.Draw(t, "to"), rapid.IntRange(0, 9).Draw(t, "patch"))

		way, err := talosHops(from, to)
		require.NoError(t, err)
		require.Equal(t, to, way[len(way)-1])

		at := from

		for _, next := range way {
			var major, minor int
			if _, err := fmt.Sscanf(next, "the last v%d.%d", &major, &minor); err == nil {
				next = fmt.Sprintf("v%d.%d.10", major, minor)
			}

			assert.NoError(t, upgradeable(at, next), "from %s to %s by way of %v", from, to, way)
			at = next
		}
	})
}
