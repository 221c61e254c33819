package preflight

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/preflight/preflighttest"
	"talos-proxmox/components/proxmoxapi"
)

// staleCluster is a Proxmox VE whose list of VMs is not what their hosts say.
type staleCluster struct {
	preflighttest.FixedVMs

	hosts map[string][]proxmoxapi.VM // absent: the host does not answer
	// broken is what it answers instead of its hosts.
	broken error
}

func (r staleCluster) VMsOn(_ context.Context, host string) ([]proxmoxapi.VM, error) {
	vms, answers := r.hosts[host]
	if !answers {
		return nil, fmt.Errorf("asking %s: %w", host, proxmoxapi.ErrHostUnreachable)
	}

	return vms, nil
}

func (r staleCluster) Hosts(context.Context) ([]proxmoxapi.Host, error) {
	if r.broken != nil {
		return nil, r.broken
	}

	return []proxmoxapi.Host{{Name: "pve", Online: true}, {Name: "pve2"}, {Name: "pve3", Online: true}}, nil
}

// TestRefreshVMs: what the hosts say goes before what the cluster repeats of them.
func TestRefreshVMs(t *testing.T) {
	tags := []string{"c", "controlplane", "talos"}
	listed := func(id int, host, name string) proxmoxapi.VM {
		return proxmoxapi.VM{ID: id, Host: host, Name: name, Tags: tags}
	}
	is := func(id int, host, name string, stopped bool) proxmoxapi.VM {
		return proxmoxapi.VM{ID: id, Host: host, Name: name, Stopped: stopped, Tags: tags}
	}

	for name, c := range map[string]struct {
		listed   []proxmoxapi.VM
		hosts    map[string][]proxmoxapi.VM
		problem  string
		warnings []string
		stopped  bool
		broken   error
	}{
		"not broadcast yet": {
			listed: []proxmoxapi.VM{listed(401, "pve", ""), listed(402, "pve", "VM 402")},
			hosts: map[string][]proxmoxapi.VM{"pve": {
				is(401, "pve", "c-control-1", false),
				is(402, "pve", "c-control-2", true),
			}}, stopped: true,
		},
		"offline for long": {
			listed: []proxmoxapi.VM{listed(401, "pve", "c-control-1"), listed(402, "pve2", "")},
			hosts:  map[string][]proxmoxapi.VM{"pve": {is(401, "pve", "c-control-1", false)}},
			warnings: []string{"proxmox.hosts: is offline: the state of the VMs of c-control-2 is unknown, and none of them " +
				"can be changed or deleted (given: pve2); " +
				"start it, or check its daemons ('systemctl status pveproxy pvedaemon'); nodes on other hosts can " +
				"be changed"},
		},
		"offline or not, which is good to know": {
			listed: []proxmoxapi.VM{listed(401, "pve", "c-control-1"), listed(402, "pve2", "c-control-2")},
			hosts:  map[string][]proxmoxapi.VM{"pve": {is(401, "pve", "c-control-1", false)}},
			broken: errors.New("500 broken"),
			warnings: []string{"proxmox.hosts: does not answer, and could not be determined to be online (500 broken): the " +
				"state of the VMs of c-control-2 is unknown, and none of them can be changed or deleted (given: pve2); " +
				"start it, or check its daemons ('systemctl status pveproxy pvedaemon'); nodes on other hosts can be changed"},
		},
		"its daemons are stopped": {
			listed: []proxmoxapi.VM{listed(401, "pve", "c-control-1"), listed(402, "pve3", "c-control-2")},
			hosts:  map[string][]proxmoxapi.VM{"pve": {is(401, "pve", "c-control-1", false)}},
			warnings: []string{"proxmox.hosts: does not answer, though the cluster sees it: the state of the VMs of " +
				"c-control-2 is unknown, and none of them can be changed " +
				"or deleted (given: pve3); start it, or check its daemons ('systemctl status pveproxy pvedaemon'); " +
				"nodes on other hosts can be changed"},
		},
		"without tags on a silent host": {
			listed: []proxmoxapi.VM{listed(401, "pve", "c-control-1"), {ID: 402, Host: "pve2"}},
			hosts:  map[string][]proxmoxapi.VM{"pve": {is(401, "pve", "c-control-1", false)}},
			problem: `pools.control.vmids: 402 is a VM on host pve2, which does not answer, without the tags c and talos: its owner is unknown ` +
				`(given: c-control-2); start the host, or choose another range`,
			warnings: []string{"proxmox.hosts: is offline: the state of the VMs of c-control-2 is unknown, and none of them " +
				"can be changed or deleted (given: pve2); " +
				"start it, or check its daemons ('systemctl status pveproxy pvedaemon'); nodes on other hosts can " +
				"be changed"},
		},
		"renamed since": {
			listed: []proxmoxapi.VM{listed(401, "pve", "c-control-1"), listed(402, "pve", "c-control-2")},
			hosts:  map[string][]proxmoxapi.VM{"pve": {is(401, "pve", "c-control-1", false), is(402, "pve", "old-2", false)}},
			problem: `pools.control.names: VMID 402 is "old-2", a node of this cluster: a node keeps its name (given: c-control-2); ` +
				`if the VM was renamed, rename it back: run 'qm set 402 --name c-control-2' on host pve; if the configuration was changed, ` +
				`give the pool its former name, or its names the former pattern: the node must be called "old-2"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := plantest.Template()
			for i := range p.Pools[0].Nodes {
				p.Pools[0].Nodes[i].Template = ""
			}

			s := newChecker(p, staleCluster{FixedVMs: preflighttest.FixedVMs{Listed: c.listed, Interface: "scsi0"}, hosts: c.hosts, broken: c.broken}, quietNetwork{})

			if err := s.problems(t.Context()); c.problem == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, "the configuration has 1 problem:\n  - "+c.problem)
			}

			var said []string
			for _, w := range s.Warnings {
				if w.Path == "proxmox.hosts" {
					said = append(said, w.String())
				}
			}

			assert.Equal(t, c.warnings, said)
			assert.Empty(t, s.Absent, "a VM is there, whatever is known of it")
			assert.Equal(t, c.stopped, s.VMs[1].Stopped, "only a host says that a VM is off")
		})
	}
}
