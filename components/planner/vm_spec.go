package planner

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spec"
)

var (
	// diskInterface are the buses that Talos can boot from, as Proxmox numbers them.
	diskInterface = regexp.MustCompile(`^(scsi([0-9]|[12][0-9]|30)|virtio([0-9]|1[0-5])|sata[0-5])$`)
	// volumeName is how Talos names user volumes: a label of a partition, after a prefix.
	volumeName = regexp.MustCompile(`^[A-Za-z0-9-]{1,34}$`)
	// tag is what Proxmox VE stores as it is given.
	tag = regexp.MustCompile(`^[a-z0-9_][a-z0-9_\-+.]*$`)
	// olderCPUs are the CPU types of Proxmox VE that lack instructions of x86-64-v2.
	olderCPUs = []string{
		"486", "Conroe", "Opteron_G1", "Opteron_G2", "Opteron_G3", "Penryn", "athlon", "core2duo", "coreduo", "kvm32",
		"kvm64", "pentium", "pentium2", "pentium3", "phenom", "qemu32", "qemu64",
	}
)

// checkVMSpecs checks what each level sets by itself, so that a problem names the place where it is.
func (r *resolver) checkVMSpecs() {
	r.CheckName("proxmox.storage.disks", &r.Spec.Proxmox.Storage.Disks, "a datastore")
	r.CheckName("proxmox.storage.images", &r.Spec.Proxmox.Storage.Images, "a datastore")
	r.checkVMSpec("defaults", r.Spec.Defaults)
	r.checkDefaultMinimum()

	for _, p := range r.pools {
		r.checkVMSpec(p.path, p.VMSpec)
		r.checkMergedVMSpec(p.path, p, p.VMSpec, p.vmDefaults)

		for _, m := range p.members {
			if !m.statesVM() {
				continue
			}

			r.checkVMSpec(m.path, m.VMSpec)
			r.checkMergedVMSpec(m.path, p, m.VMSpec, p.vmDefaults.With(m.VMSpec))
		}

		r.checkHARules(p)
	}
}

func (r *resolver) checkVMSpec(path string, s spec.VMSpec) {
	starts, installs := "Talos does not start with less", "Talos does not install on less"
	if r.IsK3s() {
		starts, installs = "Ubuntu with K3s does not start with less", "Ubuntu with K3s does not fit on less"
	}

	for _, v := range []struct {
		key         string
		value       *int
		least, most int
		why         string
	}{
		{"cores", s.Cores, 1, 8192, "a VM needs a core"},
		{"cpuUnits", s.CPUUnits, 1, 10_000, "a VM needs a weight"},
		{"memoryMiB", s.MemoryMiB, 1024, 100_000_000, starts},
		{"minimumMemoryMiB", s.MinimumMemoryMiB, 1024, 100_000_000, starts},
		{"diskGiB", s.DiskGiB, 6, 1_000_000, installs},
	} {
		switch {
		case v.value == nil:
		case *v.value < v.least:
			r.Problems.Add(path+"."+v.key, fmt.Sprintf("must be at least %d: %s", v.least, v.why), strconv.Itoa(*v.value),
				"raise it")
		case *v.value > v.most:
			r.Problems.Add(path+"."+v.key, fmt.Sprintf("must be at most %d", v.most), strconv.Itoa(*v.value), "lower it")
		}
	}

	r.CheckName(path+".cpuType", s.CPUType, "a CPU type")
	r.checkCPUType(path+".cpuType", s.CPUType)
	r.CheckName(path+".resourcePool", s.ResourcePool, "a resource pool")
	r.CheckName(path+".haGroup", s.HAGroup, "a high-availability group")
	r.checkChoice(path+".machine", s.Machine, "q35", "i440fx")
	r.checkChoice(path+".firmware", s.Firmware, "seabios", "ovmf")
	r.checkChoice(path+".scsiController", s.SCSIController, "virtio-scsi-pci", "virtio-scsi-single", "lsi", "lsi53c810",
		"megasas", "pvscsi")
	r.checkDisk(path+".disk", s.Disk)
	r.checkTemplateDisk(path+".disk", s.Disk)

	for i, d := range s.ExtraDisks {
		r.CheckBounds(checks.At(path+".extraDisks", i)+".sizeGiB", d.SizeGiB, 1, 1_000_000)
		r.checkDisk(checks.At(path+".extraDisks", i), d.DiskOptions)
		r.checkVolume(checks.At(path+".extraDisks", i)+".volume", d.Volume)
	}

	if s.NICs != nil && len(s.NICs) == 0 {
		r.Problems.Add(path+".nics", "needs at least one network interface", "", "leave it out for the usual one")
	}

	for i, n := range s.NICs {
		nic := checks.At(path+".nics", i)
		if n.Bridge != "" {
			r.checkLink(nic+".bridge", n.Bridge)
		}

		if n.VLAN != nil {
			r.CheckBounds(nic+".vlan", *n.VLAN, 0, 4094)
		}

		if n.MTU != nil {
			r.checkMTU(nic+".mtu", *n.MTU)
		}

		// An interface is only marked; what is let in is an option of the VM, which is made with firewall.enabled.
		if valueOr(n.Firewall, false) && !*r.Spec.Firewall.Enabled {
			r.Warn(nic+".firewall", "filters nothing by itself: the program only switches on the firewall of the VM with "+
				"firewall.enabled", "true",
				"set firewall.enabled, or leave it out unless the VM has rules of its own")
		}
	}

	if s.Startup != nil && (format(s.Startup.Order) != "" && *s.Startup.Order < 0 || s.Startup.UpDelaySeconds < 0 ||
		s.Startup.DownDelaySeconds < 0) {
		r.Problems.Add(path+".startup", "must hold no negative number", "", "correct it")
	}

	for i, t := range s.Tags {
		if !tag.MatchString(strings.ToLower(t)) {
			r.Problems.Add(checks.At(path+".tags", i), "must hold letters, digits and _ - + . only, as Proxmox VE wants", t,
				"change the tag")
		}
	}

	r.checkKubernetes(path, s)
}

// checkTemplateDisk: a clone keeps the options of its template's disk; the provider would not change them.
func (r *resolver) checkTemplateDisk(path string, d spec.DiskOptions) {
	if r.Spec.Image.Source != spec.SourceTemplate {
		return
	}

	for _, option := range []struct{ key, value string }{
		{"cache", format(d.Cache)},
		{"aio", format(d.AIO)},
		{"discard", format(d.Discard)},
		{"ssd", format(d.SSD)},
		{"iothread", format(d.IOThread)},
		{"backup", format(d.Backup)},
		{"replicate", format(d.Replicate)},
	} {
		if option.value != "" {
			r.Problems.Add(path+"."+option.key, "is set by the template: a clone keeps the options of its disk",
				option.value,
				"set it in the template, and leave it out here")
		}
	}
}

func (r *resolver) checkDisk(path string, d spec.DiskOptions) {
	r.CheckName(path+".datastore", d.Datastore, "a datastore")
	r.checkChoice(path+".cache", d.Cache, "none", "directsync", "writethrough", "writeback", "unsafe")
	r.checkChoice(path+".aio", d.AIO, "io_uring", "native", "threads")

	if d.Interface != nil && !diskInterface.MatchString(*d.Interface) {
		r.Problems.Add(path+".interface", "must be a disk position that Talos boots from", *d.Interface,
			"write it like scsi0, virtio0 or sata0")
	}
}

// checkVolume checks a volume by itself.
func (r *resolver) checkVolume(path string, v *spec.Volume) {
	if v == nil {
		return
	}

	if !volumeName.MatchString(v.Name) {
		r.Problems.Add(path+".name", "must be up to 34 letters, digits and dashes", v.Name, "write it like data")
	}

	if v.Filesystem != "" {
		checks.OneOf(&r.Problems, path+".filesystem", v.Filesystem, "xfs", "ext4")
	}

	switch talos := r.Spec.Cluster.Versions.Talos; {
	case r.IsK3s():
		r.Problems.Add(path, "is only supported with Talos, not with kind k3s", v.Name,
			"leave it out, and make the file system yourself")
	case r.Spec.Cluster.Bootstrap == spec.BootstrapExternal:
		r.Problems.Add(path, `is excluded by cluster.bootstrap "external": no node is configured`, v.Name,
			"leave it out, or set cluster.bootstrap to pulumi")
	case checks.Version.MatchString(talos) && plan.Minor(talos) < leastTalosOfVolumes:
		r.Problems.Add(path, fmt.Sprintf("needs Talos 1.%d or later", leastTalosOfVolumes), v.Name,
			"raise cluster.versions.talos, or leave it out")
	}
}

// leastTalosOfVolumes is the first minor version of Talos with user volumes.
const leastTalosOfVolumes = 10

// checkCPUType: Talos is compiled for x86-64-v2, and its init halts on less.
func (r *resolver) checkCPUType(path string, value *string) {
	if value != nil && !r.IsK3s() && slices.Contains(olderCPUs, *value) {
		r.Problems.Add(path, "must offer the instructions of x86-64-v2: Talos does not boot without them", *value,
			"set x86-64-v2-AES or host")
	}
}

func (r *resolver) checkChoice(path string, value *string, allowed ...string) {
	if value != nil {
		checks.OneOf(&r.Problems, path, *value, allowed...)
	}
}

// checkMergedVMSpec checks what only the merged VMSpec of a pool or node shows. own is what it states itself.
func (r *resolver) checkMergedVMSpec(path string, p *pool, own, s spec.VMSpec) {
	if p.GPUs != nil {
		r.checkGPUVM(path, s)
	} else {
		r.checkBallooning(path, own, s)
	}

	r.checkHA(path, p, s)

	if p.Role == spec.RoleControlPlane && !r.IsK3s() {
		r.warnBelow(path+".cores", valueOr(s.Cores, 0), plan.LeastCores)
		r.warnBelow(path+".memoryMiB", valueOr(s.MemoryMiB, 0), plan.LeastMemoryMiB)
		r.warnBelow(path+".diskGiB", valueOr(s.DiskGiB, 0), plan.LeastDiskGiB)
	}

	r.checkDisks(path, s)
}

// checkGPUVM: a GPU takes the place of a PCI Express device, and reads and writes the memory by itself.
func (r *resolver) checkGPUVM(path string, s spec.VMSpec) {
	if s.Machine != nil && *s.Machine != "q35" {
		r.Problems.Add(path+".machine", "must be q35: a GPU is passed through as a PCI Express device", *s.Machine,
			"leave it out")
	}

	if *s.Ballooning {
		r.Problems.Add(path+".ballooning", "must be off: the memory of a VM with a GPU is pinned", "true",
			"write ballooning: false")
	}
}

// checkDisks checks the disks of a pool or node together: their positions, and what depends on those.
func (r *resolver) checkDisks(path string, s spec.VMSpec) {
	disks := r.disks(s)
	r.checkSCSIController(path+".scsiController", s, disks)

	seen := map[string]string{}
	volumes := map[string]string{}

	for i, d := range disks {
		disk := path + ".disk"
		if i > 0 {
			disk = checks.At(path+".extraDisks", i-1)
		}

		if i > 0 && s.ExtraDisks[i-1].Interface == nil && !diskInterface.MatchString(d.Interface) {
			r.Problems.Add(disk, "has no place on the bus of the system disk", d.Interface,
				"set its interface, or use fewer disks")
		}

		if other, dup := seen[d.Interface]; dup {
			r.Problems.Add(disk+".interface", "is used twice, also by "+other, d.Interface, "choose another position")
		}

		seen[d.Interface] = disk

		r.checkIOThread(disk, format(s.SCSIController), d)

		// The provider leaves the option out: QEMU has none for virtio.
		if bus, _ := d.Position(); bus == "virtio" && d.SSD {
			r.Warn(disk+".ssd", "has no effect on a virtio disk", "true", "choose an interface on scsi or sata, or leave it out")
		}

		// QEMU refuses to start with it: native I/O passes the page cache of the host.
		if d.AIO == "native" && d.Cache != "none" && d.Cache != "directsync" {
			r.Problems.Add(disk+".aio", "cannot be native with cache "+d.Cache+": it needs none or directsync", d.AIO,
				"change one of the two")
		}

		if r.installs() && mixed(disks[0], d) {
			r.Warn(disk+".interface", "is on another bus than the system disk, and Linux calls disks of both sda and so on, "+
				"in no certain order: Talos may be "+
				"installed on the wrong one", d.Interface,
				"put it on the bus of the system disk, or on virtio; or name the disk in a patch (machine.install.diskSelector)")
		}

		if d.Volume != nil {
			if bus, _ := d.Position(); bus != "scsi" && diskInterface.MatchString(d.Interface) {
				r.Problems.Add(disk+".volume", "needs a SCSI disk: Talos cannot tell others apart", d.Interface,
					"set interface to one like scsi1, or leave the volume out")
			}

			if other, dup := volumes[d.Volume.Name]; dup {
				r.Problems.Add(disk+".volume.name", "is used twice, also by "+other, d.Volume.Name, "choose another name")
			}

			volumes[d.Volume.Name] = disk
		}
	}
}

// checkIOThread: QEMU gives a thread to a virtio disk, or to the controller of one SCSI disk.
func (r *resolver) checkIOThread(path, controller string, d plan.Disk) {
	switch bus, _ := d.Position(); {
	case !d.IOThread:
	case bus == "scsi" && controller != "virtio-scsi-single":
		r.Problems.Add(path+".iothread", "needs scsiController virtio-scsi-single, or a virtio disk", "true",
			"change one of the two")
	case bus == "sata":
		r.Problems.Add(path+".iothread", "is not supported for a SATA disk", "true",
			"leave it out, or choose another interface")
	}
}

// defaultFirmware is that of VMs that are no clones.
const defaultFirmware = "ovmf"

// checkSCSIController: a controller needs a driver, in the firmware for the system disk and in Linux for each disk. The
// kernel of Talos has none for the LSI 53C895A and 53C810 (CONFIG_SCSI_SYM53C8XX_2), and OVMF as Proxmox VE builds it
// none for these and MegaRAID.
func (r *resolver) checkSCSIController(path string, s spec.VMSpec, disks []plan.Disk) {
	controller := format(s.SCSIController)
	lsi := controller == "lsi" || controller == "lsi53c810"
	onSCSI := func(d plan.Disk) bool { return strings.HasPrefix(d.Interface, "scsi") }

	firmware := format(s.Firmware)
	if r.Spec.Image.Source != spec.SourceTemplate {
		firmware = cmp.Or(firmware, defaultFirmware) // otherwise the template's, which is not known
	}

	const remedy = "leave it out, or put the disks on virtio or sata"

	switch {
	case lsi && !r.IsK3s() && slices.ContainsFunc(disks, onSCSI):
		r.Problems.Add(path, "has no driver in Talos, which does not find the disks on scsi", controller, remedy)
	case (lsi || controller == "megasas") && firmware == "ovmf" && onSCSI(disks[0]):
		r.Problems.Add(path, "has no driver in the firmware ovmf, which does not boot the system disk on scsi", controller,
			remedy+", or set firmware to seabios")
	}
}

// checkDefaultMinimum: a minimum that no VM has a use for is a mistake. Pools and nodes need none without ballooning.
func (r *resolver) checkDefaultMinimum() {
	d := r.Spec.Defaults
	if d.MinimumMemoryMiB == nil || valueOr(d.Ballooning, false) {
		return
	}

	if !slices.ContainsFunc(r.pools, func(p *pool) bool {
		return *p.vmDefaults.Ballooning || slices.ContainsFunc(p.members, func(m poolNode) bool {
			return valueOr(m.Ballooning, false)
		})
	}) {
		r.Problems.Add("defaults.minimumMemoryMiB", "needs ballooning: true", strconv.Itoa(*d.MinimumMemoryMiB),
			"add that, or leave it out")
	}
}

// checkBallooning: Proxmox VE reclaims what lies between the minimum and the memory of a VM. A minimum that a pool or
// node only inherits has no meaning where ballooning is off.
func (r *resolver) checkBallooning(path string, own, s spec.VMSpec) {
	least := s.MinimumMemoryMiB

	switch {
	case least == nil && *s.Ballooning && s.MemoryMiB != nil:
		r.Problems.Add(path+".ballooning", "has no effect without minimumMemoryMiB", "true", fmt.Sprintf(
			"set the memory that the VM keeps, which is less than memoryMiB, %d, or set ballooning: false", *s.MemoryMiB))
	case least == nil, !*s.Ballooning && own.MinimumMemoryMiB == nil:
	case !*s.Ballooning:
		r.Problems.Add(path+".minimumMemoryMiB", "needs ballooning: true", strconv.Itoa(*least), "add that, or leave it out")
	case s.MemoryMiB != nil && *least >= *s.MemoryMiB:
		r.Problems.Add(path+".minimumMemoryMiB", fmt.Sprintf("must be less than memoryMiB, %d: ballooning would give "+
			"nothing back", *s.MemoryMiB), strconv.Itoa(*least),
			"lower it, or set ballooning: false, for which a VM that runs restarts")
	}
}

// warnBelow says that a control plane has less than Talos asks for. What is refused is not said twice.
func (r *resolver) warnBelow(path string, value, least int) {
	if value > 0 && value < least {
		r.Warn(path, fmt.Sprintf("is below the minimum that Talos requires for a control plane, %d", least),
			strconv.Itoa(value), "raise it")
	}
}

// installs says whether Talos is yet to be installed on the system disk when a node boots first.
func (r *resolver) installs() bool {
	image := r.Spec.Image

	return r.Spec.Cluster.Bootstrap == spec.BootstrapPulumi &&
		(image.Source == spec.SourceISO || image.Source == spec.SourceFactory && image.Factory.Format != spec.FormatDisk)
}

// mixed says whether two disks are on different buses that share their names in Linux.
func mixed(system, other plan.Disk) bool {
	one, _ := system.Position()
	two, _ := other.Position()

	return one != two && one != "virtio" && two != "virtio"
}

// disks of a VM: the system disk first. Further ones follow it on its bus, unless they say where they are.
func (r *resolver) disks(s spec.VMSpec) []plan.Disk {
	system := r.disk(s.Disk, valueOr(s.DiskGiB, 0))
	system.Interface = cmp.Or(system.Interface, "scsi0")

	if r.Spec.Image.Source == spec.SourceTemplate {
		// The rest is the template's.
		system = plan.Disk{Interface: system.Interface, Datastore: system.Datastore, SizeGiB: system.SizeGiB}
	}

	all := append(make([]plan.Disk, 0, 1+len(s.ExtraDisks)), system)
	bus, _ := system.Position()
	taken := map[string]bool{system.Interface: true}

	for _, extra := range s.ExtraDisks {
		taken[valueOr(extra.Interface, "")] = true
	}

	for _, extra := range s.ExtraDisks {
		options := spec.VMSpec{Disk: spec.DefaultDisk()}.With(spec.VMSpec{Disk: extra.DiskOptions}).Disk
		d := r.disk(options, extra.SizeGiB)

		if v := extra.Volume; v != nil {
			d.Volume = &spec.Volume{Name: v.Name, Filesystem: cmp.Or(v.Filesystem, "xfs")}
		}

		for i := 1; d.Interface == ""; i++ {
			if free := bus + strconv.Itoa(i); !taken[free] {
				d.Interface, taken[free] = free, true
			}
		}

		all = append(all, d)
	}

	return all
}

func (r *resolver) disk(o spec.DiskOptions, size int) plan.Disk {
	return plan.Disk{
		Interface: valueOr(o.Interface, ""), Datastore: valueOr(o.Datastore, r.Spec.Proxmox.Storage.Disks), SizeGiB: size,
		Cache: valueOr(o.Cache, ""), AIO: valueOr(o.AIO, ""), Discard: valueOr(o.Discard, false), SSD: valueOr(o.SSD, false),
		IOThread: valueOr(o.IOThread, false), Backup: valueOr(o.Backup, false), Replicate: valueOr(o.Replicate, false),
	}
}

func format[T any](v *T) string {
	if v == nil {
		return ""
	}

	return fmt.Sprint(*v)
}

// sharedTags are those that say nothing of whose a VM is.
func sharedTags() []string {
	return []string{
		string(spec.DistributionTalos), string(spec.DistributionK3s), string(spec.RoleControlPlane),
		string(spec.RoleWorker),
	}
}

// tags are sorted and without repetition, as Proxmox stores them: any other order would be a difference for ever.
func tags(kind spec.Distribution, cluster string, role spec.Role, more []string) []string {
	all := append([]string{string(kind), cluster, string(role)}, more...)
	for i := range all {
		all[i] = strings.ToLower(all[i])
	}

	slices.Sort(all)

	return slices.Compact(all)
}
