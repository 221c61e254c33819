package k3s

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/k3sconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/preflight"
	"talos-proxmox/components/preflight/permissions"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/wait"
)

// guest is a Proxmox VE with one VM, whose guest agent has files.
type guest struct {
	Proxmox

	files  map[string]string
	denied error
	absent bool
}

func (g guest) Find(_ context.Context, vmid int) (proxmoxapi.VM, bool, error) {
	return proxmoxapi.VM{ID: vmid, Host: "pve"}, !g.absent, nil
}

func (g guest) GuestFile(_ context.Context, _ proxmoxapi.VM, path string) (string, error) {
	text, there := g.files[path]

	switch {
	case g.denied != nil:
		return "", g.denied
	case !there:
		return "", errors.New("no such file")
	default:
		return text, nil
	}
}

// TestJoinFails: what is said when a node does not join, with the end of its logs or why they cannot be had.
func TestJoinFails(t *testing.T) {
	const logged = "    k3s does not come up; its log ends with:\n    token is not valid"

	logs := map[string]string{
		k3sconfig.InstallLog:   "k3s does not come up; its log ends with:\ntoken is not valid\n",
		k3sconfig.CloudInitLog: "Cloud-init v. 25.3 finished\n",
	}
	with := func(more map[string]string) map[string]string {
		for path, text := range logs {
			more[path] = text
		}

		return more
	}

	for name, c := range map[string]struct {
		guest guest
		want  string
		quick bool
		major int
	}{
		"given up": {
			guest: guest{files: with(map[string]string{k3sconfig.FatalFile: "unsupported operating system debian 12\n"})}, quick: true,
			want: "unsupported operating system debian 12\n" +
				"/var/log/k3s-install.log ends with:\n" + logged +
				"\n/var/log/cloud-init-output.log ends with:\n    Cloud-init v. 25.3 finished",
		},
		"refused": {
			guest: guest{files: map[string]string{
				k3sconfig.InstallLog:   "https://127.0.0.1:6444/v1-k3s/config: 401 Unauthorized\n",
				k3sconfig.CloudInitLog: "finished\n",
			}},
			want: "gave up after 1s, waiting for the Kubernetes API of edge-server-1 (connection refused)\n" +
				"/var/log/k3s-install.log ends with:\n    https://127.0.0.1:6444/v1-k3s/config: 401 " +
				"Unauthorized\n/var/log/cloud-init-output.log ends with:\n    finished\n" +
				"its servers reject its token: they were given a different one, or the state belongs to an earlier " +
				"cluster. Set token and agent-token in /etc/rancher/k3s/config.yaml " +
				"of each server to the values in the state, and restart k3s there; the node keeps trying, and " +
				"'pulumi up' continues with it",
		},
		"silent": {
			guest: guest{files: with(map[string]string{k3sconfig.FatalFile: ""})},
			want: "gave up after 1s, waiting for the Kubernetes API of edge-server-1 (connection refused)\n" +
				"/var/log/k3s-install.log ends with:\n" + logged +
				"\n/var/log/cloud-init-output.log ends with:\n    Cloud-init v. 25.3 finished",
		},
		"agent denied": {
			guest: guest{denied: fmt.Errorf("Proxmox VE %w", proxmoxapi.ErrRefused)}, major: 9,
			want: "gave up after 1s, waiting for the Kubernetes API of edge-server-1 (connection refused)\n" +
				"the machine's logs cannot be read through its guest agent: Proxmox VE refuses the credentials; grant " +
				"VM.GuestAgent.FileRead\n" +
				"log in, and see them: ssh ubuntu@127.0.0.9 sudo tail /var/log/k3s-install.log /var/log/cloud-init-output.log",
		},
		"agent denied by Proxmox VE 8": {
			guest: guest{denied: fmt.Errorf("Proxmox VE %w", proxmoxapi.ErrRefused)}, major: 8,
			want: "gave up after 1s, waiting for the Kubernetes API of edge-server-1 (connection refused)\n" +
				"the machine's logs cannot be read through its guest agent: Proxmox VE refuses the credentials; grant " +
				"VM.Monitor\n" +
				"log in, and see them: ssh ubuntu@127.0.0.9 sudo tail /var/log/k3s-install.log /var/log/cloud-init-output.log",
		},
		"no machine": {
			guest: guest{absent: true},
			want: "gave up after 1s, waiting for the Kubernetes API of edge-server-1 (connection refused)\n" +
				"the machine's logs cannot be read through its guest agent: there is no VM with VMID 401\n" +
				"log in, and see them: ssh ubuntu@127.0.0.9 sudo tail /var/log/k3s-install.log /var/log/cloud-init-output.log",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := plantest.K3s(t)
			p.ReadyTimeout = time.Second // a busy machine takes its time for one attempt

			if c.quick {
				p.ReadyTimeout = time.Hour
			}

			j := joinCheckOf(t, p, c.guest, silent)
			j.ProxmoxMajor = c.major
			require.EqualError(t, j.wait(t.Context(), p.ReadyTimeout), c.want)
		})
	}
}

// TestExplainRefusal: the privilege to grant is named as the version of Proxmox VE calls it.
func TestExplainRefusal(t *testing.T) {
	refused := fmt.Errorf("Proxmox VE %w", proxmoxapi.ErrRefused)

	for major, names := range map[int][2]string{
		8: {"VM.Monitor", "VM.Monitor"}, 9: {"VM.GuestAgent.FileRead", "VM.GuestAgent.FileWrite"},
		0: {"VM.GuestAgent.FileRead", "VM.GuestAgent.FileWrite"},
	} {
		c := &Cluster{Options: Options{ProxmoxMajor: major}}

		for i, needed := range []permissions.Privilege{permissions.ReadGuestFiles, permissions.WriteGuestFiles} {
			require.EqualError(t, c.explainRefusal(refused, needed), "Proxmox VE refuses the credentials; grant "+names[i])
			require.EqualError(t, c.explainRefusal(errors.New("broken"), needed), "broken")
		}
	}
}

// TestJoinWaitsForCloudInit: a machine that has not finished with itself is not ready, whatever Kubernetes says.
func TestJoinWaitsForCloudInit(t *testing.T) {
	j := joinCheckOf(t, plantest.K3s(t), guest{files: map[string]string{
		k3sconfig.CloudInitStatus: `{"v1": {"stage": "modules-final", "modules-final": {"errors": [], "finished": null}}}`,
	}}, silent)

	require.NoError(t, j.checkInstallation(t.Context()))
	assert.Equal(t, "cloud-init of edge-server-1 to finish", j.pendingSetUp)
}

// TestJoinShowsCloudInit: what cloud-init has failed at is said while the node is waited for.
func TestJoinShowsCloudInit(t *testing.T) {
	var said []string

	p := plantest.K3s(t)
	j := joinCheckOf(t, p, guest{files: map[string]string{
		k3sconfig.CloudInitStatus: `{"v1": {"stage": null, "modules-final": {"errors": ["('scripts_user', RuntimeError())"], ` +
			`"finished": 40.5}}}`,
	}}, func(message string) { said = append(said, message) })

	require.Error(t, j.wait(t.Context(), p.ReadyTimeout))
	assert.Equal(t, "waiting for the Kubernetes API of edge-server-1 (connection refused); its cloud-init has failed: "+
		"('scripts_user', RuntimeError()) "+
		"(0s of at most 300ms)", said[0])
}

// joinCheckOf is the check of the first server, which has its datastore and at whose address nothing answers.
func joinCheckOf(t *testing.T, p *plan.Plan, proxmox Proxmox, progress wait.Reporter) *joinCheck {
	t.Helper()

	c := clusterOf(p, "127.0.0.9", kubeconfigOf(t))
	c.Proxmox, c.Progress = proxmox, progress

	return &joinCheck{Cluster: c, node: p.Nodes()[0], skipDatastore: true}
}

// clusterOf is a cluster whose first server has an address.
func clusterOf(p *plan.Plan, address, kubeconfig string) *Cluster {
	c := New(Options{
		Scope: rollout.Scope{
			Program: rollout.Program{Progress: silent, Warn: silent}, Plan: p, Inventory: (*preflight.Report)(nil),
			Addresses: &proxmoxvm.AddressBook{},
		},
		Kubeconfig: wait.NewFuture[string](), Identity: wait.NewFuture[k3sconfig.Identity](),
	}).Cluster
	c.Addresses.Set("edge-server-1", address)
	c.Kubeconfig.Set(kubeconfig)

	return c
}

func kubeconfigOf(t *testing.T) string {
	t.Helper()

	i, err := k3sconfig.NewIdentity("edge", time.Now())
	require.NoError(t, err)

	text, err := i.Administrator(time.Now())
	require.NoError(t, err)

	pair, err := k3sconfig.ReadAdministrator(text)
	require.NoError(t, err)

	kubeconfig, err := i.Kubeconfig("edge", "https://127.0.0.9:6443", pair)
	require.NoError(t, err)

	return kubeconfig
}
