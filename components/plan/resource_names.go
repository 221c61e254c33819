package plan

import (
	"strconv"
	"strings"
)

// ResourceName is the name of a node's resources: its place in the cluster, not what the machine is called.
func ResourceName(cluster string, n Node) string {
	return cluster + "-" + n.Pool + "-" + strconv.Itoa(n.Ordinal)
}

// MappingName is what the resource mapping of a GPU is called, for a node with resources of a name. Proxmox VE has it
// begin with a letter.
func MappingName(resource string) string {
	if strings.ContainsAny(resource[:1], "0123456789") {
		return "gpu-" + resource
	}

	return resource
}
