package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestAddonRole: a role has no privilege that its Proxmox VE does not know.
func TestAddonRole(t *testing.T) {
	t.Parallel()

	assert.Contains(t, addonRole("ccm", 9), `pveum role add CCM -privs "VM.Audit Sys.Audit VM.GuestAgent.Audit"`)
	assert.NotContains(t, addonRole("ccm", 8), "GuestAgent")
	assert.Equal(t, 4, strings.Count(addonRole("csi", 8), "\n"))
	assert.Empty(t, addonRole("home", 9))
}
