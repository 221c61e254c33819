package vmimage

import (
	"errors"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosimage"
)

func TestCheckDownload(t *testing.T) {
	download := inputs(map[string]any{
		"nodeName": "pve", "url": "https://factory.lan/x.iso", "datastoreId": "local", "fileName": "x.iso",
	})
	left := map[string]int64{"local:iso/x.iso": 112 << 20}
	on := func(names ...string) proxmoxapi.Permissions {
		held := map[string]bool{}
		for _, name := range names {
			held[name] = true
		}

		return proxmoxapi.Permissions{"/": held}
	}

	for name, c := range map[string]struct {
		store   fakeProxmox
		want    string
		deleted []string
	}{
		"an image":                   {store: fakeProxmox{offered: 112 << 20}},
		"a server that does not say": {store: fakeProxmox{offered: 0}},
		"nine bytes that say Not Found": {
			store: fakeProxmox{offered: 9, files: left, held: on("Datastore.Allocate", "VM.Audit")},
			want: "https://factory.lan/x.iso holds 9 bytes: that is not an image. Open the URL, then correct it, " +
				"or the settings of image.factory",
		},
		"nothing": {
			store: fakeProxmox{unread: errors.New("bad request: invalid response: 404")},
			want:  "host pve cannot get the image https://factory.lan/x.iso: bad request: invalid response: 404",
		},
		"left by an earlier deployment, and may be deleted": {
			store:   fakeProxmox{offered: 112 << 20, files: left, held: on("Datastore.Allocate", "VM.Audit")},
			deleted: []string{"local:iso/x.iso"},
		},
		"left by an earlier deployment, and perhaps in the drive of a VM that is not visible": {
			store: fakeProxmox{offered: 112 << 20, files: left, held: on("Datastore.Allocate")},
			want: "image local:iso/x.iso is on host pve already, and the credentials do not see all VMs: it is not known " +
				"whether one has it in a drive. Delete it if none has: run 'pvesm free local:iso/x.iso' on that host; or grant " +
				"VM.Audit on /vms",
		},
		"left by an earlier deployment, and may not be deleted": {
			store: fakeProxmox{offered: 112 << 20, files: left, held: on("Datastore.AllocateTemplate", "VM.Audit")},
			want: "image local:iso/x.iso is on host pve already, and is not in this stack's state: an earlier deployment has left it. " +
				"It is downloaded again, and the credentials lack Datastore.Allocate on /storage/local to delete it first. Delete " +
				"it: run 'pvesm free local:iso/x.iso' on that host; or run 'pveum role modify TalosProxmox -append -privs " +
				"Datastore.Allocate', with the name of the role",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &plan.Plan{}
			h := Hooks{
				Proxmox: &c.store, Plan: p, Progress: func(string) {}, Identities: vmidentity.NewIdentities(nil, p, &c.store, nil),
			}

			err := h.CheckDownload(t.Context(), download)
			assert.Equal(t, c.deleted, c.store.deleted)

			if c.want == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, c.want)
			}
		})
	}
}

func TestCheckImage(t *testing.T) {
	iso := inputs(map[string]any{"nodeName": "pve", "cdrom": map[string]any{"fileId": "local:iso/x.iso"}})
	disk := inputs(map[string]any{
		"nodeName": "pve", "cdrom": map[string]any{"fileId": "none"},
		"disks": []any{map[string]any{"fileId": "local:iso/x.img"}},
	})
	clone := inputs(map[string]any{
		"nodeName": "pve", "cdrom": map[string]any{"fileId": "none"},
		"disks": []any{map[string]any{"interface": "scsi0"}},
	})

	for name, c := range map[string]struct {
		args *pulumi.ResourceHookArgs
		size map[string]int64
		want string
	}{
		"an ISO file": {iso, map[string]int64{"local:iso/x.iso": 112 << 20}, ""},
		"a disk":      {disk, map[string]int64{"local:iso/x.img": 1 << 30}, ""},
		"a clone":     {clone, nil, ""},
		"gone": {iso, map[string]int64{"local:iso/y.iso": 112 << 20}, "image local:iso/x.iso is not on host pve: it " +
			"was removed. Run 'pulumi up --refresh'"},
		"cut off": {disk, map[string]int64{"local:iso/x.img": 9}, "image local:iso/x.img on host pve has 9 bytes: that " +
			"is not an image. Delete it there ('pvesm free local:iso/x.img'), and run 'pulumi up --refresh'"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Hooks{Proxmox: &fakeProxmox{files: c.size}}.CheckImage(t.Context(), c.args)
			if c.want == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, c.want)
			}
		})
	}

	downloaded := inputs(map[string]any{"nodeName": "pve", "datastoreId": "local", "fileName": "x.iso"})
	h := Hooks{Proxmox: &fakeProxmox{files: map[string]int64{"local:iso/x.iso": 22}}}
	assert.ErrorContains(t, h.CheckDownloaded(t.Context(), downloaded), "image local:iso/x.iso on host pve has 22 bytes")
}

// An image in a drive of a VM of others stays.
func TestCheckUnused(t *testing.T) {
	p := &plan.Plan{
		Cluster: "c", Distribution: spec.DistributionTalos, Pools: []plan.PlannedPool{{Nodes: []plan.Node{{VMID: 401}}}},
	}
	image := inputs(map[string]any{"nodeName": "pve", "datastoreId": "local", "fileName": "x.iso"})
	inDrive := proxmoxapi.VMConfig{CDROMs: map[string]string{"ide2": "local:iso/x.iso", "ide3": "none"}}
	refusal := func(host string) string {
		return "image local:iso/x.iso is to be deleted, and is in drive ide2 of VM 300 (app) on host " + host +
			", which is not in this stack: that VM would not start without it. Run 'qm set 300 --ide2 none,media=cdrom' " +
			"on that host, then run 'pulumi up' again"
	}

	for name, c := range map[string]struct {
		vm     proxmoxapi.VM
		config proxmoxapi.VMConfig
		shared bool
		unread error
		want   string
	}{
		"in a drive of a node":     {vm: proxmoxapi.VM{ID: 401, Host: "pve"}, config: inDrive},
		"in a drive of another VM": {vm: proxmoxapi.VM{ID: 300, Name: "app", Host: "pve"}, config: inDrive, want: refusal("pve")},
		"in a drive of a node that leaves": {
			vm: proxmoxapi.VM{ID: 402, Host: "pve", Tags: []string{"c", "talos"}}, config: inDrive,
		},
		"a file of another host": {vm: proxmoxapi.VM{ID: 300, Name: "app", Host: "pve2"}, config: inDrive},
		"the same file there":    {vm: proxmoxapi.VM{ID: 300, Name: "app", Host: "pve2"}, config: inDrive, shared: true, want: refusal("pve2")},
		"another file":           {vm: proxmoxapi.VM{ID: 300, Host: "pve"}, config: proxmoxapi.VMConfig{CDROMs: map[string]string{"ide2": "local:iso/y.iso"}}},
		"a container":            {vm: proxmoxapi.VM{ID: 300, Host: "pve", Container: true}, config: inDrive},
		"a VM that cannot be read": {
			vm: proxmoxapi.VM{ID: 300, Name: "app", Host: "pve"}, unread: proxmoxapi.ErrHostUnreachable,
			want: "local:iso/x.iso is to be deleted, and it is not known whether VM 300 (app) on host pve uses it: " +
				proxmoxapi.ErrHostUnreachable.Error(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := &fakeProxmox{
				vms: []proxmoxapi.VM{c.vm}, config: c.config, shared: map[string]bool{"local": c.shared}, unreadable: c.unread,
				offered: 112 << 20, files: map[string]int64{"local:iso/x.iso": 112 << 20},
				held: proxmoxapi.Permissions{"/": {"Datastore.Allocate": true, "VM.Audit": true}},
			}
			h := Hooks{
				Proxmox: store, Plan: p, Progress: func(string) {}, Identities: vmidentity.NewIdentities(nil, p, store, nil),
			}

			deletion := h.CheckUnused(t.Context(), &pulumi.ResourceHookArgs{OldInputs: image.NewInputs})
			download := h.CheckDownload(t.Context(), inputs(map[string]any{
				"nodeName": "pve", "datastoreId": "local", "fileName": "x.iso", "url": "https://factory.lan/x.iso",
			}))

			if c.want == "" {
				assert.NoError(t, deletion)
				assert.NoError(t, download)
				assert.Equal(t, []string{"local:iso/x.iso"}, store.deleted)
			} else {
				assert.EqualError(t, deletion, c.want)
				assert.EqualError(t, download, c.want)
				assert.Empty(t, store.deleted)
			}
		})
	}
}

// TestCheckUnusedUnseen: an ISO file stays where the credentials do not show who has it in a drive.
func TestCheckUnusedUnseen(t *testing.T) {
	h := Hooks{Proxmox: &fakeProxmox{held: proxmoxapi.Permissions{"/pool/talos": {"VM.Audit": true}}}}

	assert.EqualError(t, h.CheckUnused(t.Context(), deletion(map[string]any{
		"nodeName": "pve", "datastoreId": "local", "fileName": "x.iso",
	})), "image local:iso/x.iso is to be deleted from host pve, and the credentials do not see all VMs: it is not known "+
		"whether one has it in a drive. Grant VM.Audit on /vms; or revert the change, set lifecycle.keepImages to true and "+
		"run 'pulumi up' before you make it again, which keeps the file")
}

func TestRestoreImage(t *testing.T) {
	const url = "https://factory.lan/x.iso"

	p := &plan.Plan{
		Cluster: "c", ImageStore: "local",
		Pools: []plan.PlannedPool{{Image: plan.BootImage{URL: url, Checksum: "ab"}, Nodes: []plan.Node{{Name: "a"}}}},
	}

	file, err := talosimage.Boot(p, p.Pools[0].Image, p.Pools[0].Nodes[0])
	require.NoError(t, err)

	wanted := []proxmoxapi.Download{{URL: url, Name: file.Name, SHA256: "ab"}}

	for name, c := range map[string]struct {
		deleted   string
		datastore string
		store     fakeProxmox
		destroys  bool
		fetched   []proxmoxapi.Download
		want      string
	}{
		"wanted": {deleted: file.Name, datastore: "local", fetched: wanted},
		"wanted, and there": {
			deleted: file.Name, datastore: "local",
			store: fakeProxmox{files: map[string]int64{"local:iso/" + file.Name: 1}},
		},
		"wanted, and still being deleted": {
			deleted: file.Name, datastore: "local", fetched: wanted,
			store: fakeProxmox{
				files: map[string]int64{"local:iso/" + file.Name: 1}, deleting: []string{"local:iso/" + file.Name},
			},
		},
		"of an earlier version": {deleted: "c-old.iso", datastore: "local"},
		"of a cluster that goes": {
			deleted: file.Name, datastore: "local", destroys: true, store: fakeProxmox{err: errors.New("no answer")},
		},
		"on another datastore": {deleted: file.Name, datastore: "tank"},
		"silent host": {
			deleted: file.Name, datastore: "local", store: fakeProxmox{err: errors.New("no answer")},
			want: "host pve does not report whether it still has image local:iso/" + file.Name +
				": no answer. Run 'pulumi up --refresh'",
		},
		"mirror away": {
			deleted: file.Name, datastore: "local", store: fakeProxmox{refused: errors.New("404")},
			fetched: wanted,
			want: "image local:iso/" + file.Name +
				" was deleted, and cannot be downloaded again: 404. Run 'pulumi up --refresh'",
		},
	} {
		t.Run(name, func(t *testing.T) {
			hooks := Hooks{Proxmox: &c.store, Plan: p, Progress: func(string) {}, Destroying: c.destroys}
			err := hooks.RestoreImage(t.Context(), &pulumi.ResourceHookArgs{
				OldInputs: inputs(map[string]any{"nodeName": "pve", "datastoreId": c.datastore, "fileName": c.deleted}).NewInputs,
			})
			if c.want == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, c.want)
			}

			assert.Equal(t, c.fetched, c.store.fetched)
		})
	}
}

// TestCheckUserDataUnused: a file of user data that a VM of others reads stays.
func TestCheckUserDataUnused(t *testing.T) {
	p := &plan.Plan{
		Cluster: "c", Distribution: spec.DistributionK3s, Pools: []plan.PlannedPool{{Nodes: []plan.Node{{VMID: 401}}}},
	}
	reads := proxmoxapi.VMConfig{UserData: "user=local:snippets/k3s-1.yaml"}
	named := proxmoxapi.VMConfig{UserData: reads.UserData, Settings: map[string]string{"name": "k3s-1"}}

	for name, c := range map[string]struct {
		vm      proxmoxapi.VM
		config  proxmoxapi.VMConfig
		refused bool
	}{
		"its node":                  {vm: proxmoxapi.VM{ID: 401, Host: "pve"}, config: reads},
		"a VM of another cluster":   {vm: proxmoxapi.VM{ID: 300, Name: "k3s-1", Host: "pve"}, config: reads, refused: true},
		"a VM without a name yet":   {vm: proxmoxapi.VM{ID: 300, Host: "pve"}, config: named, refused: true},
		"that reads another file":   {vm: proxmoxapi.VM{ID: 300, Name: "k3s-1", Host: "pve"}},
		"a file of another host":    {vm: proxmoxapi.VM{ID: 300, Name: "k3s-1", Host: "pve2"}, config: reads},
		"a node that leaves it now": {vm: proxmoxapi.VM{ID: 402, Host: "pve", Tags: []string{"c", "k3s"}}, config: reads},
	} {
		t.Run(name, func(t *testing.T) {
			store := &fakeProxmox{vms: []proxmoxapi.VM{c.vm}, config: c.config}
			h := Hooks{Proxmox: store, Plan: p, Identities: vmidentity.NewIdentities(nil, p, store, nil)}

			err := h.CheckUserDataUnused(t.Context(), &pulumi.ResourceHookArgs{
				URN: "urn:x",
				OldInputs: inputs(map[string]any{
					"nodeName": "pve", "datastoreId": "local", "sourceRaw": map[string]any{"fileName": "k3s-1.yaml"},
				}).NewInputs,
			})
			if c.refused {
				assert.EqualError(t, err, "user data local:snippets/k3s-1.yaml are to be deleted, and VM 300 (k3s-1) on host pve "+
					"reads them, which is not in this stack: that VM would not start without them. Give it a copy ('cp $(pvesm path "+
					"local:snippets/k3s-1.yaml) $(pvesm path local:snippets/k3s-1-300.yaml)', then 'qm set 300 --cicustom "+
					"user=local:snippets/k3s-1-300.yaml' on that host), then run the command again")
			} else {
				assert.NoError(t, err)
			}
		})
	}
}
