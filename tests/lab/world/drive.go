package world

import (
	"errors"
	"regexp"
	"strings"

	"talos-proxmox/tests/lab/machine"
)

// driveSpec is one drive of a configuration.
type driveSpec struct {
	key string
	properties
}

// parseDrive reads a drive's property string.
func parseDrive(key, value string) (driveSpec, error) {
	o, _ := optionOf(key)

	p, err := o.format.parse(key, value)
	if err != nil {
		return driveSpec{}, Invalid(key, "invalid format - %s", err)
	}

	for alias, name := range driveAliases {
		if v, ok := p[alias]; ok {
			p[name] = v
			delete(p, alias)
		}
	}

	if p["file"] == "" {
		return driveSpec{}, Invalid(key, "invalid format - format error\n%s.file: property is missing and it is not optional",
			key)
	}

	// Size is a matter of the volume; what the client says is only checked.
	if size, ok := parseSize(p["size"]); ok && p["size"] != "" {
		p["size"] = formatSize(size)
	}

	return driveSpec{key, p}, nil
}

func (d driveSpec) String() string { return d.print("file") }

func (d driveSpec) file() string { return d.properties["file"] }

// cdrom tells whether the drive is a CD-ROM, cloud-init drives included.
func (d driveSpec) cdrom() bool { return d.properties["media"] == "cdrom" }

var cloudInitName = regexp.MustCompile(`(^|:|/)vm-\d+-cloudinit(\.\w+)?$`)

// cloudInit tells whether the drive is a cloud-init drive.
func (d driveSpec) cloudInit() bool {
	return d.cdrom() && (cloudInitName.MatchString(d.file()) || strings.HasSuffix(d.file(), ":cloudinit"))
}

// storageName is the storage part of the drive's volume, empty for "none" and "cdrom".
func (d driveSpec) storageName() string {
	name, _, ok := strings.Cut(d.file(), ":")
	if !ok {
		return ""
	}

	return name
}

var newDisk = regexp.MustCompile(`^(?:([^/:\s]+):)?(\d+(?:\.\d+)?)$`)

// fixedSizes of disks whose size is not the client's business: the state of a TPM and the variables of OVMF.
func (d driveSpec) fixedSize() int64 {
	switch {
	case d.key == "tpmstate0":
		return 4 * MiB
	case d.key == "efidisk0" && d.properties["efitype"] == "4m":
		return 528 << 10
	case d.key == "efidisk0":
		return 128 << 10
	default:
		return 0
	}
}

// allocate makes what a drive asks for: a blank disk ("tank:40"), a cloud-init drive ("tank:cloudinit"), or takes the
// volume it names. It returns the drive as the configuration keeps it and the volume that was made, if any. The world
// is locked.
func (w *World) allocate(v *vm, d driveSpec, defaultStorage string) (driveSpec, *volume, error) {
	file := d.file()

	switch {
	case file == "none" || file == "cdrom":
		delete(d.properties, "size")

		return d, nil, nil
	case file == "cloudinit" || strings.HasSuffix(file, ":cloudinit"):
		return w.allocateCloudInit(v, d, defaultStorage)
	case newDisk.MatchString(file):
		return w.allocateBlank(v, d, defaultStorage)
	default:
		return w.attachVolume(v, d)
	}
}

func (w *World) allocateCloudInit(v *vm, d driveSpec, defaultStorage string) (driveSpec, *volume, error) {
	for key, value := range v.effective() {
		if !isDrive(key) || key == d.key {
			continue
		}

		if o, err := parseDrive(key, value); err == nil && o.cloudInit() {
			return d, nil, failf("%s - cloud-init drive is already attached at '%s'", d.key, key)
		}
	}

	name := d.storageName()
	if name == "" {
		name = defaultStorage
	}

	s, err := w.imageStorage(v.host, name)
	if err != nil {
		return d, nil, err
	}

	vol, err := w.cloudInitImage(v.host, s, v.id, d.key)
	if err != nil {
		return d, nil, err
	}

	d.properties["file"], d.properties["media"] = vol.id, "cdrom"
	delete(d.properties, "format")
	delete(d.properties, "size")

	return d, vol, nil
}

func (w *World) allocateBlank(v *vm, d driveSpec, defaultStorage string) (driveSpec, *volume, error) {
	m := newDisk.FindStringSubmatch(d.file())

	name := m[1]
	if name == "" {
		name = defaultStorage
	}

	if name == "" {
		return d, nil, failf("no storage ID specified (and no default storage)")
	}

	s, err := w.imageStorage(v.host, name)
	if err != nil {
		return d, nil, err
	}

	size := d.fixedSize()
	if size == 0 {
		size, _ = parseSize(m[2] + "G")
	}

	size = s.roundUp(size)

	var content machine.Content

	if source := d.properties["import-from"]; source != "" {
		src, err := w.volume(v.host, source)

		var gone *missingFile
		if errors.As(err, &gone) {
			return d, nil, failf("failed to stat '%s'", gone.path)
		}

		if err != nil {
			return d, nil, failf("cannot import from '%s' - %s", source, err)
		}

		if content, size = src.copyContent(), src.virtualSize(); size == 0 {
			return d, nil, failf("could not get file size of %s", source)
		}

		delete(d.properties, "import-from")
	}

	vol, err := w.image(v.host, s, v.id, d.properties["format"], machine.NewDisk(d.key, "", size, content))
	if err != nil {
		return d, nil, err
	}

	d.properties["file"], d.properties["size"] = vol.id, formatSize(vol.bytes())
	delete(d.properties, "format")

	if v.template() {
		w.makeBase(vol)
		d.properties["file"] = vol.id
	}

	return d, vol, nil
}

// copyContent is what a copy of the volume holds.
func (v *volume) copyContent() machine.Content {
	content := v.content
	if v.disk != nil {
		content = v.disk.Content()
	}

	if content == nil {
		return nil
	}

	return content.CloneContent()
}

// attachVolume takes a volume that exists: an ISO image, a disk of the VM.
func (w *World) attachVolume(v *vm, d driveSpec) (driveSpec, *volume, error) {
	if strings.HasPrefix(d.file(), "/") {
		return d, nil, failf("volume %s does not exist", d.file())
	}

	vol, err := w.volume(v.host, d.file())
	if err != nil {
		return d, nil, err
	}

	switch vol.kind {
	case "iso":
		if !d.cdrom() {
			return d, nil, Invalid(d.key, "explicit 'media=cdrom' is required for iso images")
		}
	case "images":
		if f := d.properties["format"]; f != "" && f != vol.format {
			return d, nil, failf("drive '%s' - volume '%s' - 'format=%s' option different from storage format '%s'", d.key,
				vol.id, f, vol.format)
		}

		if vol.disk.Interface != d.key {
			vol.disk = machine.NewDisk(d.key, vol.id, vol.disk.Size(), vol.disk.Content())
		}
	default:
		return d, nil, failf("cannot use volume %s - content type needs to be 'images' or 'iso'", vol.id)
	}

	d.properties["size"] = formatSize(vol.bytes())

	return d, nil, nil
}
