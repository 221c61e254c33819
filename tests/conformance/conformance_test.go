package conformance

import (
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/upstream"
)

// TestAPIServer compares the API server of the lab with the one of Kubernetes.
func TestAPIServer(t *testing.T) {
	binary, err := upstream.Open(t.Context())
	require.NoError(t, err)

	pki, err := upstream.NewPKI()
	require.NoError(t, err)

	theirs := real(t, binary, pki)
	ours, _ := lab(t, binary.Version, pki)

	for _, s := range []*side{theirs, ours} {
		prepare(s)
	}

	for _, scenario := range scenarios {
		played := false

		t.Run(scenario.name, func(t *testing.T) {
			for _, s := range []*side{theirs, ours} {
				s.T, s.tape = t, nil
				scenario.play(s)
			}

			played = true

			compare(t, theirs, ours, differs[scenario.name])
		})

		// A scenario that ended half-way leaves different objects on the two sides: what follows would only differ by that.
		if !played {
			t.FailNow()
		}
	}
}
