package world

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// PCIDevice is one function of a device on a host's PCI bus, as the host's kernel shows it.
type PCIDevice struct {
	// BDF is domain, bus, device and function: "0000:01:00.0".
	BDF string
	// Class is "0x030000" for a graphics card.
	Class string
	// Vendor and Device are the ids, "0x10de" and "0x2204".
	Vendor, Device string
	// SubsystemVendor and SubsystemDevice are those of the card; empty where there are none.
	SubsystemVendor, SubsystemDevice string
	// The names are those of the database of PCI ids; empty where it has none.
	VendorName, DeviceName                   string
	SubsystemVendorName, SubsystemDeviceName string
	// IOMMUGroup is the group that the device can only be passed through with. It counts for nothing on a host without
	// IOMMU.
	IOMMUGroup int
	// MDev devices can be divided into mediated ones.
	MDev bool
}

// GPU is a graphics card as hosts have them: the card itself, function 0 of the given slot ("0000:01:00"), and its
// sound, function 1, in one IOMMU group.
func GPU(slot string, group int) []PCIDevice {
	card := PCIDevice{
		BDF: slot + ".0", Class: "0x030000", Vendor: "0x10de", Device: "0x2204", SubsystemVendor: "0x10de",
		SubsystemDevice: "0x147d",
		VendorName:      "NVIDIA Corporation", DeviceName: "GA102 [GeForce RTX 3090]",
		SubsystemVendorName: "NVIDIA Corporation", IOMMUGroup: group,
	}

	sound := card
	sound.BDF, sound.Class, sound.Device, sound.DeviceName = slot+".1", "0x040300", "0x1aef",
		"GA102 High Definition Audio Controller"

	return []PCIDevice{card, sound}
}

var (
	fullBDF  = regexp.MustCompile(`^[a-f0-9]{4,}:[a-f0-9]{2}:[a-f0-9]{2}\.[a-f0-9]$`)
	pciID    = regexp.MustCompile(`^0x[a-f0-9]{4}$`)
	pciClass = regexp.MustCompile(`^0x[a-f0-9]{6}$`)
)

// verifyPCI refuses an inventory that no host can have.
func verifyPCI(host string, devices []PCIDevice) error {
	seen := map[string]bool{}

	for _, d := range devices {
		switch {
		case !fullBDF.MatchString(d.BDF):
			return fmt.Errorf("host %q: PCI device %q: the address is written as 0000:01:00.0", host, d.BDF)
		case seen[d.BDF]:
			return fmt.Errorf("host %q: PCI device %q is there twice", host, d.BDF)
		case !pciClass.MatchString(d.Class) || !pciID.MatchString(d.Vendor) || !pciID.MatchString(d.Device):
			return fmt.Errorf("host %q: PCI device %q: class, vendor and device are written as 0x030000, 0x10de, 0x2204", host,
				d.BDF)
		case (d.SubsystemVendor == "") != (d.SubsystemDevice == ""):
			return fmt.Errorf("host %q: PCI device %q: a subsystem has a vendor and a device", host, d.BDF)
		}

		seen[d.BDF] = true
	}

	return nil
}

// ids are vendor and device as mappings have them: "10de:2204".
func (d PCIDevice) ids() string { return plainID(d.Vendor) + ":" + plainID(d.Device) }

// subsystem is the same of the card, empty where there is none.
func (d PCIDevice) subsystem() string {
	if d.SubsystemVendor == "" {
		return ""
	}

	return plainID(d.SubsystemVendor) + ":" + plainID(d.SubsystemDevice)
}

func plainID(id string) string { return strings.TrimPrefix(id, "0x") }

// lspci are the functions that an address means: "0000:01:00.0" is one, "0000:01:00" all of a device; the domain 0000
// may be left out.
func (h *Host) lspci(address string) []PCIDevice {
	var list []PCIDevice

	for _, d := range h.PCI {
		if strings.HasPrefix(d.BDF, address) || strings.HasPrefix(d.BDF, "0000:"+address) {
			list = append(list, d)
		}
	}

	slices.SortFunc(list, func(a, b PCIDevice) int { return strings.Compare(a.BDF, b.BDF) })

	return list
}

// PCIDevices lists a host's devices by address, without those of the classes given ("05", "0604"), and tells whether
// the host has an IOMMU.
func (w *World) PCIDevices(host string, without []string) ([]PCIDevice, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	h, err := w.host(host)
	if err != nil {
		return nil, false, err
	}

	list := slices.DeleteFunc(h.lspci(""), func(d PCIDevice) bool {
		return slices.ContainsFunc(without, func(class string) bool { return strings.HasPrefix(d.Class, "0x"+class) })
	})

	return list, !h.NoIOMMU, nil
}
