package generate

import (
	"talos-proxmox/components/proxmoxapi"
)

// Options of Stack.
type Options struct {
	// Access is how Proxmox VE is reached.
	Access proxmoxapi.Access
	// Tag or VMIDs ("401-449,501") say which VMs are the cluster's.
	Tag, VMIDs string
	// Talosconfig is the file of an administrator.
	Talosconfig string
	// ControlPlane is the address of one, where the talosconfig has none.
	ControlPlane string
}

// Result is a stack file, and what there is to know about it.
type Result struct {
	// Cluster is its name.
	Cluster string
	// File is the text of the stack file.
	File []byte
	// Secrets are what the stack file lacks: values to be set with 'pulumi config set --secret'.
	Secrets []Secret
	// Notes are what was guessed, left out, or cannot be known.
	Notes []string
}

// Secret is a value of the configuration that may be secret.
type Secret struct {
	// Path of the key, as 'pulumi config set --path' takes it.
	Path string
	Text string
}
