package components

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/plan/plantest"
	"talos-proxmox/components/proxmoxapi"
)

// store is a Proxmox VE with files, an offer and one machine.
type store struct {
	Proxmox

	files   map[string]int64
	offered int64
	err     error
	machine *proxmoxapi.VM
	config  proxmoxapi.VMConfig
	ejected []string
}

func (s *store) Files(_ context.Context, host, datastore string) (map[string]int64, error) {
	if host != "pve" || datastore != "local" {
		return nil, errors.New("asked elsewhere")
	}

	return s.files, s.err
}

func (s *store) Offered(_ context.Context, host, url string) (int64, error) {
	if host != "pve" || url != "https://factory.lan/x.iso" {
		return 0, errors.New("asked for something else")
	}

	return s.offered, s.err
}

func (s *store) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return s.config, nil
}

func (s *store) Find(_ context.Context, vmid int) (proxmoxapi.VM, bool, error) {
	if s.machine == nil || s.machine.ID != vmid {
		return proxmoxapi.VM{}, false, s.err
	}

	return *s.machine, true, nil
}

func (s *store) Eject(_ context.Context, vm proxmoxapi.VM, drive string) error {
	s.ejected = append(s.ejected, vm.Name+" "+drive)

	return nil
}

func inputs(values map[string]any) *pulumi.ResourceHookArgs {
	return &pulumi.ResourceHookArgs{NewInputs: resource.NewPropertyMapFromMap(values)}
}

func TestImageOffered(t *testing.T) {
	download := inputs(map[string]any{"nodeName": "pve", "url": "https://factory.lan/x.iso"})

	for name, c := range map[string]struct {
		store store
		want  string
	}{
		"an image":                      {store{offered: 112 << 20}, ""},
		"a server that does not say":    {store{offered: 0}, ""},
		"nine bytes that say Not Found": {store{offered: 9}, "https://factory.lan/x.iso holds 9 bytes: that is no image. Open it, and correct the URL, or what the factory is asked for"},
		"nothing":                       {store{err: errors.New("bad request: invalid response: 404")}, "host pve cannot get the image https://factory.lan/x.iso: bad request: invalid response: 404"},
	} {
		t.Run(name, func(t *testing.T) {
			err := imageGates{&c.store, &plan.Plan{}}.offered(t.Context(), download)
			if c.want == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, c.want)
			}
		})
	}
}

func TestImageWhole(t *testing.T) {
	iso := inputs(map[string]any{"nodeName": "pve", "cdrom": map[string]any{"fileId": "local:iso/x.iso"}})
	disk := inputs(map[string]any{
		"nodeName": "pve", "cdrom": map[string]any{"fileId": "none"}, "disks": []any{map[string]any{"fileId": "local:iso/x.img"}},
	})
	clone := inputs(map[string]any{"nodeName": "pve", "cdrom": map[string]any{"fileId": "none"}, "disks": []any{map[string]any{"interface": "scsi0"}}})

	for name, c := range map[string]struct {
		args *pulumi.ResourceHookArgs
		size map[string]int64
		want string
	}{
		"an ISO file": {iso, map[string]int64{"local:iso/x.iso": 112 << 20}, ""},
		"a disk":      {disk, map[string]int64{"local:iso/x.img": 1 << 30}, ""},
		"a clone":     {clone, nil, ""},
		"gone":        {iso, map[string]int64{"local:iso/y.iso": 112 << 20}, "image local:iso/x.iso is not on host pve: it was removed. Run 'pulumi up --refresh'"},
		"cut off":     {disk, map[string]int64{"local:iso/x.img": 9}, "image local:iso/x.img on host pve has 9 bytes: that is no image. Delete it there ('pvesm free local:iso/x.img'), and run 'pulumi up --refresh'"},
	} {
		t.Run(name, func(t *testing.T) {
			err := imageGates{proxmox: &store{files: c.size}}.whole(t.Context(), c.args)
			if c.want == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, c.want)
			}
		})
	}
}

func TestVMIDFree(t *testing.T) {
	p := plantest.ISO(t)
	n := p.Nodes()[0]
	args := inputs(map[string]any{"vmId": float64(n.VMID), "name": n.Name})
	at := fmt.Sprintf("VMID %d", n.VMID)
	empty := fmt.Sprintf(`%s is "c-control-1" on host pve already, but not in this stack's state: a run was cut off while it made it, and nothing is on it. `+
		`Delete it ('qm destroy %d --purge' there), then run 'pulumi up' again`, at, n.VMID)
	adopt := at + ` is "c-control-1" on host pve already, but not in this stack's state: a run was cut off before it could note it. To take it in, ` +
		`run 'go run ./stacks/ops -s dev adopt' and what that prints. To have it made anew, delete that VM, then run 'pulumi up' again`

	assert.NoError(t, free(t.Context(), p, &store{}, "dev", args))
	assert.EqualError(t, free(t.Context(), p, &store{err: proxmoxapi.ErrUnreachable}, "dev", args), "cannot be reached")

	whole := proxmoxapi.VMConfig{Disks: map[string]int{n.Disks[0].Interface: 40}, CDROMs: map[string]string{n.CDROM: "none"}}
	loaded, bare := whole, whole
	loaded.CDROMs, bare.Disks = map[string]string{n.CDROM: "local:iso/talos-1.12.4.iso"}, nil
	ours := proxmoxapi.VM{ID: n.VMID, Name: n.Name, Host: "pve", Tags: []string{"talos"}, Stopped: true}

	for name, c := range map[string]struct {
		change func(*proxmoxapi.VM)
		config proxmoxapi.VMConfig
		want   string
	}{
		"somebody else's": {func(v *proxmoxapi.VM) { v.Name = "mail" }, bare,
			at + `, meant for "c-control-1", is taken by "mail" on host pve: it was made while this run was under way. Remove it, or choose another range`},
		"it runs":                            {func(v *proxmoxapi.VM) { v.Stopped = false }, loaded, adopt},
		"it ran":                             {func(*proxmoxapi.VM) {}, whole, adopt},
		"a copy without its settings":        {func(v *proxmoxapi.VM) { v.Tags = nil }, whole, empty},
		"without its disk":                   {func(*proxmoxapi.VM) {}, bare, empty},
		"the ISO file is still in its drive": {func(*proxmoxapi.VM) {}, loaded, empty},
	} {
		t.Run(name, func(t *testing.T) {
			v := ours
			c.change(&v)
			assert.EqualError(t, free(t.Context(), p, &store{machine: &v, config: c.config}, "dev", args), c.want)
		})
	}

	// Where it stays in the drive, it tells nothing.
	p.Pools[0].Image.Detach = false
	assert.EqualError(t, free(t.Context(), p, &store{machine: &ours, config: loaded}, "dev", args), adopt)
}

func TestDetach(t *testing.T) {
	s := &store{machine: &proxmoxapi.VM{ID: 401, Name: "c-control-1", Host: "pve2"}}

	require.NoError(t, detach(t.Context(), s, plan.Node{Name: "c-control-1", VMID: 401, CDROM: "ide2"}))
	assert.Equal(t, []string{"c-control-1 ide2"}, s.ejected)

	assert.EqualError(t, detach(t.Context(), s, plan.Node{Name: "c-control-2", VMID: 402, CDROM: "ide2"}),
		"c-control-2: there is no VM with VMID 402 to take the ISO file out of")
}
