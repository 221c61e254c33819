package spec

import (
	"encoding/json"
)

// Image says where a node's first boot comes from.
type Image struct {
	// Boot source: a template to clone, an ISO file, or the Image Factory; with cluster.kind k3s a template or a
	// cloud image. Absent: factory, or template with cluster.kind k3s.
	Source Source `json:"source,omitempty" jsonschema:"enum=template,enum=iso,enum=factory,enum=cloudImage"`
	// The Talos platform of the image. Absent: metal for templates and ISO files, nocloud for the factory.
	Platform Platform `json:"platform,omitempty" jsonschema:"enum=metal,enum=nocloud"`
	// The templates to clone, with source template.
	Template TemplateImage `json:"template,omitempty"`
	// The ISO file, with source iso.
	ISO ISOImage `json:"iso,omitempty"`
	// Ubuntu's cloud image, with source cloudImage.
	CloudImage CloudImage `json:"cloudImage,omitempty"`
	// Image Factory settings, with source factory.
	Factory FactoryImage `json:"factory,omitempty"`
	// Contents of the template or the ISO file: its schematic ID, or its list of extensions. Absent: no extensions.
	Schematic *Schematic `json:"schematic,omitempty"`
	// The images are for SecureBoot: the template or the ISO file is one, and images of the factory are the signed
	// ones. Needs firmware ovmf. Running nodes keep what they were installed with.
	SecureBoot bool `json:"secureBoot,omitempty" jsonschema:"default=false"`
}

// PoolImage is what a pool boots from instead of what image says.
type PoolImage struct {
	// Template of the pool, a name or a VMID, instead of image.template.
	Template TemplateRef `json:"template,omitempty"`
	// ISO file of the pool, instead of image.iso.
	ISO *ISOImage `json:"iso,omitempty"`
	// Extensions of the pool in addition to image.factory.extensions, such as GPU drivers.
	Extensions []string `json:"extensions,omitempty"`
	// Kernel arguments of the pool in addition to image.factory.kernelArgs.
	KernelArgs []string `json:"kernelArgs,omitempty"`
	// Contents of the pool's template or ISO file, instead of image.schematic.
	Schematic *Schematic `json:"schematic,omitempty"`
	// Whether the pool's images are for SecureBoot, instead of image.secureBoot.
	SecureBoot *bool `json:"secureBoot,omitempty"`
}

// Source is a boot source.
type Source string

// The boot sources.
const (
	SourceTemplate Source = "template"
	SourceISO      Source = "iso"
	SourceFactory  Source = "factory"
	// FromCloudImage belongs to kind k3s, which also has template.
	SourceCloudImage Source = "cloudImage"
)

// Platform is a Talos platform.
type Platform string

// The platforms.
const (
	PlatformMetal   Platform = "metal"
	PlatformNoCloud Platform = "nocloud"
)

// TemplateImage names the template of each group of nodes: a VM template's name (case matters) or its VMID.
type TemplateImage struct {
	// For control planes, a name or a VMID.
	Control TemplateRef `json:"control,omitempty"`
	// For workers. Required if the cluster has any.
	Worker TemplateRef `json:"worker,omitempty"`
	// For GPU workers. Required if the cluster has any.
	GPUWorker TemplateRef `json:"gpuWorker,omitempty"`
	// Allow names other than talos-v<major>.<minor>.<patch>-base.
	AllowNonCanonicalName bool `json:"allowNonCanonicalName,omitempty" jsonschema:"default=false"`
	// Number of clones of one template that may be created at the same time. Absent: no limit of its own.
	ParallelClones int `json:"parallelClones,omitempty" jsonschema:"minimum=1,maximum=1000"`
}

// TemplateRef is the name or the VMID of a template. A number in the configuration is read as its text.
type TemplateRef string

// UnmarshalJSON accepts a text or a number.
func (t *TemplateRef) UnmarshalJSON(b []byte) error {
	*t = TemplateRef(textOf(b))

	return nil
}

// ISOImage is an ISO file: one that is there, or one that is downloaded once per host.
type ISOImage struct {
	// A file on a datastore of every host, for example local:iso/talos-1.12.4.iso.
	Volume string `json:"volume,omitempty"`
	// URL to download it from, instead of volume.
	URL string `json:"url,omitempty"`
	// Checksum of the download, as sha256:<64 hexadecimal digits>. Absent: only the size is checked.
	Checksum string `json:"checksum,omitempty"`
	// Download again if the size of the file at url changed.
	Overwrite bool `json:"overwrite,omitempty" jsonschema:"default=false"`
	// Remove the file from the drive once the node is identified, before Talos is installed.
	Detach *bool `json:"detach,omitempty" jsonschema:"default=true"`
}

// FactoryImage is what the Image Factory makes.
type FactoryImage struct {
	// URL of the factory.
	URL string `json:"url,omitempty" jsonschema:"default=https://factory.talos.dev"`
	// iso: an ISO file that installs Talos. disk: a disk image with Talos; it needs proxmox.ssh.
	Format Format `json:"format,omitempty" jsonschema:"default=iso,enum=iso,enum=disk"`
	// System extensions, for example qemu-guest-agent.
	Extensions []string `json:"extensions,omitempty"`
	// Kernel arguments.
	KernelArgs []string `json:"kernelArgs,omitempty"`
}

// Format of a factory image.
type Format string

// The formats.
const (
	FormatISO  Format = "iso"
	FormatDisk Format = "disk"
)

// Schematic is what an image carries: the id of a schematic, whose content is not known, or the extensions themselves.
type Schematic struct {
	ID         string
	Extensions []string
}

// VanillaSchematic is the ID of an image without extensions and kernel arguments: the SHA-256 of "customization: {}\n".
const VanillaSchematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

// UnmarshalJSON accepts a text or a list. What is neither is left to the schema, which says so: an error here would
// keep the rest of the configuration from being read.
func (s *Schematic) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &s.ID) != nil && json.Unmarshal(b, &s.Extensions) != nil {
		*s = Schematic{}
	}

	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (s Schematic) MarshalJSON() ([]byte, error) {
	if s.ID != "" {
		return json.Marshal(s.ID)
	}

	return json.Marshal(s.Extensions)
}

// CloudImage is Ubuntu's own disk image for clouds, which becomes the disk of a VM: one that is there, or one that is
// downloaded once per host. Either way Proxmox VE keeps it among its ISO files, with the ending .img.
type CloudImage struct {
	// A file on a datastore of every host, for example local:iso/ubuntu-24.04.img.
	Volume string `json:"volume,omitempty"`
	// URL to download it from, instead of volume.
	URL string `json:"url,omitempty"`
	// Checksum of the download, as sha256:<64 hexadecimal digits>. Absent: only the size is checked.
	Checksum string `json:"checksum,omitempty"`
}
