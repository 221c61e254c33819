package vmimage

import (
	"context"
	"errors"
	"maps"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
)

// fakeProxmox is a Proxmox VE with files, an offer and one machine.
type fakeProxmox struct {
	proxmoxvm.Proxmox

	files   map[string]int64
	offered int64
	unread  error // why the URL cannot be read
	held    proxmoxapi.Permissions
	err     error
	machine *proxmoxapi.VM
	config  proxmoxapi.VMConfig
	vms     []proxmoxapi.VM
	shared  map[string]bool
	// unreadable is what asking for the settings of a VM fails with.
	unreadable error
	// fetched are the downloads asked for; refused is what they fail with.
	fetched []proxmoxapi.Download
	refused error
	// deleted are the volumes that were deleted; deleting are those whose deletion still runs.
	deleted, deleting []string
	// undeleted is what deletions fail with; lost says that they are carried out all the same.
	undeleted error
	lost      bool
}

func (s *fakeProxmox) Files(_ context.Context, host, datastore string) (map[string]int64, error) {
	if host != "pve" || datastore != "local" {
		return nil, errors.New("asked elsewhere")
	}

	return s.files, s.err
}

func (s *fakeProxmox) DeleteFile(_ context.Context, _, volume string) error {
	s.deleted = append(s.deleted, volume)

	if s.undeleted == nil || s.lost {
		s.files = maps.Clone(s.files)
		delete(s.files, volume)
	}

	return s.undeleted
}

func (s *fakeProxmox) Snippets(ctx context.Context, host, datastore string) (map[string]int64, error) {
	return s.Files(ctx, host, datastore)
}

func (s *fakeProxmox) AwaitDeletions(_ context.Context, host, datastore string) error {
	if host != "pve" || datastore != "local" {
		return errors.New("asked elsewhere")
	}

	for _, volume := range s.deleting {
		delete(s.files, volume)
	}

	return s.err
}

func (s *fakeProxmox) Permissions(context.Context) (proxmoxapi.Permissions, error) {
	return s.held, nil
}

func (s *fakeProxmox) URLSize(_ context.Context, host, url string) (int64, error) {
	if host != "pve" || url != "https://factory.lan/x.iso" {
		return 0, errors.New("asked for something else")
	}

	return s.offered, s.unread
}

func (s *fakeProxmox) Download(_ context.Context, _, _ string, file proxmoxapi.Download) error {
	s.fetched = append(s.fetched, file)

	return s.refused
}

func (s *fakeProxmox) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return s.config, s.unreadable
}

func (s *fakeProxmox) VMs(context.Context) ([]proxmoxapi.VM, error) { return s.vms, nil }

func (s *fakeProxmox) SharedStores(context.Context) (map[string]bool, error) { return s.shared, nil }

func (s *fakeProxmox) Find(_ context.Context, vmid int) (proxmoxapi.VM, bool, error) {
	if s.machine == nil || s.machine.ID != vmid {
		return proxmoxapi.VM{}, false, s.err
	}

	return *s.machine, true, nil
}

func inputs(values map[string]any) *pulumi.ResourceHookArgs {
	return &pulumi.ResourceHookArgs{NewInputs: resource.NewPropertyMapFromMap(values)}
}
