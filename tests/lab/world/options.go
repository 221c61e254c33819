package world

import (
	"regexp"
	"strconv"
	"strings"
)

// form is what values an option takes.
type form int

const (
	text form = iota
	boolean
	integer
	number
	// props are property strings, kept as they were sent.
	props
	drive
	network
)

// option is one setting of a VM.
type option struct {
	form form
	// count is how many there are of a numbered option ("net": net0 to net31); 0: it has no number.
	count int
	// min is the smallest number allowed.
	min int
	// enum are the values allowed.
	enum []string
	// privilege is needed to change it; empty: only root@pam may.
	privilege string
	// format is the schema of a property string; nil: any is taken.
	format format
	// live options are taken by a running machine at once.
	live bool
}

// options are what a VM can be configured with, from the schema of qemu-server 8 and 9 as far as the clients go.
var options = map[string]option{
	"acpi":          {form: boolean, privilege: "VM.Config.HWType"},
	"affinity":      {form: text},
	"agent":         {form: props, privilege: "VM.Config.Options"},
	"amd-sev":       {form: props},
	"arch":          {form: text},
	"args":          {form: text},
	"audio":         {form: props, count: 1, privilege: "VM.Config.HWType"},
	"autostart":     {form: boolean, privilege: "VM.Config.Options"},
	"balloon":       {form: integer, privilege: "VM.Config.Memory"},
	"bios":          {form: text, enum: []string{"seabios", "ovmf"}, privilege: "VM.Config.Options"},
	"boot":          {form: props, privilege: "VM.Config.Disk"},
	"bootdisk":      {form: text, privilege: "VM.Config.Disk"},
	"cicustom":      {form: props, privilege: "VM.Config.Cloudinit"},
	"cipassword":    {form: text, privilege: "VM.Config.Cloudinit"},
	"citype":        {form: text, enum: []string{"configdrive2", "nocloud", "opennebula"}, privilege: "VM.Config.Cloudinit"},
	"ciupgrade":     {form: boolean, privilege: "VM.Config.Cloudinit"},
	"ciuser":        {form: text, privilege: "VM.Config.Cloudinit"},
	"cores":         {form: integer, min: 1, privilege: "VM.Config.CPU"},
	"cpu":           {form: props, privilege: "VM.Config.CPU"},
	"cpulimit":      {form: number, privilege: "VM.Config.CPU", live: true},
	"cpuunits":      {form: integer, min: 1, privilege: "VM.Config.CPU", live: true},
	"description":   {form: text, privilege: "VM.Config.Options", live: true},
	"efidisk":       {form: drive, count: 1, privilege: "VM.Config.Disk"},
	"freeze":        {form: boolean, privilege: "VM.PowerMgmt"},
	"hookscript":    {form: text, live: true},
	"hostpci":       {form: props, format: hostPCI, count: 16, privilege: "VM.Config.HWType"},
	"hotplug":       {form: text, privilege: "VM.Config.HWType", live: true},
	"hugepages":     {form: text, enum: []string{"any", "2", "1024"}},
	"ide":           {form: drive, count: 4, privilege: "VM.Config.Disk"},
	"ipconfig":      {form: props, count: 32, privilege: "VM.Config.Network"},
	"ivshmem":       {form: props},
	"keephugepages": {form: boolean},
	"keyboard":      {form: text, privilege: "VM.Config.Options"},
	"kvm":           {form: boolean, privilege: "VM.Config.HWType"},
	"localtime":     {form: boolean, privilege: "VM.Config.Options"},
	"lock": {form: text, live: true, enum: []string{
		"backup", "clone", "create", "migrate", "rollback", "snapshot", "snapshot-delete", "suspending", "suspended",
	}},
	"machine":          {form: props, privilege: "VM.Config.HWType"},
	"memory":           {form: props, privilege: "VM.Config.Memory"},
	"migrate_downtime": {form: number, privilege: "VM.Config.Options", live: true},
	"migrate_speed":    {form: integer, privilege: "VM.Config.Options", live: true},
	"name":             {form: text, privilege: "VM.Config.Options", live: true},
	"nameserver":       {form: text, privilege: "VM.Config.Network"},
	"net":              {form: network, count: 32, privilege: "VM.Config.Network"},
	"numa":             {form: boolean, privilege: "VM.Config.CPU"},
	"onboot":           {form: boolean, privilege: "VM.Config.Options", live: true},
	"ostype": {form: text, privilege: "VM.Config.Options", enum: []string{
		"other", "wxp", "w2k", "w2k3", "w2k8", "wvista", "win7", "win8", "win10", "win11", "l24", "l26", "solaris",
	}},
	"parallel":           {form: text, count: 3},
	"protection":         {form: boolean, privilege: "VM.Config.Options", live: true},
	"reboot":             {form: boolean, privilege: "VM.Config.Options"},
	"rng":                {form: props, count: 1, privilege: "VM.Config.HWType"},
	"sata":               {form: drive, count: 6, privilege: "VM.Config.Disk"},
	"scsi":               {form: drive, count: 31, privilege: "VM.Config.Disk"},
	"scsihw":             {form: text, privilege: "VM.Config.HWType", enum: []string{"lsi", "lsi53c810", "virtio-scsi-pci", "virtio-scsi-single", "megasas", "pvscsi"}},
	"searchdomain":       {form: text, privilege: "VM.Config.Network"},
	"serial":             {form: text, count: 4, privilege: "VM.Config.HWType"},
	"shares":             {form: integer, privilege: "VM.Config.Memory", live: true},
	"smbios1":            {form: props, privilege: "VM.Config.HWType"},
	"sockets":            {form: integer, min: 1, privilege: "VM.Config.CPU"},
	"spice_enhancements": {form: props},
	"sshkeys":            {form: text, privilege: "VM.Config.Cloudinit"},
	"startdate":          {form: text, privilege: "VM.Config.Options"},
	"startup":            {form: props, privilege: "VM.Config.Options", live: true},
	"tablet":             {form: boolean, privilege: "VM.Config.HWType", live: true},
	"tags":               {form: text, privilege: "VM.Config.Options", live: true},
	"tdf":                {form: boolean, privilege: "VM.Config.Options"},
	"template":           {form: boolean, privilege: "VM.Config.Options"},
	"tpmstate":           {form: drive, count: 1, privilege: "VM.Config.Disk"},
	"unused":             {form: drive, count: 256, privilege: "VM.Config.Disk"},
	"usb":                {form: props, count: 14, privilege: "VM.Config.HWType"},
	"vcpus":              {form: integer, min: 1, privilege: "VM.Config.CPU"},
	"vga":                {form: props, privilege: "VM.Config.HWType"},
	"virtio":             {form: drive, count: 16, privilege: "VM.Config.Disk"},
	"virtiofs":           {form: props, count: 10, privilege: "VM.Config.Disk"},
	"vmgenid":            {form: text, privilege: "VM.Config.Options"},
	"vmstatestorage":     {form: text, privilege: "VM.Config.Disk", live: true},
	"watchdog":           {form: props, privilege: "VM.Config.HWType"},
}

// numa0 to numa7 share their name with the switch "numa".
var numbered = map[string]option{"numa": {form: props, count: 8, privilege: "VM.Config.CPU"}}

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

func isDrive(key string) bool {
	o, ok := optionOf(key)

	return ok && o.form == drive
}

func isNetwork(key string) bool {
	o, ok := optionOf(key)

	return ok && o.form == network
}

var dnsName = regexp.MustCompile(`^([a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)(\.[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)*$`)

// ValidName refuses what is not a DNS name.
func ValidName(field, name string) error {
	if dnsName.MatchString(name) && len(name) <= 255 {
		return nil
	}

	return Invalid(field, "invalid format - value does not look like a valid DNS name")
}

// verify is the check of a value against its option's schema, before anything else looks at it.
func verify(key, value string) error {
	o, ok := optionOf(key)
	if !ok {
		return Invalid(key, "property is not defined in schema and the schema does not allow additional properties")
	}

	if wrong := (schema{form: o.form, min: o.min, enum: o.enum}).complaint(value); wrong != "" {
		return Invalid(key, "%s", wrong)
	}

	if o.format != nil {
		if _, err := o.format.parse(key, value); err != nil {
			return Invalid(key, "invalid format - %s", err)
		}
	}

	switch {
	case key == "name":
		return ValidName(key, value)
	case key == "memory":
		return verifyMemory(value)
	case strings.HasPrefix(key, "ipconfig"):
		return verifyIPConfig(key, value)
	}

	return nil
}

func verifyMemory(value string) error {
	p, _ := parseProperties(value, "current")

	n, err := strconv.Atoi(p["current"])
	if err != nil {
		return Invalid("memory", "invalid format - format error\nmemory.current: type check ('integer') failed - got '%s'", p["current"])
	}

	if n < 16 {
		return Invalid("memory", "invalid format - format error\nmemory.current: value must have a minimum value of 16")
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
		case text, props, drive, network:
		}
	}

	if _, ok := conf["cipassword"]; ok {
		out["cipassword"] = "**********"
	}

	return out
}
