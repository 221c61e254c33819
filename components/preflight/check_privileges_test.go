package preflight

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/preflight/preflighttest"
	"talos-proxmox/components/proxmoxapi"
)

// holding is a Proxmox VE that has granted these.
type holding struct {
	preflighttest.Healthy

	held proxmoxapi.Permissions
}

func (h holding) Permissions(context.Context) (proxmoxapi.Permissions, error) { return h.held, nil }

// TestRole: the role of a plan has the names that the version of Proxmox VE knows, and nothing twice.
func TestRole(t *testing.T) {
	p := plantest.K3s(t)

	for major, c := range map[int]struct{ has, lacks []string }{
		8: {
			[]string{"VM.Monitor", "Datastore.Allocate"},
			[]string{"VM.GuestAgent.Audit", "VM.GuestAgent.FileRead", "VM.GuestAgent.FileWrite", "Sys.Console"},
		},
		9: {
			[]string{"VM.GuestAgent.Audit", "VM.GuestAgent.FileRead", "VM.GuestAgent.FileWrite"},
			[]string{"VM.Monitor", "VM.GuestAgent.Unrestricted"},
		},
	} {
		role := Role(p, major)
		assert.Subset(t, role, c.has)
		assert.NotSubset(t, role, c.lacks)
		assert.Len(t, role, len(slices.Compact(slices.Clone(role))))
	}

	assert.Contains(t, Role(plantest.Template(), 9), "VM.Clone")
	assert.Equal(t, []string{"VM.GuestAgent.Audit", "VM.Monitor"},
		Privilege{Names: []string{"VM.GuestAgent.Audit", "VM.Monitor"}}.On(0), "an unknown version")
}

// TestCheckPermissions: a change is refused for the privileges that it needs, not for others.
func TestCheckPermissions(t *testing.T) {
	n := plantest.Template().Pools[0].Nodes[0]
	missing := func(names ...string) *Report {
		f := &Report{missing: map[string][]missingPrivilege{}}

		for _, p := range Privileges(plantest.Template(), n, 0) {
			for _, name := range names {
				if p.Names[0] == name {
					f.missing[n.Name] = append(f.missing[n.Name], missingPrivilege{p, p.Paths[:1]})
				}
			}
		}

		require.Len(t, f.missing[n.Name], len(names))

		return f
	}

	memory := missing("VM.Config.Memory", "VM.Allocate")
	assert.EqualError(t, memory.CheckPermissions(n, []string{"memory", "started"}), `the configuration has 1 problem:
  - proxmox: the credentials lack VM.Config.Memory on /vms/401, to configure VMs, which the change of c-control-1 needs (memory, started); `+
		`run 'pveum role modify TalosProxmox -append -privs VM.Config.Memory', with the name of the role, and see that they have it on that path`)
	assert.NoError(t, memory.CheckPermissions(n, []string{"cpu", "tags"}))
	assert.NoError(t, memory.CheckPermissions(plan.Node{Name: "another"}, []string{"memory"}))
	assert.Error(t, missing("VM.PowerMgmt").CheckPermissions(n, []string{"cpu", "started"}), "a restart")
	assert.NoError(t, missing("VM.PowerMgmt").CheckPermissions(n, []string{"tags"}))
	assert.Error(t, missing("VM.Config.Options").CheckPermissions(n, []string{"disks"}), "each change states the name")
	assert.NoError(t, missing("VM.Config.Options").CheckPermissions(n, nil), "nothing changes")
	assert.NoError(t, (*Report)(nil).CheckPermissions(n, []string{"memory"}))
}

// TestReadOnly: credentials that may look at everything and do nothing are enough for a preview, which says what it
// did not check, and for no update.
func TestReadOnly(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		held             string
		preview          bool
		problem, warning string
	}{
		"preview":             {held: "VM.Audit Sys.Audit", preview: true, warning: "the credentials may only read"},
		"update":              {held: "VM.Audit Sys.Audit", problem: "the credentials lack VM.Allocate"},
		"more than it":        {held: "VM.Audit VM.Console", preview: true, problem: "the credentials lack VM.Allocate"},
		"nothing to see with": {preview: true, problem: "the credentials lack VM.Audit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			all := map[string]bool{}
			for _, name := range strings.Fields(c.held) {
				all[name] = true
			}

			p := plantest.New(t, plantest.Spec())
			checks := newChecker(p, holding{held: proxmoxapi.Permissions{"/": all}}, quietNetwork{})
			checks.preview = c.preview

			for _, n := range p.Nodes() {
				checks.Absent[n.VMID] = true
			}

			require.NoError(t, checks.checkPermissions(t.Context()))

			if c.problem == "" {
				require.NoError(t, checks.Problems.Err())
				require.Len(t, checks.Warnings, 1)
				require.Contains(t, checks.Warnings[0].String(), c.warning)
			} else {
				require.ErrorContains(t, checks.Problems.Err(), c.problem)
			}
		})
	}
}
