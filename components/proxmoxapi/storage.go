package proxmoxapi

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/luthermonson/go-proxmox"
)

// SharedStores are the datastores that all hosts see the same content of.
func (c *Client) SharedStores(ctx context.Context) (map[string]bool, error) {
	var resources proxmox.ClusterResources
	if err := c.get(ctx, "/cluster/resources?type=storage", &resources); err != nil {
		return nil, err
	}

	shared := map[string]bool{}
	for _, r := range resources {
		shared[r.Storage] = shared[r.Storage] || r.Shared == 1
	}

	return shared, nil
}

// FirewallOn says whether the firewall is on for the whole datacenter; those of VMs have no effect otherwise.
func (c *Client) FirewallOn(ctx context.Context) (bool, error) {
	var options struct {
		Enable int `json:"enable"`
	}

	err := c.get(ctx, "/cluster/firewall/options", &options)

	return options.Enable != 0, err
}

// Files returns the ISO files on a datastore of a host, with their sizes in bytes, by volume ("local:iso/talos.iso").
func (c *Client) Files(ctx context.Context, host, datastore string) (map[string]int64, error) {
	return c.content(ctx, host, datastore, "iso")
}

// Snippets is Files for snippets ("local:snippets/node.yaml").
func (c *Client) Snippets(ctx context.Context, host, datastore string) (map[string]int64, error) {
	return c.content(ctx, host, datastore, "snippets")
}

func (c *Client) content(ctx context.Context, host, datastore, kind string) (map[string]int64, error) {
	var content []proxmox.StorageContent

	path := fmt.Sprintf("/nodes/%s/storage/%s/content?content=%s", host, datastore, kind)
	if err := c.get(ctx, path, &content); err != nil {
		return nil, err
	}

	files := map[string]int64{}
	for _, f := range content {
		files[f.Volid] = int64(f.Size)
	}

	return files, nil
}

// DiskImage is a disk on a datastore.
type DiskImage struct {
	// Volume is what Proxmox VE calls it: "local-lvm:vm-401-disk-0".
	Volume string `json:"volid"`
	// VMID is the one in its name, whether or not there is such a VM.
	VMID int `json:"vmid"`
}

// DiskImages returns the disks on a datastore of a host, as far as the credentials may see them.
func (c *Client) DiskImages(ctx context.Context, host, datastore string) ([]DiskImage, error) {
	var images []DiskImage

	err := c.get(ctx, fmt.Sprintf("/nodes/%s/storage/%s/content?content=images", host, datastore), &images)

	return images, err
}

// URLSize asks a host what a URL offers: the size in bytes, 0 when the server does not say. It is an error when the
// host cannot get it.
func (c *Client) URLSize(ctx context.Context, host, address string) (int64, error) {
	var reply struct {
		Size int64 `json:"size"`
	}

	err := c.get(ctx, fmt.Sprintf("/nodes/%s/query-url-metadata", host)+query(url.Values{"url": {address}}), &reply)

	return reply.Size, err
}

// Download is a file that a host downloads to its ISO files.
type Download struct {
	URL string
	// Name of the file on the datastore.
	Name string
	// SHA256 of what the URL holds, in hexadecimal digits; empty when it is not known.
	SHA256 string
	// Compression of what the URL holds, which the host unpacks: "gz", "lzo" or "zst"; empty when it has none.
	Compression string
}

// Download has a host download a file to a datastore, and returns when it is there.
func (c *Client) Download(ctx context.Context, host, datastore string, file Download) error {
	body := map[string]string{"content": "iso", "url": file.URL, "filename": file.Name}

	if file.SHA256 != "" {
		body["checksum"], body["checksum-algorithm"] = file.SHA256, "sha256"
	}

	if file.Compression != "" {
		body["compression"] = file.Compression
	}

	return c.task(ctx, host, "POST", fmt.Sprintf("/nodes/%s/storage/%s/download-url", host, datastore), body)
}

// DeleteFile deletes a file ("local:iso/talos.iso") from a datastore of a host, and returns when it is gone.
func (c *Client) DeleteFile(ctx context.Context, host, volume string) error {
	datastore, _, _ := strings.Cut(volume, ":")

	return c.task(ctx, host, "DELETE", fmt.Sprintf("/nodes/%s/storage/%s/content/%s", host, datastore, volume), nil)
}

// AwaitDeletions waits for the end of the deletions of files that run on a datastore of a host, as far as the
// credentials see them. The provider does not wait for its own. Those of disks and backups are other tasks: they name
// the VM (pve-storage: API2/Storage/Content.pm).
func (c *Client) AwaitDeletions(ctx context.Context, host, datastore string) error {
	var tasks []struct {
		UPID   proxmox.UPID `json:"upid"`
		ID     string       `json:"id"`
		Status string       `json:"status"`
	}

	path := fmt.Sprintf("/nodes/%s/tasks?source=active&typefilter=imgdel", host)
	if err := c.get(ctx, path, &tasks); err != nil {
		return err
	}

	for _, t := range tasks {
		if t.ID != datastore || t.Status != "RUNNING" {
			continue
		}

		if err := c.awaitEnd(ctx, host, "a deletion", proxmox.NewTask(t.UPID, c.api())); err != nil {
			return err
		}
	}

	return nil
}
