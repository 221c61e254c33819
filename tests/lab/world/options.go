package world

import (
	"strconv"
	"strings"
)

// option is one setting of a VM.
type option struct {
	schema
	// count is how many there are of a numbered option ("net": net0 to net31); 0: it has no number.
	count int
	// privilege is needed to change it; empty: only root@pam may.
	privilege string
	// unplayed options are kept, and change nothing of what the lab's machines do.
	unplayed bool
	// live options are taken by a running machine at once.
	live bool
}

// options are what a VM can be configured with, from the schema of qemu-server 8 and 9 as far as the clients go.
var options = map[string]option{
	"acpi":          {schema: flag, privilege: "VM.Config.HWType"},
	"affinity":      {schema: anything, unplayed: true},
	"agent":         {schema: inFormat(agentFormat), privilege: "VM.Config.Options"},
	"amd-sev":       {schema: anything, unplayed: true},
	"arch":          {schema: oneOf("x86_64", "aarch64")},
	"args":          {schema: anything, unplayed: true},
	"audio":         {schema: anything, count: 1, privilege: "VM.Config.HWType", unplayed: true},
	"autostart":     {schema: flag, privilege: "VM.Config.Options"},
	"balloon":       {schema: atLeast(0), privilege: "VM.Config.Memory"},
	"bios":          {schema: oneOf("seabios", "ovmf"), privilege: "VM.Config.Options"},
	"boot":          {schema: inFormat(bootFormat), privilege: "VM.Config.Disk"},
	"bootdisk":      {schema: matching(`(ide|sata|scsi|virtio)\d+`), privilege: "VM.Config.Disk"},
	"cicustom":      {schema: anything, privilege: "VM.Config.Cloudinit"},
	"cipassword":    {schema: anything, privilege: "VM.Config.Cloudinit"},
	"citype":        {schema: oneOf("configdrive2", "nocloud", "opennebula"), privilege: "VM.Config.Cloudinit"},
	"ciupgrade":     {schema: flag, privilege: "VM.Config.Cloudinit"},
	"ciuser":        {schema: anything, privilege: "VM.Config.Cloudinit"},
	"cores":         {schema: atLeast(1), privilege: "VM.Config.CPU"},
	"cpu":           {schema: cpuSchema, privilege: "VM.Config.CPU"},
	"cpulimit":      {schema: schema{form: number, max: 128}, privilege: "VM.Config.CPU", live: true},
	"cpuunits":      {schema: between(1, 262144), privilege: "VM.Config.CPU", live: true},
	"description":   {schema: schema{maxLength: 8192}, privilege: "VM.Config.Options", live: true},
	"efidisk":       {schema: driveIn(efiFormat), count: 1, privilege: "VM.Config.Disk"},
	"freeze":        {schema: flag, privilege: "VM.PowerMgmt", unplayed: true},
	"hookscript":    {schema: anything, live: true, unplayed: true},
	"hostpci":       {schema: inFormat(hostPCI), count: 16, privilege: "VM.Config.HWType"},
	"hotplug":       {schema: hotplugSchema, privilege: "VM.Config.HWType", live: true},
	"hugepages":     {schema: oneOf("any", "2", "1024"), unplayed: true},
	"ide":           {schema: driveIn(ideFormat), count: 4, privilege: "VM.Config.Disk"},
	"ipconfig":      {schema: inFormat(ipFormat), count: 32, privilege: "VM.Config.Network"},
	"ivshmem":       {schema: anything, unplayed: true},
	"keephugepages": {schema: flag, unplayed: true},
	"keyboard":      {schema: anything, privilege: "VM.Config.Options"},
	"kvm":           {schema: flag, privilege: "VM.Config.HWType"},
	"localtime":     {schema: flag, privilege: "VM.Config.Options", unplayed: true},
	"lock": {
		schema: oneOf("backup", "clone", "create", "migrate", "rollback", "snapshot", "snapshot-delete", "suspending",
			"suspended"), live: true,
	},
	"machine":          {schema: inFormat(machineFormat), privilege: "VM.Config.HWType"},
	"memory":           {schema: inFormat(memoryFormat), privilege: "VM.Config.Memory"},
	"migrate_downtime": {schema: schema{form: number}, privilege: "VM.Config.Options", live: true},
	"migrate_speed":    {schema: atLeast(0), privilege: "VM.Config.Options", live: true},
	"name":             {schema: hostName, privilege: "VM.Config.Options", live: true},
	"nameserver":       {schema: anything, privilege: "VM.Config.Network"},
	"net":              {schema: schema{form: network}, count: 32, privilege: "VM.Config.Network"},
	"numa":             {schema: flag, privilege: "VM.Config.CPU"},
	"onboot":           {schema: flag, privilege: "VM.Config.Options", live: true},
	"ostype": {privilege: "VM.Config.Options", schema: oneOf(
		"other", "wxp", "w2k", "w2k3", "w2k8", "wvista", "win7", "win8", "win10", "win11", "l24", "l26", "solaris",
	)},
	"parallel":   {schema: anything, count: 3, unplayed: true},
	"protection": {schema: flag, privilege: "VM.Config.Options", live: true},
	"reboot":     {schema: flag, privilege: "VM.Config.Options"},
	"rng":        {schema: anything, count: 1, privilege: "VM.Config.HWType", unplayed: true},
	"sata":       {schema: driveIn(sataFormat), count: 6, privilege: "VM.Config.Disk"},
	"scsi":       {schema: driveIn(scsiFormat), count: 31, privilege: "VM.Config.Disk"},
	"scsihw": {
		schema:    oneOf("lsi", "lsi53c810", "virtio-scsi-pci", "virtio-scsi-single", "megasas", "pvscsi"),
		privilege: "VM.Config.HWType",
	},
	"searchdomain":       {schema: anything, privilege: "VM.Config.Network"},
	"serial":             {schema: matching(`/dev/.+|socket`), count: 4, privilege: "VM.Config.HWType"},
	"shares":             {schema: between(0, 50000), privilege: "VM.Config.Memory", live: true},
	"smbios1":            {schema: schema{format: smbiosFormat, maxLength: 512}, privilege: "VM.Config.HWType"},
	"sockets":            {schema: atLeast(1), privilege: "VM.Config.CPU"},
	"spice_enhancements": {schema: anything, unplayed: true},
	"sshkeys":            {schema: anything, privilege: "VM.Config.Cloudinit"},
	"startdate": {
		schema:    matching(`now|\d{4}-\d{1,2}-\d{1,2}(T\d{1,2}:\d{1,2}:\d{1,2})?`),
		privilege: "VM.Config.Options",
	},
	"startup":        {schema: startupSchema, privilege: "VM.Config.Options", live: true},
	"tablet":         {schema: flag, privilege: "VM.Config.HWType", live: true},
	"tags":           {schema: tagsSchema, privilege: "VM.Config.Options", live: true},
	"tdf":            {schema: flag, privilege: "VM.Config.Options"},
	"template":       {schema: flag, privilege: "VM.Config.Options"},
	"tpmstate":       {schema: driveIn(tpmFormat), count: 1, privilege: "VM.Config.Disk"},
	"unused":         {schema: driveIn(unusedFormat), count: 256, privilege: "VM.Config.Disk"},
	"usb":            {schema: anything, count: 14, privilege: "VM.Config.HWType", unplayed: true},
	"vcpus":          {schema: atLeast(1), privilege: "VM.Config.CPU"},
	"vga":            {schema: inFormat(vgaFormat), privilege: "VM.Config.HWType"},
	"virtio":         {schema: driveIn(virtioFormat), count: 16, privilege: "VM.Config.Disk"},
	"virtiofs":       {schema: anything, count: 10, privilege: "VM.Config.Disk", unplayed: true},
	"vmgenid":        {schema: matching(uuidPattern + `|[01]`), privilege: "VM.Config.Options"},
	"vmstatestorage": {schema: configID, privilege: "VM.Config.Disk", live: true},
	"watchdog":       {schema: inFormat(watchdogFormat), privilege: "VM.Config.HWType", unplayed: true},
}

// numa0 to numa7 share their name with the switch "numa".
var numbered = map[string]option{
	"numa": {schema: anything, count: 8, privilege: "VM.Config.CPU", unplayed: true},
}

// optionOf finds the option a key names.
func optionOf(key string) (option, bool) {
	if o, ok := options[key]; ok && o.count == 0 {
		return o, true
	}

	name := strings.TrimRight(key, "0123456789")

	o, ok := numbered[name]
	if !ok {
		o, ok = options[name]
	}

	n, err := strconv.Atoi(key[len(name):])

	return o, ok && err == nil && n < o.count && strconv.Itoa(n) == key[len(name):]
}

// IsOption tells whether a VM has a setting of this name.
func IsOption(key string) bool {
	_, ok := optionOf(key)

	return ok
}

// Unplayed tells whether the lab keeps a setting, and plays nothing of what it does.
func Unplayed(key string) bool {
	o, ok := optionOf(key)

	return ok && o.unplayed
}

func isDrive(key string) bool {
	o, ok := optionOf(key)

	return ok && o.form == drive
}

func isNetwork(key string) bool {
	o, ok := optionOf(key)

	return ok && o.form == network
}

// verify is the check of a value against its option's schema, before anything else looks at it.
func verify(key, value string) error {
	o, ok := optionOf(key)
	if !ok {
		return Invalid(key, "property is not defined in schema and the schema does not allow additional properties")
	}

	if wrong := o.complaint(key, value); wrong != "" {
		return Invalid(key, "%s", wrong)
	}

	return nil
}

// jsonValues returns a configuration as it looks in JSON: numbers for booleans and integers, strings for the rest.
func jsonValues(conf map[string]string) map[string]any {
	out := map[string]any{}

	for key, value := range conf {
		out[key] = value

		switch o, _ := optionOf(key); o.form {
		case boolean, integer:
			if n, err := strconv.Atoi(value); err == nil {
				out[key] = n
			}
		case number:
			if f, err := strconv.ParseFloat(value, 64); err == nil && key != "cpulimit" {
				out[key] = f
			}
		case text, drive, network:
		}
	}

	if _, ok := conf["cipassword"]; ok {
		out["cipassword"] = "**********"
	}

	return out
}
