package proxmoxvm

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
)

// replaceIncomplete replaces an incomplete VM where the state, too, says that its creation failed: either alone means
// nothing.
func replaceIncomplete(incomplete bool) []pulumi.ResourceOption {
	if !incomplete {
		return nil
	}

	// The engine's own word for a resource that was made and could not be initialized.
	return []pulumi.ResourceOption{pulumi.ReplaceOnChanges([]string{"#initerror"})}
}

// CheckComplete is a hook that runs before a VM is changed. It refuses to go on where the state has more than there is:
// after a failure the engine asks the provider once more, which compares the state with the program, finds nothing to
// do, and would call the VM finished.
func CheckComplete(ctx context.Context, p *plan.Plan, proxmox Proxmox, args *pulumi.ResourceHookArgs) error {
	v, there, err := proxmox.Find(ctx, int(hookutil.Number(args.NewInputs, "vmId")))
	if err != nil || !there {
		return err
	}

	if err := vmidentity.CheckReachable(v, hookutil.String(args.NewInputs, "name")); err != nil {
		return err
	}

	config, err := proxmox.Config(ctx, v)
	if err != nil {
		return err
	}

	_, n, _ := vmidentity.NodeByVMID(p, v.ID)

	// A refresh clears what the state has of a creation that failed. An update would give the copy all but its UUID.
	if found := (vmidentity.Found{VM: v, Config: config}); found.Bare(n.Name, vmidentity.OwnerTags(p)) {
		return fmt.Errorf("VM %d on host %s is not finished: it %s; %s", v.ID, v.Host, vmidentity.BareReason,
			vmidentity.DeleteBare(v))
	}

	for _, disk := range Disks(args.OldOutputs) {
		at, size := hookutil.String(disk, "interface"), int(hookutil.Number(disk, "size"))

		switch has := config.Disks[at]; {
		case at == "":
			// The provider could not read back what it had made. It would write just that, and a refresh looks only for disks
			// that it knows.
			return fmt.Errorf("VM %d on host %s is not finished: the state does not know its disks, because they "+
				"could not be read when the VM was created or changed. "+
				"Replace the node (lifecycle.replace); or, if it was never configured, delete its VM ('qm stop "+
				"%d', 'qm destroy "+
				"%d --purge' there) and run "+
				"'pulumi up --refresh'", v.ID, v.Host, v.ID, v.ID)
		// It does not grow.
		case has < size && !slices.ContainsFunc(n.Disks, func(d plan.Disk) bool {
			return d.Interface == at && d.SizeGiB >= size
		}):
			return fmt.Errorf("VM %d on host %s is not finished: disk %s has %d GiB instead of %d, because an earlier run "+
				"failed. Run 'pulumi up --refresh', which detects this", v.ID, v.Host, at, has, size)
		}
	}

	return checkApplied(v, config, args)
}

// checkApplied finds changes that were not applied: what an update that failed has left in the state and not on Proxmox
// VE: the state has its outputs, and the inputs of before.
func checkApplied(v proxmoxapi.VM, config proxmoxapi.VMConfig, args *pulumi.ResourceHookArgs) error {
	return checkChanged(v, config, settings(args.OldInputs), settings(args.OldOutputs), "an earlier update failed")
}

// CheckUpdated checks that the VM of a node has what an update has changed of it. The provider takes any answer with
// status 200 for success, a proxy's page included.
func CheckUpdated(ctx context.Context, proxmox Proxmox, n plan.Node, args *pulumi.ResourceHookArgs) error {
	v, there, err := proxmox.Find(ctx, n.VMID)
	if err != nil || !there {
		return err
	}

	config, err := proxmox.Config(ctx, v)
	if err != nil {
		return err
	}

	return checkChanged(v, config, settings(args.OldInputs), settings(args.NewInputs),
		"Proxmox VE, or a proxy in its place, accepted the change but did not apply it")
}

// checkChanged checks that a VM has what has changed of its settings.
func checkChanged(v proxmoxapi.VM, config proxmoxapi.VMConfig, before, after map[string]string, why string) error {
	changed := slices.DeleteFunc(slices.Sorted(maps.Keys(after)), func(key string) bool {
		return before[key] == "" || before[key] == after[key]
	})

	for _, name := range changed {
		// "net0 bridge" is a part of the setting net0.
		key, part, _ := strings.Cut(name, " ")
		parts := proxmoxapi.Properties(config.Settings[key])

		is := parts[part]
		if is == "" {
			is = parts[firstPart[key]]
		}

		switch key {
		case "tags":
			is = sortedTags(strings.FieldsFunc(config.Settings[key], func(c rune) bool {
				return c == ';' || c == ',' ||
					c == ' '
			}))
		case "onboot", "protection":
			is = cmp.Or(is, "0")
		}

		if is != after[name] {
			return fmt.Errorf("VM %d on host %s is not as the state says: %s is %q instead of %q, because %s. "+
				"Run 'pulumi up --refresh', which detects this", v.ID, v.Host, name, is, after[name], why)
		}
	}

	return nil
}

// firstPart is the name of the first part of a setting, which may be left out (qm.conf).
var firstPart = map[string]string{"memory": "current", "cpu": "cputype"}

// settings are those of a VM that an operator changes, as its inputs or its outputs have them, by the keys of Proxmox
// VE.
func settings(values resource.PropertyMap) map[string]string {
	found := map[string]string{}

	add := func(key string, value resource.PropertyValue) {
		switch value = hookutil.Unwrap(value); {
		case value.IsString() && value.StringValue() != "":
			found[key] = value.StringValue()
		case value.IsNumber() && value.NumberValue() != 0:
			found[key] = strconv.FormatFloat(value.NumberValue(), 'f', -1, 64)
		case value.IsBool():
			found[key] = map[bool]string{false: "0", true: "1"}[value.BoolValue()]
		}
	}

	add("onboot", values["onBoot"])
	add("protection", values["protection"])
	add("tags", resource.NewProperty(sortedTags(hookutil.Strings(values, "tags"))))

	if memory := hookutil.Unwrap(values["memory"]); memory.IsObject() {
		add("memory", memory.ObjectValue()["dedicated"])
	}

	if cpu := hookutil.Unwrap(values["cpu"]); cpu.IsObject() {
		add("cores", cpu.ObjectValue()["cores"])
		add("cpu", cpu.ObjectValue()["type"])
	}

	if list := hookutil.Unwrap(values["networkDevices"]); list.IsArray() {
		for i, entry := range list.ArrayValue() {
			if device := hookutil.Unwrap(entry); device.IsObject() {
				add(fmt.Sprintf("net%d bridge", i), device.ObjectValue()["bridge"])
				add(fmt.Sprintf("net%d tag", i), device.ObjectValue()["vlanId"])
			}
		}
	}

	return found
}

// sortedTags are tags as one text, whatever their order: Proxmox VE has its own.
func sortedTags(tags []string) string {
	return strings.Join(slices.Sorted(slices.Values(tags)), ";")
}

// Disks are those of a VM, as its inputs or its outputs have them.
func Disks(values resource.PropertyMap) []resource.PropertyMap {
	return hookutil.Objects(values, "disks")
}

// State is what Proxmox VE says of the VM of a node that has one.
type State struct {
	// Running: the provider, which looks while a VM restarts, may have noted that it is off, and would start what runs.
	Running bool
	// Disks are those that the VM has, by their place in the plan. The program makes them larger, not the provider,
	// whose state may be that of before.
	Disks []int
	// Replaced says that lifecycle.replace was carried out for this VM: the name may stay in the list, and the VM is one
	// that runs like others.
	Replaced bool
	// Mark is another one for each thing that is left to be done on the VM and that the provider does not do; 0: nothing
	// is.
	Mark int
}
