// Package about names the Pulumi package for programs in other languages: what its plugin serves, and what its
// schema is generated with.
package about

const (
	// Package is the package's name.
	Package = "talos-proxmox"
	// Version is the package's version; it goes up with every change of the schema.
	Version = "0.1.0"
	// ClusterType is the token of the component. It is part of every URN below it, so it never changes.
	ClusterType = Package + ":index:Cluster"
)
