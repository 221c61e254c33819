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
		t.Run(scenario.name, func(t *testing.T) {
			for _, s := range []*side{theirs, ours} {
				s.T, s.tape = t, nil
				scenario.play(s)
			}

			compare(t, theirs, ours, differs[scenario.name])
		})
	}
}
