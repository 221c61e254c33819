package main

const (
	packageName = "talos-proxmox"
	// version of the package; it goes up with every change of the schema.
	version = "0.1.0"
)
