package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestPatches: a minor version has a patch release of its own, older ones have none, and newer ones all do.
func TestPatches(t *testing.T) {
	for version, before := range map[string]bool{
		"1.27.9": true, "1.28.5": true, "1.28.6": false, "1.29.0": true, "v1.29.1": false, "1.30.0": false, "": false,
	} {
		assert.Equal(t, before, patches{28: 6, 29: 1}.before(version), version)
	}
}
