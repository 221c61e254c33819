package vmidentity

import (
	"context"
	"fmt"
	"strings"

	"talos-proxmox/components/proxmoxapi"
)

// checkNoCopy refuses to let a VM be started that is off while a copy of it runs: a restored backup has its SMBIOS
// UUID, its addresses and its data of etcd, and two machines must not be one member.
func (i *Identities) checkNoCopy(ctx context.Context, f Found) error {
	if !f.VM.Stopped || f.Config.UUID == "" {
		return nil
	}

	vms, err := i.proxmox.VMs(ctx)
	if err != nil {
		return err
	}

	for _, v := range vms {
		_, _, planned := NodeByVMID(i.plan, v.ID)
		// A copy has the tags, and the name unless it was given another one; soon after its creation, only one of them is
		// known.
		alike := v.Name == f.VM.Name || OfCluster(v, i.plan)

		if v.ID == f.VM.ID || v.Container || v.Template || !alike || planned || i.inState(v.ID) {
			continue
		}

		// Only its host knows whether it runs. On one that does not answer, nothing is known of a copy.
		now, there, err := i.proxmox.Find(ctx, v.ID)
		if err == nil && (!there || now.Stopped || now.Unreachable) {
			continue
		}

		var config proxmoxapi.VMConfig
		if err == nil {
			config, err = i.proxmox.Config(ctx, now)
		}

		if err != nil {
			return fmt.Errorf("%s is off, and could not determine whether VM %d (%s) on host %s is a copy that runs in its "+
				"place: %w", f.VM.Label(), v.ID, v.Label(), v.Host, err)
		}

		if strings.EqualFold(config.UUID, f.Config.UUID) {
			return fmt.Errorf("%s (VMID %d) is off, and VM %d on host %s runs with its SMBIOS UUID: a copy, such as a restored "+
				"backup, runs in its place, and two machines must not be one node. The VM is not changed, because that "+
				"would start it: shut down the copy, then run the same command again", f.VM.Label(), f.VM.ID, v.ID, v.Host)
		}
	}

	return nil
}
