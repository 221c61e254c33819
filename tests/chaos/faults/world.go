package faults

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/tests/lab/world"
)

// View is what must be the same in the end, whatever happened: every VM with its configuration, every volume, every
// mapping.
type View struct {
	world.State

	// Configs are the VMs' configurations by VMID, without what Proxmox VE generates for each VM.
	Configs map[int][]string
	// Resources are the URNs in the stack's state.
	Resources []string
}

// madeUp are settings that differ from one creation of a VM to the next.
var madeUp = []string{"digest", "meta", "smbios1", "vmgenid"}

// ownUUID is what the description of a VM says of it alone.
var ownUUID = regexp.MustCompile(`VM UUID [0-9a-f-]+`)

// view looks at the world.
func view(w *world.World) (View, error) {
	v := View{State: w.Snapshot(), Configs: map[int][]string{}}

	for i, vm := range v.VMs {
		config, err := w.Config(vm.Host, vm.ID, true)
		if err != nil {
			return View{}, err
		}

		for key, value := range config {
			if !slices.Contains(madeUp, key) {
				v.Configs[vm.ID] = append(v.Configs[vm.ID], ownUUID.ReplaceAllString(fmt.Sprintf("%s: %v", key, value), ""))
			}
		}

		slices.Sort(v.Configs[vm.ID])

		// It is of the whole configuration.
		v.VMs[i].Config = ""
	}

	// The user data of K3s holds certificates, which each life makes for itself.
	for i := range v.Volumes {
		if v.Volumes[i].Kind == "snippets" {
			v.Volumes[i].Size = 0
		}
	}

	return v, nil
}

// machines are what tells a VM from another that has its VMID: its UUID.
func machines(w *world.World) (map[int]string, error) {
	found := map[int]string{}

	for _, vm := range w.Snapshot().VMs {
		config, err := w.Config(vm.Host, vm.ID, true)
		if err != nil {
			return nil, err
		}

		found[vm.ID] = strings.TrimSpace(fmt.Sprint(config["smbios1"]))
	}

	return found, nil
}
