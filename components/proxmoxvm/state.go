package proxmoxvm

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
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

	given := vmidentity.DiskPositions(args.OldInputs)

	for _, disk := range Disks(args.OldOutputs) {
		at, size := hookutil.String(disk, "interface"), int(hookutil.Number(disk, "size"))
		has, there := config.Disks[at]

		switch {
		case at == "":
			// The provider could not read back what it had made. It would write just that, and a refresh looks only for disks
			// that it knows.
			return fmt.Errorf("VM %d on host %s is not finished: the state does not know its disks, because they "+
				"could not be read when the VM was created or changed. %s; or, if it was never configured, delete its VM "+
				"('qm stop %d', 'qm destroy %d --purge' there) and run 'pulumi up --refresh'",
				v.ID, v.Host, replaceAgain(p, n.Name), v.ID, v.ID)
		case !there && !slices.Contains(given, at):
			// After a refresh, the state would not know where the disk belongs, and the provider could not add it.
			return fmt.Errorf("VM %d on host %s does not have disk %s, which the state has, because an earlier update failed. "+
				"Create it there with 'qm set %d --%s %s', then run 'pulumi up' again, without --refresh", v.ID, v.Host, at,
				v.ID, at, newDisk(disk))
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

// replaceAgain says how to replace a node. A name that is in the list has had its effect.
func replaceAgain(p *plan.Plan, node string) string {
	if p.Replaces(node) {
		return "The node is in lifecycle.replace already: remove it from its pool, run 'pulumi up', and add it again"
	}

	return "Replace the node (lifecycle.replace)"
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
	all := maps.Clone(before)
	maps.Copy(all, after)

	for _, name := range slices.Sorted(maps.Keys(all)) {
		was, wanted := before[name], after[name]

		switch {
		case was == wanted:
			continue
		case was == "" && !alwaysGiven.MatchString(name), wanted == "" && !removable.MatchString(name):
			// The provider fills in what the program leaves out, and keeps what it no longer gives.
			continue
		}

		switch is := settingOf(config, name); {
		case is == wanted:
		case wanted == "" && strings.HasPrefix(name, "serial"):
			// Of a clone, a refresh does not find it.
			return fmt.Errorf("VM %d on host %s still has %s, because %s. Run 'qm set %d --delete %s' there, then 'pulumi up' "+
				"again", v.ID, v.Host, name, why, v.ID, name)
		default:
			return fmt.Errorf("VM %d on host %s is not as the state says: %s is %q instead of %q, because %s. "+
				"Run 'pulumi up --refresh', which detects this", v.ID, v.Host, name, is, wanted, why)
		}
	}

	return nil
}

var (
	// alwaysGiven are settings that the program gives each VM that has them, so that one which is new was added.
	alwaysGiven = regexp.MustCompile(`^(net|hostpci)\d+ |^serial\d+$|^startup `)
	// removable are those of devices, which the provider removes.
	removable = regexp.MustCompile(`^(net|hostpci)\d+ |^serial\d+$`)
)

// firstPart is the name of the first part of a setting, which may be left out (qm.conf).
var firstPart = map[string]string{"memory": "current", "cpu": "cputype", "agent": "enabled"}

// defaults are what Proxmox VE does without a setting, or a part of one.
var defaults = map[string]string{
	"onboot": "0", "protection": "0", "numa": "0", "balloon": "0", "agent": "0",
	"pcie": "0", "rombar": "1",
	"aio": "io_uring", "cache": "none", "discard": "ignore", "iothread": "0", "ssd": "0", "backup": "1", "replicate": "1",
}

// settingOf is a setting of a VM, or a part of one: "memory", "net0 bridge". An absent device has no part.
func settingOf(config proxmoxapi.VMConfig, name string) string {
	key, part, _ := strings.Cut(name, " ")

	setting, there := config.Settings[key]
	if !there && part != "" {
		return ""
	}

	if key == "tags" {
		return sortedTags(strings.FieldsFunc(setting, func(c rune) bool { return c == ';' || c == ',' || c == ' ' }))
	}

	parts := proxmoxapi.Properties(setting)
	is := parts[part]

	if first := firstPart[key]; is == "" && part == "" && first != "" {
		is = parts[first]
	}

	switch {
	case strings.HasPrefix(key, "net") && is == "":
		return "0"
	case is == "":
		return cmp.Or(defaults[cmp.Or(part, key)], is)
	default:
		return is
	}
}

// settings are those of a VM that an operator changes, as its inputs or its outputs have them, by the keys of Proxmox
// VE, and the parts of those.
func settings(values resource.PropertyMap) map[string]string {
	found := map[string]string{}

	add := func(key string, value resource.PropertyValue) {
		switch value = hookutil.Unwrap(value); {
		case value.IsString() && value.StringValue() != "":
			found[key] = value.StringValue()
		case value.IsNumber() && value.NumberValue() > 0:
			found[key] = strconv.FormatFloat(value.NumberValue(), 'f', -1, 64)
		case value.IsBool():
			found[key] = flag(value.BoolValue())
		}
	}

	object := func(key resource.PropertyKey) resource.PropertyMap {
		if value := hookutil.Unwrap(values[key]); value.IsObject() {
			return value.ObjectValue()
		}

		return nil
	}

	add("onboot", values["onBoot"])
	add("protection", values["protection"])
	add("tags", resource.NewProperty(sortedTags(hookutil.Strings(values, "tags"))))
	add("memory", object("memory")["dedicated"])
	add("balloon", object("memory")["floating"])
	add("cores", object("cpu")["cores"])
	add("cpu", object("cpu")["type"])
	add("numa", object("cpu")["numa"])
	add("agent", object("agent")["enabled"])
	add("scsihw", values["scsiHardware"])
	add("startup order", object("startup")["order"])
	add("startup up", object("startup")["upDelay"])
	add("startup down", object("startup")["downDelay"])

	for i, device := range hookutil.Objects(values, "networkDevices") {
		net := fmt.Sprintf("net%d ", i)
		// What is not given is off.
		found[net+"tag"], found[net+"mtu"], found[net+"firewall"] = "0", "0", "0"

		add(net+"bridge", device["bridge"])
		add(net+"tag", device["vlanId"])
		add(net+"mtu", device["mtu"])
		add(net+"firewall", device["firewall"])
	}

	for i, device := range hookutil.Objects(values, "hostpcis") {
		pci := cmp.Or(hookutil.String(device, "device"), fmt.Sprintf("hostpci%d", i)) + " "
		add(pci+"mapping", device["mapping"])
		add(pci+"pcie", device["pcie"])
		add(pci+"rombar", device["rombar"])
	}

	for i, device := range hookutil.Objects(values, "serialDevices") {
		add(fmt.Sprintf("serial%d", i), device["device"])
	}

	for _, disk := range Disks(values) {
		for _, option := range diskOptions {
			add(hookutil.String(disk, "interface")+" "+option, disk[resource.PropertyKey(option)])
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
