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
	"talos-proxmox/components/talosimage"
)

func deletion(values map[string]any) *pulumi.ResourceHookArgs {
	return &pulumi.ResourceHookArgs{OldInputs: inputs(values).NewInputs}
}

// TestCheckDeleted: a file that its host failed to delete is deleted again, unless nodes boot from it.
func TestCheckDeleted(t *testing.T) {
	p := &plan.Plan{
		Cluster: "c", ImageStore: "local", Pools: []plan.PlannedPool{{
			Image: plan.BootImage{URL: "https://factory.lan/x.iso", Checksum: "ab"}, Nodes: []plan.Node{{Name: "a"}},
		}},
	}

	wanted, err := talosimage.Boot(p, p.Pools[0].Image, p.Pools[0].Nodes[0])
	require.NoError(t, err)

	left := func(name string) map[string]int64 { return map[string]int64{"local:iso/" + name: 1} }

	for name, c := range map[string]struct {
		file     string
		store    fakeProxmox
		destroys bool
		deleted  []string
		want     string
	}{
		"deleted": {file: "c-old.iso"},
		"deletion still runs": {
			file: "c-old.iso", store: fakeProxmox{files: left("c-old.iso"), deleting: []string{"local:iso/c-old.iso"}},
		},
		"left": {
			file: "c-old.iso", store: fakeProxmox{files: left("c-old.iso")}, deleted: []string{"local:iso/c-old.iso"},
		},
		"left, and wanted": {file: wanted.Name, store: fakeProxmox{files: left(wanted.Name)}},
		"left by a cluster that goes": {
			file: wanted.Name, store: fakeProxmox{files: left(wanted.Name)}, destroys: true,
			deleted: []string{"local:iso/" + wanted.Name},
		},
		"answer lost": {
			file: "c-old.iso", store: fakeProxmox{files: left("c-old.iso"), undeleted: errors.New("reset"), lost: true},
			deleted: []string{"local:iso/c-old.iso"},
		},
		"fails again": {
			file: "c-old.iso", store: fakeProxmox{files: left("c-old.iso"), undeleted: errors.New("read-only")},
			deleted: []string{"local:iso/c-old.iso"},
			want: "local:iso/c-old.iso is no longer in the state, and host pve failed to delete it: read-only. Run 'pvesm " +
				"free local:iso/c-old.iso' on that host, then run the same command again",
		},
		"used by a VM of others since": {
			file: "c-old.iso", store: fakeProxmox{
				files: left("c-old.iso"), vms: []proxmoxapi.VM{{ID: 900, Name: "other", Host: "pve"}},
				config: proxmoxapi.VMConfig{CDROMs: map[string]string{"ide2": "local:iso/c-old.iso"}},
			},
			want: "local:iso/c-old.iso is no longer in the state, and is not deleted again: image local:iso/c-old.iso is to be " +
				"deleted, and is in drive ide2 of VM 900 (other) on host pve, which is not in this stack: that VM would not " +
				"start without it. Run 'qm set 900 --ide2 none,media=cdrom' on that host, then run 'pulumi up' again",
		},
		"host does not answer": {
			file: "c-old.iso", store: fakeProxmox{err: errors.New("no answer")},
			want: "local:iso/c-old.iso is no longer in the state, and host pve does not report whether it was deleted: no " +
				"answer. Run 'pvesm free local:iso/c-old.iso' on that host, which deletes it if it is still there, then run " +
				"the same command again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.store.held = proxmoxapi.Permissions{"/": {"VM.Audit": true}}
			h := Hooks{
				Proxmox: &c.store, Plan: p, Progress: func(string) {}, Destroying: c.destroys,
				Identities: vmidentity.NewIdentities(nil, p, &c.store, nil),
			}

			err := h.CheckDeleted(t.Context(), deletion(map[string]any{
				"nodeName": "pve", "datastoreId": "local", "fileName": c.file,
			}))
			if c.want == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, c.want)
			}

			assert.Equal(t, c.deleted, c.store.deleted)
		})
	}
}

// TestCheckUserDataDeleted: user data that a host failed to delete are deleted again.
func TestCheckUserDataDeleted(t *testing.T) {
	const volume = "local:snippets/k3s-1.yaml"

	created := map[string]any{
		"nodeName": "pve", "datastoreId": "local", "sourceRaw": map[string]any{"fileName": "k3s-1.yaml"},
	}
	imported := map[string]any{"nodeName": "pve", "datastoreId": "local", "contentType": "snippets"}

	for name, of := range map[string]map[string]any{"created": created, "imported": imported} {
		t.Run(name, func(t *testing.T) {
			store := &fakeProxmox{files: map[string]int64{volume: 1}}
			h := Hooks{
				Proxmox: store, Progress: func(string) {}, Identities: vmidentity.NewIdentities(nil, &plan.Plan{}, store, nil),
			}
			args := deletion(of)
			args.ID = volume

			require.NoError(t, h.CheckUserDataDeleted(t.Context(), args))
			assert.Equal(t, []string{volume}, store.deleted)
		})
	}
}

// TestCheckUserDataFree: a file that another stack has written since the run began stays.
func TestCheckUserDataFree(t *testing.T) {
	const volume = "local:snippets/k3s-1.yaml"

	for name, c := range map[string]struct {
		files map[string]int64
		known bool // that the file was not there
		want  string
	}{
		"free":         {known: true},
		"there before": {files: map[string]int64{volume: 1}},
		"other file":   {files: map[string]int64{"local:snippets/k3s-2.yaml": 1}, known: true},
		"written meanwhile": {
			files: map[string]int64{volume: 1}, known: true,
			want: "user data local:snippets/k3s-1.yaml were written to host pve since this run began: another stack creates a " +
				"node of the same name now. Nothing was replaced. Choose names that no other cluster has " +
				"(pools.<pool>.names); or, if no other stack has such a node, run 'pulumi up' again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := Hooks{
				Proxmox:         &fakeProxmox{files: c.files},
				UserDataMissing: func(host, file string) bool { return c.known && host == "pve" && file == volume },
			}

			err := h.CheckUserDataFree(t.Context(), inputs(map[string]any{
				"nodeName": "pve", "datastoreId": "local", "sourceRaw": map[string]any{"fileName": "k3s-1.yaml"},
			}))
			if c.want == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, c.want)
			}
		})
	}
}
