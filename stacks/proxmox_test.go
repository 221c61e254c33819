package stacks

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/luthermonson/go-proxmox"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/stacks/config"
)

// deployTo deploys to a Proxmox VE, in a network in which no machine answers.
func deployTo(ctx *pulumi.Context, c Config, p *plan.Plan, api Proxmox) (*Deployment, error) {
	clusters := []config.Planned{{Config: c, Plan: p}}

	all, err := deployAll(ctx, clusters, func(Config) (Proxmox, error) { return api, nil }, silentNetwork{})
	if err != nil {
		return nil, err
	}

	return all[0], nil
}

// fakeProxmox is a Proxmox VE with room for whatever tests want to make.
type fakeProxmox struct{ Proxmox }

func (fakeProxmox) Version(context.Context) (proxmoxapi.Version, error) {
	return proxmoxapi.Version{Text: "8.4.1", Major: 8}, nil
}

func (fakeProxmox) VMsOn(context.Context, string) ([]proxmoxapi.VM, error) { return nil, nil }

func (fakeProxmox) Hosts(context.Context) ([]proxmoxapi.Host, error) {
	var hosts []proxmoxapi.Host
	for _, name := range []string{"pve", "pve1", "pve2", "pve3", "proxmox1", "proxmox2", "proxmox3"} {
		hosts = append(hosts, proxmoxapi.Host{Name: name, Online: true, CPUs: 64, MemoryMiB: 1 << 20})
	}

	return hosts, nil
}

func (fakeProxmox) Snippets(context.Context, string, string) (map[string]int64, error) {
	return nil, nil
}

func (fakeProxmox) DiskImages(context.Context, string, string) ([]proxmoxapi.DiskImage, error) {
	return nil, nil
}

func (fakeProxmox) Stores(context.Context, string) (map[string]proxmoxapi.Store, error) {
	stores := map[string]proxmoxapi.Store{}
	for _, name := range []string{"local", "local-lvm", "local-zfs", "ceph"} {
		stores[name] = proxmoxapi.Store{Content: []string{"images", "iso", "snippets"}, Active: true, Free: 1 << 50}
	}

	return stores, nil
}

func (fakeProxmox) Bridges(context.Context, string) ([]proxmoxapi.Bridge, error) {
	return []proxmoxapi.Bridge{{Name: "vmbr0"}, {Name: "vmbr1"}}, nil
}

func (fakeProxmox) FirewallRules(context.Context, proxmoxapi.VM) ([]proxmox.FirewallRule, error) {
	return nil, nil
}

func (fakeProxmox) Time(context.Context, string) (time.Time, error) { return time.Now(), nil }

func (fakeProxmox) Permissions(context.Context) (proxmoxapi.Permissions, error) {
	all := map[string]bool{}
	for _, name := range strings.Fields(`Datastore.Allocate Datastore.AllocateSpace Datastore.AllocateTemplate Datastore.Audit Mapping.Modify Mapping.Use Pool.Allocate Pool.Audit
		SDN.Use Sys.AccessNetwork Sys.Audit Sys.Console Sys.Modify VM.Allocate VM.Audit VM.Clone VM.Config.CDROM VM.Config.CPU VM.Config.Cloudinit VM.Config.Disk VM.Config.HWType VM.Config.Memory
		VM.Config.Network VM.Config.Options VM.GuestAgent.Audit VM.GuestAgent.FileRead VM.GuestAgent.FileWrite VM.Migrate VM.PowerMgmt`) {
		all[name] = true
	}

	return proxmoxapi.Permissions{"/": all}, nil
}

func (fakeProxmox) ResourcePools(context.Context) ([]string, error) {
	return []string{"a", "dev", "talos"}, nil
}

func (fakeProxmox) SharedStores(context.Context) (map[string]bool, error) { return nil, nil }

func (fakeProxmox) Mappings(context.Context) (map[string][]proxmoxapi.Mapped, error) { return nil, nil }

// silentNetwork is a network without answers.
type silentNetwork struct{}

func (silentNetwork) Listening(context.Context, netip.Addr) int { return 0 }

func (silentNetwork) Resolves(context.Context, string) bool { return true }

func (silentNetwork) Source(context.Context, netip.Addr) netip.Addr { return netip.Addr{} }

// Extensions are all that tests name.
func (silentNetwork) Extensions(context.Context, string, string) ([]string, error) {
	return []string{
		"siderolabs/qemu-guest-agent", "siderolabs/tailscale", "siderolabs/iscsi-tools", "siderolabs/util-linux-tools",
		"siderolabs/nvidia-container-toolkit-lts", "siderolabs/nonfree-kmod-nvidia-lts",
	}, nil
}

// TestTaskTimeoutOfAccess: the program's own tasks are bounded as the stack says.
func TestTaskTimeoutOfAccess(t *testing.T) {
	config := testConfig()
	config.Lifecycle.TaskTimeout = "5m"

	if got := config.Access().TaskTimeout; got != 5*time.Minute {
		t.Errorf("got %s", got)
	}
}
