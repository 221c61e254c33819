package k3s

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
)

// machines is a Proxmox VE with VMs whose configuration files are known, by VMID.
type machines struct {
	Proxmox

	configs map[int]string
	denied  error
}

func (m machines) Find(_ context.Context, vmid int) (proxmoxapi.VM, bool, error) {
	_, there := m.configs[vmid]

	return proxmoxapi.VM{ID: vmid, Host: "pve"}, there, nil
}

func (m machines) GuestFile(_ context.Context, vm proxmoxapi.VM, _ string) (string, error) {
	if m.configs[vm.ID] == "silent" {
		return "", errors.New("QEMU guest agent is not running")
	}

	return m.configs[vm.ID], m.denied
}

// existing are VMs that there were when a run began, by VMID.
type existing struct {
	rollout.Inventory

	there map[int]string
}

func (e existing) Exists(n plan.Node) bool { return e.there[n.VMID] != "" }

// TestSharedSettings: a server is not created where the others would not let it join, and is where that is not known.
func TestSharedSettings(t *testing.T) {
	t.Parallel()

	const (
		how     = "(stacks/docs/k3s.md, Change settings that all servers share)"
		same    = " must be the same on all servers of a K3s cluster: "
		revert  = "; revert the change; or change the existing servers by hand first " + how
		agreed  = "token: a\ndisable: [traefik]\n"
		differs = "token: a\nsecrets-encryption: true\n"
	)

	for name, c := range map[string]struct {
		// configs are the files of the servers that exist, in their order; empty: the server does not exist.
		configs        [3]string
		created        []int
		args           []string
		denied         error
		want, warnings []string
	}{
		"a new cluster":          {created: []int{0, 1, 2}},
		"nothing is created":     {configs: [3]string{differs, differs, differs}},
		"a server that is equal": {configs: [3]string{agreed, agreed, ""}, created: []int{2}},
		"a new server": {
			configs: [3]string{differs, agreed, ""}, created: []int{2}, args: []string{"--cluster-domain=b"},
			want: []string{
				"k3s.serverArgs: cluster-domain" + same + "edge-server-3 would not join, because edge-server-1 has " +
					`"cluster.local", edge-server-2 has "cluster.local" (given: b)` + revert,
				"k3s.serverArgs: secrets-encryption" + same + `edge-server-3 would not join, because edge-server-1 has "true" ` +
					"(given: false)" + revert,
			},
		},
		"a component": {
			configs: [3]string{"disable: servicelb", "", ""}, created: []int{1, 2},
			want: []string{
				"k3s.disable: disable=servicelb" + same + "edge-server-2, edge-server-3 would not join, because edge-server-1 " +
					`has "true" (given: false)` + revert,
			},
		},
		"one that differs is recreated": {configs: [3]string{agreed, differs, agreed}, created: []int{1}},
		"all are recreated in turn": {
			configs: [3]string{differs, differs, differs}, created: []int{0, 1, 2},
			want: []string{
				"k3s.serverArgs: secrets-encryption" + same + "edge-server-1, edge-server-2, edge-server-3 would not join, " +
					`because edge-server-2 has "true", edge-server-3 has "true" (given: false)` + revert,
			},
		},
		"the only server is recreated": {configs: [3]string{differs, "", ""}, created: []int{0}},
		"unknown": {
			configs: [3]string{"silent", "", ""}, created: []int{1},
			warnings: []string{
				"k3s.serverArgs: could not be compared with the settings of edge-server-1, so it is unknown whether " +
					"edge-server-2 will join: /etc/rancher/k3s/config.yaml could not be read through its guest agent: " +
					"QEMU guest agent is not running; if settings changed since it was created, make sure that they agree " + how,
			},
		},
		"not allowed": {
			configs: [3]string{agreed, "", ""}, created: []int{1}, denied: fmt.Errorf("403 (%w)", proxmoxapi.ErrRefused),
			warnings: []string{
				"k3s.serverArgs: could not be compared with the settings of edge-server-1, so it is unknown whether " +
					"edge-server-2 will join: /etc/rancher/k3s/config.yaml could not be read through its guest agent: 403 (" +
					proxmoxapi.ErrRefused.Error() + "); grant VM.Monitor; if " +
					"settings changed since it was created, make sure that they agree " + how,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			p := plantest.K3s(t)
			p.K3s.ServerArgs, p.K3s.Disable = c.args, nil

			first := p.Pools[0].Nodes[0]
			for i := 2; i <= 3; i++ {
				other := first
				other.Name, other.VMID = fmt.Sprintf("edge-server-%d", i), first.VMID+i
				p.Pools[0].Nodes = append(p.Pools[0].Nodes, other)
			}

			servers := p.ControlPlanes()
			require.Len(t, servers, 3)

			configs := map[int]string{}

			for i, server := range servers {
				if c.configs[i] != "" {
					configs[server.VMID] = c.configs[i]
				}
			}

			cluster := &Cluster{Options: Options{
				Scope: rollout.Scope{Plan: p, Inventory: existing{there: configs}}, Proxmox: machines{nil, configs, c.denied},
				ProxmoxMajor: 8,
			}}

			var created []plan.Node
			for _, i := range c.created {
				created = append(created, servers[i])
			}

			problems, warnings := cluster.CheckSharedSettings(t.Context(), created)
			assert.Equal(t, c.want, texts(problems))
			assert.Equal(t, c.warnings, texts(warnings))
		})
	}
}

func texts(problems spec.Problems) []string {
	var all []string
	for _, p := range problems {
		all = append(all, p.String())
	}

	return all
}
