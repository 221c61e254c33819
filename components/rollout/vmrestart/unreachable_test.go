package vmrestart

import (
	"context"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/proxmoxvm/vmidentity"
)

// onDeadHost is a Proxmox VE with one VM, whose host does not answer.
type onDeadHost struct{ Proxmox }

func (onDeadHost) Find(_ context.Context, id int) (proxmoxapi.VM, bool, error) {
	return proxmoxapi.VM{ID: id, Host: "pve2", Unreachable: true}, true, nil
}

// TestSilentHost: a VM is not changed, nor its VMID taken, where nothing is known of it. A preview says so, too.
func TestSilentHost(t *testing.T) {
	args := larger("a-vm")
	args.NewInputs["vmId"], args.NewInputs["name"] = resource.NewProperty(401.0), resource.NewProperty("a")

	const refused = "the VM of a (VMID 401) is to be changed, and its host pve2 does not answer: start the host, " +
		"or revert the change; if it never comes back, run 'rm /etc/pve/nodes/pve2/qemu-server/401.conf' on another host, " +
		"remove the host from proxmox.hosts, then run 'pulumi up --refresh' (cannot reach that host)"

	for _, preview := range []bool{false, true} {
		inProgram(t, preview, func(ctx *pulumi.Context) {
			r := restarting(ctx, &guests{}, func(r *Hooks) { r.Proxmox = onDeadHost{} })
			assert.EqualError(t, r.Before(t.Context(), args), refused)
		})
	}

	assert.EqualError(t, proxmoxvm.CheckComplete(t.Context(), plantest.Template(), onDeadHost{}, args), refused)
	assert.EqualError(t, vmidentity.CheckVMIDFree(t.Context(), &plan.Plan{}, onDeadHost{}, "dev", args),
		`VMID 401, meant for "a", is already used by a VM on host pve2, which does not answer: its owner is unknown. Start the host, or choose another range`)
}
