package world

import (
	"fmt"
	"slices"
	"strings"
)

// Version is a version of Proxmox VE. The lab answers as that one does.
type Version string

// The versions that the lab knows, oldest first. Worlds are of the last one unless they state another.
const (
	Version8 Version = "8.4.1"
	Version9 Version = "9.2.11"
)

// ParseVersion reads a version, of which the first numbers are enough: "8", "8.4", "9.2.11".
func ParseVersion(text string) (Version, error) {
	for _, v := range []Version{Version9, Version8} {
		if text == "" || text == string(v) || strings.HasPrefix(string(v), text+".") {
			return v, nil
		}
	}

	return "", fmt.Errorf("the lab is Proxmox VE %s or %s, not %q", Version8, Version9, text)
}

// Major is the first number.
func (v Version) Major() int { return int(v[0] - '0') }

// Release is the version without its last number.
func (v Version) Release() string { return string(v)[:strings.LastIndex(string(v), ".")] }

// RepoID is that of the version's pve-manager.
func (v Version) RepoID() string {
	return map[Version]string{Version8: "2a5fa54a8503f96d", Version9: "f6997e698c7933ea"}[v]
}

// Privileges are all that a version knows, as far as the lab asks for them (pve-access-control: $privgroups).
func (v Version) Privileges() []string {
	names := []string{
		"Datastore.Allocate", "Datastore.AllocateSpace", "Datastore.AllocateTemplate", "Datastore.Audit",
		"Group.Allocate", "Mapping.Audit", "Mapping.Modify", "Mapping.Use", "Permissions.Modify", "Pool.Allocate",
		"Pool.Audit", "Realm.Allocate", "Realm.AllocateUser", "SDN.Allocate", "SDN.Audit", "SDN.Use", "Sys.AccessNetwork",
		"Sys.Audit", "Sys.Console", "Sys.Incoming", "Sys.Modify", "Sys.PowerMgmt", "Sys.Syslog", "User.Modify",
		"VM.Allocate", "VM.Audit", "VM.Backup", "VM.Clone", "VM.Config.CDROM", "VM.Config.CPU", "VM.Config.Cloudinit",
		"VM.Config.Disk", "VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network", "VM.Config.Options", "VM.Console",
		"VM.Migrate", "VM.PowerMgmt", "VM.Snapshot", "VM.Snapshot.Rollback",
	}

	if v.Major() < 9 {
		names = append(names, "VM.Monitor")
	} else {
		names = append(names, "VM.GuestAgent.Audit", "VM.GuestAgent.FileRead", "VM.GuestAgent.FileSystemMgmt",
			"VM.GuestAgent.FileWrite", "VM.GuestAgent.Unrestricted", "VM.Replicate")
	}

	slices.Sort(names)

	return names
}
