package changes

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCheckSecureBoot: nothing is installed that would not boot, and nothing that is not what was configured.
func TestCheckSecureBoot(t *testing.T) {
	on, off := new(true), new(false)

	for _, same := range [][2]*bool{{on, on}, {off, off}, {nil, on}, {nil, off}, {on, nil}, {off, nil}, {nil, nil}} {
		assert.NoError(t, checkSecureBoot(same[0], same[1]))
	}

	require.EqualError(t, checkSecureBoot(on, off), "image.secureBoot: it was booted with SecureBoot, and would not start "+
		"the unsigned system that is to be installed; nothing was sent to it; set the key to true, or use an image without "+
		"SecureBoot")
	require.EqualError(t, checkSecureBoot(off, on), "image.secureBoot: it was booted without SecureBoot: its image "+
		"does not support SecureBoot, or its firmware has not enrolled the keys of the image; nothing was sent to "+
		"it; set the key to false, or use "+
		"an image for SecureBoot and an EFI disk without keys")
}
