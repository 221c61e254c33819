package pve

func hardwareRoutes() []route {
	return []route{
		{method: "GET", path: "/nodes/{node}/hardware", handle: hardwareIndex},
		{
			method: "GET", path: "/nodes/{node}/hardware/pci", needs: need("/", "Sys.Audit", "Sys.Modify"),
			params: parameters("pci-class-blacklist verbose:bool"), handle: pciDevices,
		},
	}
}

func hardwareIndex(*request) (any, error) {
	return []map[string]any{{"type": "pci"}, {"type": "usb"}}, nil
}

// hiddenClasses are memory controllers, bridges and processors.
const hiddenClasses = "05;06;0b"

func pciDevices(r *request) (any, error) {
	if !r.values.Has("pci-class-blacklist") {
		r.values.Set("pci-class-blacklist", hiddenClasses)
	}

	devices, iommu, err := r.world.PCIDevices(r.vars["node"], r.values.list("pci-class-blacklist"))
	if err != nil {
		return nil, err
	}

	verbose := r.values.flag("verbose")
	out := []map[string]any{}

	for _, d := range devices {
		entry := map[string]any{"id": d.BDF, "class": d.Class, "vendor": d.Vendor, "device": d.Device, "iommugroup": -1}

		if iommu {
			entry["iommugroup"] = d.IOMMUGroup
		}

		if d.MDev {
			entry["mdev"] = 1
		}

		if verbose == nil || *verbose {
			optional(entry, "vendor_name", d.VendorName)
			optional(entry, "device_name", d.DeviceName)
			optional(entry, "subsystem_vendor", d.SubsystemVendor)
			optional(entry, "subsystem_device", d.SubsystemDevice)
			optional(entry, "subsystem_vendor_name", d.SubsystemVendorName)
			optional(entry, "subsystem_device_name", d.SubsystemDeviceName)
		}

		out = append(out, entry)
	}

	return out, nil
}
