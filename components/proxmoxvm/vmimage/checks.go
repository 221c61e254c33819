package vmimage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/talosimage"
	"talos-proxmox/components/wait"
)

// Hooks check an image before and after it is downloaded and after it is deleted, and keep one that is still
// wanted.
type Hooks struct {
	Proxmox    proxmoxvm.Proxmox
	Identities *vmidentity.Identities
	Plan       *plan.Plan
	Progress   wait.Reporter
	// DryRun says that it is a preview.
	DryRun bool
	// Destroying says that the run destroys the cluster: no image is wanted any more.
	Destroying bool
	// UserDataMissing says that a host was seen without a file of user data when the run began.
	UserDataMissing func(host, volume string) bool
}

// CheckDownload is a hook that runs before a download, and in previews. It asks the host what the URL holds. A server
// that answers with a page instead of an image would be believed.
//
// An image that is there under the name, left by an earlier deployment or to be replaced, is deleted. Proxmox VE
// downloads nothing over a file, and the provider would begin the download before its own deletion has ended.
func (h Hooks) CheckDownload(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	if h.DryRun {
		_, err := h.leftover(ctx, args)
		if err == nil {
			err = h.previewDownload(ctx, args)
		}

		return proxmoxapi.IgnoreUnreachable(err)
	}

	if err := h.checkDownload(ctx, args); err != nil {
		return err
	}

	left, err := h.leftover(ctx, args)
	if err != nil || left == "" {
		return err
	}

	host := hookutil.String(args.NewInputs, "nodeName")
	h.Progress(fmt.Sprintf("image %s is on host %s already: it is deleted, and downloaded again", left, host))

	return h.Proxmox.DeleteFile(ctx, host, left)
}

// CheckUnused is a hook that runs before an image is deleted, and in previews. It keeps an image that is in a drive of
// a VM that is not this stack's: without the file, that VM would not start.
func (h Hooks) CheckUnused(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	ctx = hookutil.Deleting(ctx)
	host, volume := hookutil.String(args.OldInputs, "nodeName"), downloaded(args.OldInputs)

	if strings.HasSuffix(volume, ".iso") {
		held, err := h.Proxmox.Permissions(ctx)

		switch {
		case err != nil:
			return h.deleted(err)
		case !held.SeesAllVMs():
			return fmt.Errorf("image %s is to be deleted from host %s, and the credentials do not see all VMs: it is not "+
				"known whether one has it in a drive. Grant VM.Audit on /vms; or revert the change, set lifecycle.keepImages to "+
				"true and run 'pulumi up' before you make it again, which keeps the file", volume, host)
		}
	}

	return h.deleted(h.checkImageUnused(ctx, host, volume))
}

func (h Hooks) checkImageUnused(ctx context.Context, host, volume string) error {
	return h.checkUnused(ctx, host, volume, "", func(v proxmoxapi.VM, config proxmoxapi.VMConfig) error {
		for _, drive := range slices.Sorted(maps.Keys(config.CDROMs)) {
			if config.CDROMs[drive] == volume {
				// The cluster learns the name of a new VM late.
				return fmt.Errorf("image %s is to be deleted, and is in drive %s of VM %d (%s) on host %s, which is not "+
					"in this stack: that VM would not start without it. Run 'qm set %d --%s none,media=cdrom' on that "+
					"host, then run 'pulumi up' again", volume, drive, v.ID, cmp.Or(config.Settings["name"], v.Name), v.Host, v.ID,
					drive)
			}
		}

		return nil
	})
}

// deleted is the error of a hook that runs before a deletion.
func (h Hooks) deleted(err error) error {
	if h.DryRun {
		return proxmoxapi.IgnoreUnreachable(err)
	}

	return err
}

// checkUnused refuses to delete a file of a host that a VM uses which is not this stack's. name is that of the VMs to
// ask for; empty: all.
func (h Hooks) checkUnused(ctx context.Context, host, volume, name string,
	uses func(proxmoxapi.VM, proxmoxapi.VMConfig) error,
) error {
	shared, err := h.Proxmox.SharedStores(ctx)
	if err != nil {
		return err
	}

	datastore, _, _ := strings.Cut(volume, ":")

	// A VM whose name the cluster has not learned yet, or has forgotten, may have any.
	may := func(v proxmoxapi.VM) bool {
		return (v.Host == host || shared[datastore]) && (name == "" || v.Name == "" || v.Name == name)
	}

	return h.Identities.CheckOthers(ctx, may, func(v proxmoxapi.VM, config proxmoxapi.VMConfig, unread error) error {
		switch {
		case unread == nil:
			return uses(v, config)
		case name != "" && v.Name == "" && errors.Is(unread, proxmoxapi.ErrHostUnreachable):
			// Of a host that is down, no VM has a name: none could be removed from the cluster.
			return nil
		default:
			return fmt.Errorf("%s is to be deleted, and it is not known whether VM %d (%s) on host %s uses it: %w", volume,
				v.ID, v.Name, v.Host, unread)
		}
	})
}

// leftover is the image that is on the host already under the name of a download; empty when there is none, or Proxmox
// VE takes it as it is, by its checksum. It is an error when the credentials may not delete it.
func (h Hooks) leftover(ctx context.Context, args *pulumi.ResourceHookArgs) (string, error) {
	host, datastore := hookutil.String(args.NewInputs, "nodeName"), hookutil.String(args.NewInputs, "datastoreId")
	volume := downloaded(args.NewInputs)

	if hookutil.String(args.NewInputs, "checksum") != "" {
		return "", nil
	}

	if _, there, err := h.find(ctx, host, volume); err != nil || !there {
		return "", err
	}

	if err := h.checkImageUnused(ctx, host, volume); err != nil {
		return "", err
	}

	held, err := h.Proxmox.Permissions(ctx)

	switch {
	case err != nil:
		return "", err
	case strings.HasSuffix(volume, ".iso") && !held.SeesAllVMs():
		return "", fmt.Errorf("image %s is on host %s already, and the credentials do not see all VMs: it is not known "+
			"whether one has it in a drive. Delete it if none has: run 'pvesm free %s' on that host; or grant VM.Audit "+
			"on /vms", volume, host, volume)
	case held.On("/storage/"+datastore, "Datastore.Allocate"):
		return volume, nil
	}

	if h.DryRun && !held.On("/storage/"+datastore, "Datastore.AllocateTemplate") {
		return "", nil // these credentials only look: the update has others
	}

	return "", fmt.Errorf("image %s is on host %s already, and is not in this stack's state: an earlier deployment has "+
		"left it. It is downloaded again, and the credentials lack Datastore.Allocate on /storage/%s to delete it first. "+
		"Delete it: run 'pvesm free %s' on that host; or run 'pveum role modify TalosProxmox -append -privs "+
		"Datastore.Allocate', with the name of the role", volume, host, datastore, volume)
}

func (h Hooks) checkDownload(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	host, url := hookutil.String(args.NewInputs, "nodeName"), hookutil.String(args.NewInputs, "url")

	size, err := h.Proxmox.URLSize(ctx, host, url)

	switch {
	case err != nil:
		return fmt.Errorf("host %s cannot get the image %s: %w%s", host, url, err, h.remedy(url))
	case size > 0 && size < SmallestImage:
		return fmt.Errorf("%s holds %d bytes: that is not an image. Open the URL, then correct it, or the settings "+
			"of image.factory", url, size)
	default:
		return nil
	}
}

// previewDownload is checkDownload in a preview: an image of the factory may be of a schematic that it does not know
// yet.
func (h Hooks) previewDownload(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	url := hookutil.String(args.NewInputs, "url")
	if url == "" || slices.ContainsFunc(h.Plan.Pools, func(p plan.PlannedPool) bool {
		return p.Image.FactoryURL != "" && strings.HasPrefix(url, p.Image.FactoryURL+"/")
	}) {
		return nil
	}

	return h.checkDownload(ctx, args)
}

// remedy names the key that states a URL; empty when none does.
func (h Hooks) remedy(url string) string {
	for _, p := range h.Plan.Pools {
		if p.Image.URL == url {
			return "; correct " + p.Image.Path + ".url, or let the host reach it"
		}
	}

	return ""
}

// CheckImage is a hook that runs before a VM is created, and checks the image that it boots: a download may be
// incomplete.
func (h Hooks) CheckImage(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	host, volume := hookutil.String(args.NewInputs, "nodeName"), bootVolume(args.NewInputs)
	if volume == "" {
		return nil
	}

	return h.checkVolume(ctx, host, volume)
}

// CheckDownloaded is a hook that runs after a host has downloaded an image: it may be for nodes that come later.
func (h Hooks) CheckDownloaded(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	return h.checkVolume(ctx, hookutil.String(args.NewInputs, "nodeName"), downloaded(args.NewInputs))
}

// downloaded is the volume that a download makes.
func downloaded(inputs resource.PropertyMap) string {
	return hookutil.String(inputs, "datastoreId") + ":iso/" + hookutil.String(inputs, "fileName")
}

// find looks for a volume on a host, and returns its size in bytes.
func (h Hooks) find(ctx context.Context, host, volume string) (size int64, there bool, err error) {
	datastore, _, _ := strings.Cut(volume, ":")
	files, err := h.Proxmox.Files(ctx, host, datastore)
	size, there = files[volume]

	return size, there, err
}

func (h Hooks) checkVolume(ctx context.Context, host, volume string) error {
	switch size, there, err := h.find(ctx, host, volume); {
	case err != nil:
		return err
	case !there:
		return fmt.Errorf("image %s is not on host %s: it was removed. Run 'pulumi up --refresh'", volume, host)
	case size < SmallestImage:
		return fmt.Errorf("image %s on host %s has %d bytes: that is not an image. Delete it there ('pvesm free %s'), and "+
			"run 'pulumi up --refresh'", volume, host, size, volume)
	default:
		return nil
	}
}

// RestoreImage is a hook that runs after an image was deleted, and has its host download one again that nodes boot
// from. A change that failed leaves the image that it replaced to the next update, which deletes it at its end. Where
// that update takes the change back, it has downloaded that very file again before.
func (h Hooks) RestoreImage(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	if h.Destroying {
		return nil
	}

	ctx = hookutil.Deleting(ctx)
	host, datastore := hookutil.String(args.OldInputs, "nodeName"), hookutil.String(args.OldInputs, "datastoreId")

	file, err := h.wanted(hookutil.String(args.OldInputs, "fileName"))
	if err != nil || file == nil || datastore != h.Plan.ImageStore {
		return err
	}

	volume := datastore + ":iso/" + file.Name

	// The provider does not wait for the deletion.
	err = h.Proxmox.AwaitDeletions(ctx, host, datastore)

	there := false
	if err == nil {
		_, there, err = h.find(ctx, host, volume)
	}

	if err != nil {
		return fmt.Errorf("host %s does not report whether it still has image %s: %w. Run 'pulumi up --refresh'", host,
			volume, err)
	}

	if there {
		return nil
	}

	h.Progress(fmt.Sprintf("image %s was left over from a failed change, and is needed again: host %s downloads it",
		volume, host))

	if err := h.Proxmox.Download(ctx, host, datastore, proxmoxapi.Download{
		URL: file.URL, Name: file.Name, SHA256: file.Checksum, Compression: file.Decompress,
	}); err != nil {
		return fmt.Errorf("image %s was deleted, and cannot be downloaded again: %w. Run 'pulumi up --refresh'", volume, err)
	}

	return nil
}

// wanted is the image of the plan that has a name; nil when there is none.
func (h Hooks) wanted(name string) (*talosimage.BootFile, error) {
	for _, p := range h.Plan.Pools {
		for _, n := range p.Nodes {
			file, err := talosimage.Boot(h.Plan, p.Image, n)
			if err != nil {
				return nil, err
			}

			if file != nil && file.Name == name {
				return file, nil
			}
		}
	}

	return nil, nil //nolint:nilnil // nothing is an answer
}

// bootVolume is the ISO file or the image of a VM; empty for a clone.
func bootVolume(inputs resource.PropertyMap) string {
	if cdrom := hookutil.Unwrap(inputs["cdrom"]); cdrom.IsObject() {
		if volume := hookutil.String(cdrom.ObjectValue(), "fileId"); strings.Contains(volume, ":") {
			return volume
		}
	}

	if all := proxmoxvm.Disks(inputs); len(all) > 0 {
		return hookutil.String(all[0], "fileId")
	}

	return ""
}
