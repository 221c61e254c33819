package permissions

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/preflight/preflighttest"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
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

// TestMissing: a change is refused for the privileges that it needs, not for others.
func TestMissing(t *testing.T) {
	n := plantest.Template().Pools[0].Nodes[0]
	lacking := func(names ...string) Missing {
		m := Missing{}

		for _, p := range Needed(plantest.Template(), n, 0) {
			if slices.Contains(names, p.Names[0]) {
				m[n.Name] = append(m[n.Name], missing{p, p.Paths[:1]})
			}
		}

		require.Len(t, m[n.Name], len(names))

		return m
	}

	memory := lacking("VM.Config.Memory", "VM.Allocate")
	assert.EqualError(t, memory.Check(n, []string{"memory", "started"}, 0), `the configuration has 1 problem:
  - proxmox: the credentials lack VM.Config.Memory on /vms/401, to configure VMs, which the change of c-control-1 needs (memory, started); `+
		`run 'pveum role modify TalosProxmox -append -privs VM.Config.Memory', with the name of the role, and make sure that the credentials have the role on that path`)
	assert.NoError(t, memory.Check(n, []string{"cpu", "tags"}, 0))
	assert.NoError(t, memory.Check(plan.Node{Name: "another"}, []string{"memory"}, 0))
	assert.Error(t, lacking("VM.PowerMgmt").Check(n, []string{"cpu", "started"}, 0), "a restart")
	assert.NoError(t, lacking("VM.PowerMgmt").Check(n, []string{"tags"}, 0))
	assert.Error(t, lacking("VM.Config.Options").Check(n, []string{"disks"}, 0), "each change states the name")
	assert.NoError(t, lacking("VM.Config.Options").Check(n, nil, 0), "nothing changes")
	assert.NoError(t, Missing(nil).Check(n, []string{"memory"}, 0))
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
		"preview":             {held: "VM.Audit Sys.Audit", preview: true, warning: "the credentials are read-only"},
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
			checker := Checker{Checker: checks.New(p, holding{held: proxmoxapi.Permissions{"/": all}}), Preview: c.preview}

			for _, n := range p.Nodes() {
				checker.Absent[n.VMID] = true
			}

			require.NoError(t, checker.Check(t.Context()))

			if c.problem == "" {
				require.NoError(t, checker.Problems.Err())
				require.Len(t, checker.Warnings, 1)
				require.Contains(t, checker.Warnings[0].String(), c.warning)
			} else {
				require.ErrorContains(t, checker.Problems.Err(), c.problem)
			}
		})
	}
}

// TestEachPrivilege takes what each node needs away, one by one, where it is granted no wider than it must be.
func TestEachPrivilege(t *testing.T) {
	s := plantest.Spec()
	s.Pools = map[string]spec.Pool{
		"control": {
			Role: spec.RoleControlPlane, Count: new(1), Addresses: "10.0.0.11",
			VMSpec: spec.VMSpec{ResourcePool: new("nodes"), Startup: &spec.Startup{Order: new(1)}, HAGroup: new("racks")},
		},
		"gpu": {Role: spec.RoleWorker, Addresses: "10.0.0.31", GPUs: map[string]spec.GPUSpec{
			"1": {BDF: "0000:01:00.0", NodeSpec: spec.NodeSpec{Host: "a"}},
		}},
	}
	s.Image.Schematic = &spec.Schematic{Extensions: []string{plan.GuestAgent}}
	s.Firewall.Enabled = new(true)

	var needed []Privilege

	p := plantest.New(t, s)
	for _, n := range p.Nodes() {
		needed = append(needed, Needed(p, n, 9000)...)
	}

	// held has the first path and name of each but those that are left out.
	held := func(out Privilege) proxmoxapi.Permissions {
		all := proxmoxapi.Permissions{}

		for _, need := range needed {
			if need.Names[0] == out.Names[0] && need.Paths[0] == out.Paths[0] {
				continue
			}

			if all[need.Paths[0]] == nil {
				all[need.Paths[0]] = map[string]bool{}
			}

			all[need.Paths[0]][need.Names[0]] = false
		}

		return all
	}

	c := Checker{Checker: checks.New(p, nil)}
	c.Absent = map[int]bool{401: true, 601: true}
	c.Templates = map[string]int{"c-control-1": 9000, "c-gpu-1": 9000}

	assert.Empty(t, c.missingPrivileges(held(Privilege{Names: []string{""}, Paths: []string{""}}), false),
		"what is needed is enough")

	for _, out := range needed {
		lacks := c.missingPrivileges(held(out), false)
		require.NotEmpty(t, lacks, "%v", out)

		for _, m := range lacks {
			assert.Contains(t, m.Names, out.Names[0])
			assert.Equal(t, []string{out.Paths[0]}, m.paths)
		}
	}

	assert.Contains(t, needed, Privilege{
		Names: []string{"SDN.Use"}, Paths: []string{"/sdn/zones/localnetwork/vmbr0/20"},
		For: "to use the bridge", Changes: []string{"networkDevices"},
	})
	assert.Contains(t, needed, Privilege{
		Names: []string{"VM.Allocate"}, Paths: []string{"/vms/401", "/pool/nodes"},
		For: "to make and to remove VMs",
	})
}
