package hosts

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/preflight/preflighttest"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// versionOf is a Proxmox VE of some version.
type versionOf struct {
	preflighttest.Healthy

	version proxmoxapi.Version
}

func (v versionOf) Version(context.Context) (proxmoxapi.Version, error) { return v.version, nil }

// TestVersionOfProxmox: a Proxmox VE that is too old gets no new VM; what runs there, or on one that is too new, is only
// warned of.
func TestVersionOfProxmox(t *testing.T) {
	const (
		old  = "proxmox.endpoint: must be Proxmox VE 8 or later: older ones are not supported (given: 7.4-3); upgrade it"
		late = "proxmox.endpoint: is a Proxmox VE later than 9, which this release does not know (given: 10.0.1); try " +
			"changes on a copy first, or use a later release of this program"
	)

	for name, c := range map[string]struct {
		version          proxmoxapi.Version
		absent           map[int]bool
		problem, warning string
	}{
		"too old for new VMs":      {proxmoxapi.Version{Text: "7.4-3", Major: 7}, map[int]bool{401: true}, old, ""},
		"too old, with its VMs":    {proxmoxapi.Version{Text: "7.4-3", Major: 7}, nil, "", old},
		"the oldest":               {proxmoxapi.Version{Text: "8.0.2", Major: 8}, map[int]bool{401: true}, "", ""},
		"the newest":               {proxmoxapi.Version{Text: "9.9.9", Major: 9}, map[int]bool{401: true}, "", ""},
		"later than what is known": {proxmoxapi.Version{Text: "10.0.1", Major: 10}, map[int]bool{401: true}, "", late},
	} {
		t.Run(name, func(t *testing.T) {
			s := Checker{checks.New(plantest.New(t, plantest.Spec()), versionOf{version: c.version})}
			s.Absent = c.absent
			require.NoError(t, s.CheckVersion(t.Context()))

			var problems, warnings []string
			for _, p := range s.Problems {
				problems = append(problems, p.String())
			}

			for _, w := range s.Warnings {
				warnings = append(warnings, w.String())
			}

			assert.Equal(t, c.problem, strings.Join(problems, "\n"))
			assert.Equal(t, c.warning, strings.Join(warnings, "\n"))
		})
	}
}

// TestSSHUser: from Proxmox VE 9 on, the provider imports disks and writes user data as root only. Nodes that exist need
// neither.
func TestSSHUser(t *testing.T) {
	const refused = "proxmox.ssh.username: must be root on Proxmox VE 9: the provider runs 'sudo pvesm' and 'sudo qm', " +
		"which other users do not find there (given: pulumi); write root, and put the key into " +
		"/root/.ssh/authorized_keys of each host"

	for name, c := range map[string]struct {
		user   string
		major  int
		absent map[int]bool
		want   string
	}{
		"another user on 9": {"pulumi", 9, map[int]bool{401: true}, refused},
		"on 8":              {"pulumi", 8, map[int]bool{401: true}, ""},
		"root":              {"root", 9, map[int]bool{401: true}, ""},
		"no new node":       {"pulumi", 9, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := plantest.New(t, plantest.Spec())
			p.SSH = &spec.SSH{Username: c.user}

			s := Checker{checks.New(p, versionOf{})}
			s.Absent, s.Major = c.absent, c.major
			require.NoError(t, s.CheckSSHUser(t.Context()))

			var said []string
			for _, problem := range s.Problems {
				said = append(said, problem.String())
			}

			assert.Equal(t, c.want, strings.Join(said, "\n"))
		})
	}
}

func TestSharedStore(t *testing.T) {
	s := spec.Spec{
		Proxmox: spec.Proxmox{Hosts: []spec.Host{{Name: "a"}, {Name: "b"}}, Storage: spec.Storage{Images: "nfs"}},
		Cluster: spec.Cluster{Name: "c", Versions: spec.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"}},
		Network: spec.Network{CIDR: "10.0.0.0/24", Gateway: "10.0.0.1"},
		Pools:   map[string]spec.Pool{"control": {Role: spec.RoleControlPlane, Count: new(3), Addresses: "10.0.0.11-13"}},
	}

	for shared, want := range map[string]bool{"nfs": true, "local": false} {
		c := read(t, plantest.New(t, s), &preflighttest.ManyHosts{Shared: map[string]bool{shared: true}})
		require.NoError(t, c.CheckSharedStorage(t.Context()))
		assert.Equal(t, want, c.SharedImages)
	}
}
