package importcmd

import (
	"context"
	"io"

	"github.com/luthermonson/go-proxmox"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/talosapi"
)

// Options of Write.
type Options struct {
	// Dir is where the files go; it is made with mode 0700.
	Dir string
	// Secrets is the file of a secrets bundle ("talosctl gen secrets"), Talosconfig that of an administrator's
	// talosconfig. The cluster's secrets come from one of them.
	Secrets, Talosconfig string
	// ControlPlane is the address of one, where neither the configuration nor the talosconfig states it, and no guest
	// agent reports it.
	ControlPlane string
	// Out is told what was found.
	Out io.Writer
}

// Proxmox is what is asked of Proxmox VE; *proxmoxapi.Client answers it.
type Proxmox interface {
	Find(ctx context.Context, vmid int) (proxmoxapi.VM, bool, error)
	Config(ctx context.Context, vm proxmoxapi.VM) (proxmoxapi.VMConfig, error)
	Links(ctx context.Context, vm proxmoxapi.VM) ([]proxmoxapi.Link, error)
	Files(ctx context.Context, host, datastore string) (map[string]int64, error)
	Snippets(ctx context.Context, host, datastore string) (map[string]int64, error)
	Mappings(ctx context.Context) (map[string][]proxmoxapi.Mapped, error)
	HAResources(ctx context.Context) (map[string]bool, error)
	FirewallRules(ctx context.Context, vm proxmoxapi.VM) ([]proxmox.FirewallRule, error)
}

// talos is what is asked of control planes; package talosapi answers it.
type talos struct {
	secrets func(context.Context, []talosapi.Target, talosapi.Credentials,
		func(t talosapi.Target, cluster string) error) (*secrets.Bundle, error)
	founded func(context.Context, []talosapi.Target, talosapi.Credentials) bool
}

// cluster is where the secrets come from: its control planes know them.
type cluster struct {
	options Options
	plan    *plan.Plan
	proxmox Proxmox
	talos   talos
	// written is the file that they were written to; empty: they were not.
	written string
}
