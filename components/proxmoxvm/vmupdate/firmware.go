package vmupdate

import (
	"cmp"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// CheckFirmwareKept is a hook that refuses, in previews too, another firmware for a VM that exists: what its disk boots
// was installed for the firmware that it has. Clones keep the firmware of their template.
func CheckFirmwareKept(p *plan.Plan, n plan.Node, args *pulumi.ResourceHookArgs) error {
	// A VM that was a clone when it was made states none.
	before := cmp.Or(hookutil.String(args.OldInputs, "bios"), hookutil.String(args.OldOutputs, "bios"))
	if after := hookutil.String(args.NewInputs, "bios"); before == "" || after == "" || after == before {
		return nil
	}

	var problems spec.Problems

	problems.Add("pools."+n.Pool+".firmware", "does not change for a VM that exists: "+n.Name+" was installed with "+
		before+", and does not boot with another firmware", n.Firmware, "set firmware: "+before+"; or "+
		remake(p, n.Name, "with "+n.Firmware))

	return problems.Err()
}
