package proxmoxapi

import (
	"context"
	"fmt"
	"strings"
)

// PCIDevice is one function of a device on a host's PCI bus.
type PCIDevice struct {
	// BDF is where it is, "0000:01:00.0".
	BDF string
	// ID and SubsystemID are vendor and device, "10de:2204"; SubsystemID is empty where there is none.
	ID, SubsystemID string
	// Class is the PCI class, "0x030000".
	Class string
	Name  string
	// IOMMUGroup is -1 when the host's IOMMU is off.
	IOMMUGroup int
}

// PCIDevices lists the devices of a host, bridges and memory controllers included.
func (c *Client) PCIDevices(ctx context.Context, host string) ([]PCIDevice, error) {
	var reply []struct {
		ID              string `json:"id"`
		Class           string `json:"class"`
		Vendor          string `json:"vendor"`
		Device          string `json:"device"`
		SubsystemVendor string `json:"subsystem_vendor"`
		SubsystemDevice string `json:"subsystem_device"`
		DeviceName      string `json:"device_name"`
		IOMMUGroup      int    `json:"iommugroup"`
	}

	// An empty list of classes to leave out: a device may share its group with any.
	if err := c.get(ctx, fmt.Sprintf("/nodes/%s/hardware/pci?pci-class-blacklist=", host), &reply); err != nil {
		return nil, err
	}

	var found []PCIDevice

	for _, d := range reply {
		device := PCIDevice{
			BDF: d.ID, ID: pair(d.Vendor, d.Device), Class: d.Class, Name: d.DeviceName,
			IOMMUGroup: d.IOMMUGroup,
		}
		if d.SubsystemVendor != "" && d.SubsystemDevice != "" {
			device.SubsystemID = pair(d.SubsystemVendor, d.SubsystemDevice)
		}

		found = append(found, device)
	}

	return found, nil
}

func pair(vendor, device string) string {
	return strings.TrimPrefix(vendor, "0x") + ":" + strings.TrimPrefix(device, "0x")
}
