package planner

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spec"
)

var (
	// canonical is the naming rule of the templates.
	canonical = regexp.MustCompile(`^talos-(v\d+\.\d+\.\d+)-base$`)
	// volume is how Proxmox VE names an ISO file on a datastore.
	volume = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]*:iso/[^/\s]+$`)
	// named is a version in the name of an ISO file.
	named = regexp.MustCompile(`(?:^|[^0-9.])v?(\d+\.\d+\.\d+(?:-(?:alpha|beta|rc)\.\d+)?)(?:[^0-9]|$)`)
	// schematicID is how the Image Factory names a schematic: its SHA-256.
	schematicID = regexp.MustCompile(`^[0-9a-f]{64}$`)
	// extension is a system extension of Talos, with or without its publisher.
	extension = regexp.MustCompile(`^([a-z0-9-]+/)?[a-z0-9][a-z0-9._-]*$`)
)

// checkImage refuses blocks that belong to another source, and checks the ones that do not.
func (r *resolver) checkImage() {
	image := r.Spec.Image
	foreign := func(path string, given bool, source spec.Source) {
		if given && image.Source != source {
			r.Problems.Add(path, `belongs to image.source "`+string(source)+`"`, "",
				`leave it out, or change image.source, which is "`+string(image.Source)+`"`)
		}
	}

	foreign("image.template", image.Template != spec.TemplateImage{}, spec.SourceTemplate)
	foreign("image.iso", image.ISO != spec.ISOImage{}, spec.SourceISO)
	foreign("image.cloudImage", image.CloudImage != spec.CloudImage{}, spec.SourceCloudImage)

	f := image.Factory
	foreign("image.factory", f.URL != "" || f.Format != "" || f.Extensions != nil || f.KernelArgs != nil,
		spec.SourceFactory)

	switch image.Source {
	case spec.SourceFactory:
		r.checkFactory()
	case spec.SourceCloudImage:
		r.checkCloudImage()
	case spec.SourceTemplate, spec.SourceISO: // checked for each pool, which may have its own
	}

	r.checkSchematic("image.schematic", image.Schematic)

	kept := false

	for _, p := range r.pools {
		foreign(p.path+".image.template", p.Image.Template != "", spec.SourceTemplate)
		foreign(p.path+".image.iso", p.Image.ISO != nil, spec.SourceISO)
		foreign(p.path+".image.extensions", p.Image.Extensions != nil, spec.SourceFactory)
		foreign(p.path+".image.kernelArgs", p.Image.KernelArgs != nil, spec.SourceFactory)

		if image.Source == spec.SourceFactory {
			r.checkExtensions(p.path+".image.extensions", p.Image.Extensions)
			r.checkKernelArgs(p.path+".image.kernelArgs", p.Image.KernelArgs)
		}

		r.checkSchematic(p.path+".image.schematic", p.Image.Schematic)
		p.planned.Image = r.bootImage(p)
		r.checkAgent(p, p.planned.Image)
		r.checkTailnetImage(p)
		r.checkLonghornImage(p)
		kept = kept || p.planned.Image.Keep
	}

	if kept && !*r.Spec.Lifecycle.KeepImages {
		r.Warn("lifecycle.keepImages", "keeps an ISO file that stays in the drives of its VMs, which do not start without it",
			"false",
			"delete the file by hand when the VMs are gone")
	}
}

// noCredentials: a URL goes into descriptions of VMs and machine configuration.
const noCredentials = "must hold no credentials: Proxmox VE and the nodes show it to every user with access"

func (r *resolver) checkFactory() {
	f := r.Spec.Image.Factory

	u, err := url.Parse(f.URL)

	switch {
	case f.URL == "":
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		r.Problems.Add("image.factory.url", "must be a URL", f.URL, "write it like https://factory.talos.dev")
	case spec.HasWrongPort(u):
		r.Problems.Add("image.factory.url", spec.WrongPort, u.Redacted(), "correct the port")
	case u.User != nil:
		r.Problems.Add("image.factory.url", noCredentials, u.Redacted(), "leave them out")
	case u.RawQuery != "" || u.Fragment != "":
		r.Problems.Add("image.factory.url", "must end with the path: images and installers are below it", f.URL,
			"leave out what follows ? and #")
	}

	if f.Format != "" {
		checks.OneOf(&r.Problems, "image.factory.format", f.Format, spec.FormatISO, spec.FormatDisk)
	}

	r.checkExtensions("image.factory.extensions", f.Extensions)
	r.checkKernelArgs("image.factory.kernelArgs", f.KernelArgs)
}

func (r *resolver) checkSchematic(path string, s *spec.Schematic) {
	switch {
	case s == nil:
	case r.Spec.Image.Source == spec.SourceFactory:
		r.Problems.Add(path, "describes a template or an ISO file; the factory creates its own schematic", "",
			"use image.factory.extensions")
	case s.ID != "" && !schematicID.MatchString(s.ID):
		r.Problems.Add(path, "must be the id of a schematic, 64 hexadecimal digits, or a list of extensions", s.ID,
			"correct it")
	default:
		r.checkExtensions(path, s.Extensions)
	}
}

func (r *resolver) checkExtensions(path string, names []string) {
	for i, name := range names {
		switch {
		case !extension.MatchString(name):
			r.Problems.Add(checks.At(path, i), "must be the name of a system extension", name, "write it like "+plan.GuestAgent)
		case slices.Contains(names[:i], name):
			r.Problems.Add(checks.At(path, i), "is named twice", name, "remove one")
		}
	}
}

// checkTailnetImage: without the extension, nothing on the node reads the configuration of Tailscale.
func (r *resolver) checkTailnetImage(p *pool) {
	image := p.planned.Image
	if !r.JoinsTailnet(p.name) || r.IsK3s() || image.SchematicID != "" || slices.Contains(image.Extensions, "tailscale") {
		return
	}

	path := "image.schematic"
	if r.Spec.Image.Source == spec.SourceFactory {
		path = "image.factory.extensions"
	}

	r.Problems.Add(path, "must hold tailscale: tailscale is set for pool "+p.name, strings.Join(image.Extensions, ", "),
		"add tailscale")
}

// bootImage is what the nodes of a pool boot first.
func (r *resolver) bootImage(p *pool) plan.BootImage {
	image := r.Spec.Image
	configured := r.Spec.Cluster.Bootstrap == spec.BootstrapPulumi
	b := plan.BootImage{Scope: plan.PerCluster, Keep: *r.Spec.Lifecycle.KeepImages, SecureBoot: image.SecureBoot}

	if s := image.Schematic; s != nil {
		b.SchematicID, b.Extensions = s.ID, short(s.Extensions)
	}

	if s := p.Image.Schematic; s != nil {
		b.SchematicID, b.Extensions, b.Scope = s.ID, short(s.Extensions), plan.PerPool
	}

	if p.Image.SecureBoot != nil {
		b.SecureBoot, b.Scope = *p.Image.SecureBoot, plan.PerPool
	}

	switch image.Source {
	case spec.SourceTemplate:
		b.Path, b.Template = r.template(p)
		if p.Image.Template != "" {
			b.Scope = plan.PerPool
		}
	case spec.SourceISO:
		iso, path := image.ISO, "image.iso"
		if p.Image.ISO != nil {
			iso, path, b.Scope = *p.Image.ISO, p.path+".image.iso", plan.PerPool
		}

		iso.Detach = cmp.Or(iso.Detach, new(true))
		b.Path, b.Volume, b.URL, b.Overwrite = path, iso.Volume, iso.URL, iso.Overwrite
		b.Detach = *iso.Detach && configured
		b.Checksum = strings.TrimPrefix(iso.Checksum, "sha256:")
		r.checkISO(path, p, b, iso)
	case spec.SourceCloudImage:
		b.Path, b.Format = "image.cloudImage", spec.FormatDisk
		b.Volume, b.URL, b.Checksum = image.CloudImage.Volume, image.CloudImage.URL,
			strings.TrimPrefix(image.CloudImage.Checksum, "sha256:")
	case spec.SourceFactory:
		f := image.Factory
		f.URL = cmp.Or(f.URL, "https://factory.talos.dev")
		f.Format = cmp.Or(f.Format, spec.FormatISO)
		b.Path = "image.factory"
		b.FactoryURL, b.Format = strings.TrimSuffix(f.URL, "/"), f.Format
		b.Detach = f.Format == spec.FormatISO && configured
		b.Extensions = short(f.Extensions, p.Image.Extensions)
		b.KernelArgs = slices.Concat(f.KernelArgs, p.Image.KernelArgs)

		if p.Image.Extensions != nil || p.Image.KernelArgs != nil {
			b.Scope = plan.PerPool
		}

		if r.inMeta() {
			// META names the link eth0; without this argument there would be none of that name.
			if !slices.Contains(b.KernelArgs, oldNames) {
				b.KernelArgs = append(b.KernelArgs, oldNames)
			}

			b.Scope = plan.PerNode
		}
	}

	// What is still in a drive must stay: a VM does not start without it.
	b.Keep = b.Keep || (b.URL != "" || b.FactoryURL != "") && b.Format != spec.FormatDisk && !b.Detach

	return b
}

// short are the names of extensions without the publisher that is meant when none is named; sorted, each once.
func short(lists ...[]string) []string {
	var all []string

	for _, name := range slices.Concat(lists...) {
		all = append(all, strings.TrimPrefix(name, "siderolabs/"))
	}

	slices.Sort(all)

	return slices.Compact(all)
}

// template is the name or VMID of the template of a pool, and the key that states it.
func (r *resolver) template(p *pool) (path, name string) {
	t := r.Spec.Image.Template
	path, ref := "image.template.worker", t.Worker
	group := "worker"

	switch {
	case p.Image.Template != "":
		path, ref = p.path+".image.template", p.Image.Template
	case p.Role == spec.RoleControlPlane:
		path, ref, group = "image.template.control", t.Control, "control plane"
	case p.GPUs != nil:
		path, ref, group = "image.template.gpuWorker", t.GPUWorker, "GPU worker"
	}

	switch {
	case ref == "" && len(p.members) > 0:
		example := "talos-v1.12.4-base"
		if r.IsK3s() {
			example = "ubuntu-24.04"
		}

		r.addProblemOnce(path, "is required: there are "+group+" nodes", "",
			"name the template or give its VMID, for example "+example)
	case ref != "" && !r.IsK3s():
		r.checkTemplate(path, string(ref))
	}

	return path, string(ref)
}

// checkTemplate holds the naming rule. A VMID says nothing about what is in the template.
func (r *resolver) checkTemplate(path, ref string) {
	if _, err := strconv.Atoi(ref); err == nil || r.Spec.Image.Template.AllowNonCanonicalName {
		return
	}

	m := canonical.FindStringSubmatch(ref)
	if m == nil {
		r.addProblemOnce(path, "must be called talos-v<major>.<minor>.<patch>-base", ref,
			"rename the template, give its VMID, or set image.template.allowNonCanonicalName")

		return
	}

	r.checkNamed(path, ref, m[1], ", or set image.template.allowNonCanonicalName")
}

// checkNamed compares the version in the name of an image with the one that the cluster is to have.
func (r *resolver) checkNamed(path, ref, named, fallback string) {
	talos := checks.Version.FindStringSubmatch(r.Spec.Cluster.Versions.Talos)
	if talos == nil || strings.TrimPrefix(named, "v") == talos[1] {
		return
	}

	rule := "holds another version than cluster.versions.talos v" + talos[1]

	// Whoever configures the nodes installs the version that they want.
	if r.Spec.Cluster.Bootstrap == spec.BootstrapExternal {
		r.Warn(path, rule, ref, "change one of the two")

		return
	}

	r.addProblemOnce(path, rule, ref, "change one of the two"+fallback)
}

func (r *resolver) checkISO(path string, p *pool, image plan.BootImage, iso spec.ISOImage) {
	switch {
	case iso.Volume == "" && iso.URL == "":
		r.addProblemOnce(path, "needs a volume or a url", "", "write it like volume: local:iso/talos-1.12.4.iso")
	case iso.Volume != "" && iso.URL != "":
		r.addProblemOnce(path, "takes either a volume or a url", iso.URL, "leave one out")
	case iso.Volume != "":
		if !volume.MatchString(iso.Volume) {
			r.addProblemOnce(path+".volume", "must name an ISO file on a datastore", iso.Volume,
				"write it like local:iso/talos-1.12.4.iso")
		}

		if iso.Overwrite {
			r.addProblemOnce(path+".overwrite", "has no meaning with a volume, which is not downloaded", "true", "leave it out")
		}

		if iso.Checksum != "" {
			r.addProblemOnce(path+".checksum", "has no meaning with a volume, which is not downloaded", iso.Checksum,
				"leave it out")
		}

		if m := named.FindStringSubmatch(iso.Volume); m != nil {
			r.checkNamed(path+".volume", iso.Volume, m[1], "")
		}

		r.checkISOName(path+".volume", p, image, iso.Volume, iso.Volume)
	default:
		u, err := url.Parse(iso.URL)

		switch {
		case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
			r.addProblemOnce(path+".url", "must be a URL", iso.URL, "write it like https://example.com/talos-1.12.4.iso")
		case spec.HasWrongPort(u):
			r.addProblemOnce(path+".url", spec.WrongPort, u.Redacted(), "correct the port")
		case u.User != nil:
			r.addProblemOnce(path+".url", noCredentials, u.Redacted(),
				"serve the file to the hosts without a login, or upload it and name its volume")
		default:
			// An address of the server is no version.
			if m := named.FindStringSubmatch(u.Path); m != nil {
				r.checkNamed(path+".url", iso.URL, m[1], "")
			}

			r.checkISOName(path+".url", p, image, u.Path, iso.URL)
		}

		if iso.Checksum != "" && !checks.Checksum.MatchString(iso.Checksum) {
			r.addProblemOnce(path+".checksum", "must be a SHA-256 checksum", iso.Checksum,
				"write it like sha256: and 64 hexadecimal digits, as sha256sum prints them")
		}
	}
}

// imageKey is the same for nodes that boot from the same image.
func imageKey(p plan.PlannedPool, node string) string {
	b := p.Image

	switch {
	case b.Template != "":
		return "template/" + b.Template
	case b.Volume != "":
		return "iso/" + b.Volume
	case b.URL != "":
		return "iso/" + b.URL
	case b.Scope == plan.PerNode:
		return "factory/node/" + node
	case b.Scope == plan.PerPool:
		return "factory/pool/" + p.Name
	default:
		return "factory/cluster"
	}
}

// checkCloudImage checks that there is one image.
func (r *resolver) checkCloudImage() {
	const path = "image.cloudImage"

	c := r.Spec.Image.CloudImage

	switch {
	case c.Volume == "" && c.URL == "":
		r.Problems.Add(path, `is required with image.source "cloudImage": it needs a volume or a url`, "",
			"write it like url: "+
				"https://cloud-images.ubuntu.com/releases/noble/release-20251113/ubuntu-24.04-server-cloudimg-amd64.img")
	case c.Volume != "" && c.URL != "":
		r.Problems.Add(path, "takes either a volume or a url", c.URL, "leave one out")
	case c.Volume != "" && !cloudVolume.MatchString(c.Volume):
		r.Problems.Add(path+".volume", "must name a disk image among the ISO files of a datastore, with the ending .img",
			c.Volume,
			"write it like local:iso/ubuntu-24.04.img")
	case c.Volume != "" && c.Checksum != "":
		r.Problems.Add(path+".checksum", "has no meaning with a volume, which is not downloaded", c.Checksum, "leave it out")
	case c.URL != "":
		r.CheckURL(path+".url", c.URL,
			"https://cloud-images.ubuntu.com/releases/noble/release-20251113/ubuntu-24.04-server-cloudimg-amd64.img", "https",
			"http")

		if c.Checksum != "" && !checks.Checksum.MatchString(c.Checksum) {
			r.Problems.Add(path+".checksum", "must be a SHA-256 checksum", c.Checksum,
				"write it like sha256: and 64 hexadecimal digits, as SHA256SUMS has it")
		}
	}

	if u, err := url.Parse(c.URL); c.URL != "" && err == nil {
		r.checkCloudImageName(path+".url", c.URL, u.Path)
	} else if c.Volume != "" {
		_, file, _ := strings.Cut(c.Volume, ":")
		r.checkCloudImageName(path+".volume", c.Volume, file)
	}
}

// cloudVolume is how Proxmox VE names a disk image among its ISO files.
var cloudVolume = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]*:iso/[^/\s]+\.img$`)

// checkLonghornImage: its engine needs what Talos has in extensions.
func (r *resolver) checkLonghornImage(p *pool) {
	image := p.planned.Image

	switch {
	case r.IsK3s() || r.Spec.Cluster.Bootstrap == spec.BootstrapExternal,
		!slices.Contains(r.Spec.Cluster.Addons, spec.AddonLonghorn):
		return
	case image.SchematicID != "", len(image.Extensions) == 0 && r.Spec.Image.Source != spec.SourceFactory:
		return // what it holds is not known
	}

	for _, extension := range []string{"iscsi-tools", "util-linux-tools"} {
		if !slices.Contains(image.Extensions, extension) {
			r.Problems.Add(p.path, "needs the extension "+extension+" for the addon longhorn",
				strings.Join(image.Extensions, ", "),
				"add it to image.factory.extensions, or to the schematic of the image or the pool")
		}
	}
}
