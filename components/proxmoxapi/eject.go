package proxmoxapi

import (
	"context"
	"strings"
)

// Eject takes the ISO file in a CD-ROM drive out of it. The drive stays, and a running VM notices at once. It does
// nothing when the drive is empty, is the VM's cloud-init drive, which Proxmox VE would delete, or is a hard disk.
func (c *Client) Eject(ctx context.Context, vm VM, drive string) error {
	var config map[string]any
	if err := c.get(ctx, qemu(vm)+"/config", &config); err != nil {
		return err
	}

	const empty = "none,media=cdrom"
	held := textOr(config[drive], empty)
	if volume, _, _ := strings.Cut(held, ","); held == empty || cloudInitDrive.MatchString(volume) ||
		!strings.Contains(held, "media=cdrom") {
		return nil
	}

	path := qemu(vm) + "/config"

	return c.untilAdmitted(ctx, "PUT "+path, c.sameVM(vm), func() error {
		return c.request(ctx, "PUT", path, map[string]string{drive: empty}, nil)
	})
}
