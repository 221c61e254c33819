package proxmoxvm

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/plan"
)

// TestReplacedIsIgnored: what the provider would restart a VM for, or set up again, counts while the VM is made again, and
// not when it has been: its name may stay in lifecycle.replace.
func TestReplacedIsIgnored(t *testing.T) {
	of := func(replace, replaced, incomplete bool) []string {
		return ignoredChanges(&Args{
			Node: plan.Node{Disks: []plan.Disk{{}}}, Replace: replace, Incomplete: incomplete,
			State: State{Replaced: replaced, Disks: []int{0}},
		})
	}

	for _, path := range []string{"cpu.units", "disks[0].size"} {
		assert.Contains(t, of(false, false, false), path)
		assert.NotContains(t, of(true, false, false), path, "it is made again")
		assert.Contains(t, of(true, true, false), path, "it was made again")
		assert.NotContains(t, of(true, true, true), path, "it was not finished")
	}
}
