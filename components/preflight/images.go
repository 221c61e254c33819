package preflight

import (
	"context"
	"fmt"
	"strings"

	"talos-proxmox/components/proxmoxvm/vmimage"
)

// checkImages checks that the ISO file of each node that is yet to be made is on the node's host.
func (c *checker) checkImages(ctx context.Context) error {
	type store struct{ host, name string }

	var (
		usable = map[store]bool{} // absent: not asked
		files  = map[store]map[string]int64{}
	)

	for _, n := range c.Plan.Nodes() {
		image := c.Plan.PoolOf(n).Image
		if image.Volume == "" || !c.Absent[n.VMID] || !c.CanAsk(n.Host) {
			continue
		}

		path := image.Path + ".volume"

		name, _, _ := strings.Cut(image.Volume, ":")
		at := store{n.Host, name}

		if _, asked := usable[at]; !asked {
			stores, err := c.StoresOf(ctx, at.host)
			if err != nil {
				return err
			}

			if usable[at] = c.hosts.CheckDatastore(stores, at.host, at.name, "iso", path); usable[at] {
				if files[at], err = c.Proxmox.Files(ctx, at.host, at.name); err != nil {
					return err
				}
			}
		}

		if !usable[at] {
			continue
		}

		switch size, there := files[at][image.Volume]; {
		case !there:
			c.Problems.Add(path, "is not on host "+n.Host, image.Volume, "upload it there, or name one that is; case matters")
		case size < vmimage.SmallestImage:
			c.Problems.Add(path, fmt.Sprintf("has %d bytes on host %s: that is not an image", size, n.Host), image.Volume,
				"upload it again")
		}
	}

	return nil
}
