// Package vmimage is what VMs boot from, and the user data that they read: files that hosts download or are sent.
package vmimage

import (
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/download"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/imagefactory"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosimage"
	"talos-proxmox/components/tokens"
)

// Download is an image that a host downloads.
type Download struct {
	// File is what is downloaded.
	File talosimage.BootFile
	// Datastore of the host that it is kept on.
	Datastore string
	// Overwrite downloads it again when its URL holds something of another size.
	Overwrite bool
	// Keep leaves the file where it is when it is no longer wanted.
	Keep bool
	// Hooks run before the download, and after the image is deleted.
	Hooks *pulumi.ResourceHookBinding
}

// DownloadOf is the image that a node boots from; nil when nothing is downloaded for it.
func DownloadOf(p *plan.Plan, image plan.BootImage, n plan.Node, hooks *pulumi.ResourceHookBinding) (*Download, error) {
	file, err := talosimage.Boot(p, image, n)
	if err != nil || file == nil {
		return nil, err
	}

	return &Download{
		File: *file, Datastore: p.ImageStore, Overwrite: image.Overwrite, Keep: image.Keep, Hooks: hooks,
	}, nil
}

// NewSchematic has the Image Factory keep a schematic. It returns nil for a file that needs none.
func NewSchematic(ctx *pulumi.Context, name string, file talosimage.BootFile,
	opts ...pulumi.ResourceOption,
) (pulumi.Resource, error) {
	if file.Schematic == "" {
		return nil, nil //nolint:nilnil // nothing is an answer
	}

	text := pulumi.String(file.Schematic).ToStringPtrOutput()
	if spec.HideSecrets(file.Schematic) != file.Schematic {
		text = pulumi.ToSecret(text).(pulumi.StringPtrOutput)
	}

	return imagefactory.NewSchematic(ctx, name, &imagefactory.SchematicArgs{Schematic: text}, opts...)
}

// NewFile has a host fetch an image and returns the volume that it becomes.
func NewFile(ctx *pulumi.Context, name, host string, f *Download, schematic pulumi.Resource,
	opts ...pulumi.ResourceOption,
) (pulumi.StringOutput, error) {
	args := &download.FileArgs{
		NodeName: pulumi.String(host), DatastoreId: pulumi.String(f.Datastore),
		// Disk images too: of what there is, it is what a host downloads without SSH.
		ContentType: pulumi.String("iso"),
		FileName:    pulumi.String(f.File.Name), Url: pulumi.String(f.File.URL),
		Overwrite: pulumi.Bool(f.Overwrite),
		// The name says whose file it is and what is in it: one that is there was left by an earlier run.
		OverwriteUnmanaged: pulumi.Bool(true),
	}

	if f.File.Decompress != "" {
		args.DecompressionAlgorithm = pulumi.String(f.File.Decompress)
	}

	if f.File.Checksum != "" {
		args.Checksum, args.ChecksumAlgorithm = pulumi.String(f.File.Checksum), pulumi.String("sha256")
	}

	if schematic != nil {
		opts = append(opts, pulumi.DependsOn([]pulumi.Resource{schematic}))
	}

	file, err := download.NewFile(ctx, name, args, append(opts,
		pulumi.RetainOnDelete(f.Keep),
		// Another host would mean another file.
		pulumi.IgnoreChanges([]string{"nodeName"}),
		pulumi.ResourceHooks(f.Hooks))...)
	if err != nil {
		return pulumi.StringOutput{}, err
	}

	return file.ID().ToStringOutput(), nil
}

// Images are the images that nodes share, by content and host.
type Images struct {
	cluster string
	// shared says that all hosts see the datastore: one of them fetches for all.
	shared     bool
	opts       []pulumi.ResourceOption
	schematics map[string]pulumi.Resource
	volumes    map[[2]string]pulumi.StringOutput
}

// NewImages returns the images of a cluster. Shared ones are downloaded once, by the first host that needs them.
func NewImages(cluster string, shared bool, opts ...pulumi.ResourceOption) *Images {
	return &Images{
		cluster: cluster, shared: shared, opts: opts,
		schematics: map[string]pulumi.Resource{}, volumes: map[[2]string]pulumi.StringOutput{},
	}
}

// Volume is the image of a node on its host, fetched the first time that it is asked for. One that is the cluster's and
// not a pool's needs no mark in its name.
func (i *Images) Volume(ctx *pulumi.Context, f *Download, host string, plain bool) (pulumi.StringInput, error) {
	key := [2]string{f.File.ID, host}
	if i.shared {
		key[1] = ""
	}

	if volume, there := i.volumes[key]; there {
		return volume, nil
	}

	name := i.cluster
	if !plain {
		name += "-" + f.File.ID[:8]
	}

	schematic, there := i.schematics[f.File.ID]
	if !there {
		var err error
		if schematic, err = NewSchematic(ctx, name+tokens.SchematicSuffix, f.File, i.opts...); err != nil {
			return nil, err
		}

		i.schematics[f.File.ID] = schematic
	}

	name += tokens.ImageSuffix
	if !i.shared {
		name += "-" + host
	}

	volume, err := NewFile(ctx, name, host, f, schematic, i.opts...)
	i.volumes[key] = volume

	return volume, err
}

// SmallestImage is well below any Talos image, in bytes, and above any page that says that there is none.
const SmallestImage = 16 << 20
