package world

import (
	"slices"
	"strings"
)

// Roles are those that every Proxmox VE of a version has, with their privileges (pve-access-control: create_roles).
func (v Version) Roles() map[string][]string {
	admin, user, audit := "Allocate Clone Migrate Monitor Snapshot Snapshot.Rollback", "", ""
	if v.Major() > 8 {
		admin = "Allocate Clone GuestAgent.Unrestricted Migrate Replicate Snapshot Snapshot.Rollback"
		user, audit = " GuestAgent.FileRead GuestAgent.FileSystemMgmt GuestAgent.FileWrite", " GuestAgent.Audit"
	}

	configure := privileges("VM", "Config.CPU Config.Disk Config.HWType Config.Memory Config.Network Config.Options")
	vmAudit := privileges("VM", "Audit"+audit)
	vmUser := slices.Concat(vmAudit, privileges("VM", "Backup Config.CDROM Config.Cloudinit Console PowerMgmt"+user))
	vmAdmin := slices.Concat(vmUser, configure, privileges("VM", admin))
	sysAdmin := privileges("Sys", "Audit Console Syslog")
	users := []string{"Group.Allocate", "Realm.AllocateUser", "User.Modify"}

	all := map[string][]string{
		"NoAccess":          {},
		"PVEVMAdmin":        vmAdmin,
		"PVEVMUser":         vmUser,
		"PVETemplateUser":   privileges("VM", "Audit Clone"),
		"PVEDatastoreUser":  privileges("Datastore", "AllocateSpace Audit"),
		"PVEDatastoreAdmin": privileges("Datastore", "Allocate AllocateSpace AllocateTemplate Audit"),
		"PVEPoolUser":       privileges("Pool", "Audit"), "PVEPoolAdmin": privileges("Pool", "Allocate Audit"),
		"PVESDNUser": privileges("SDN", "Audit Use"), "PVESDNAdmin": privileges("SDN", "Allocate Audit Use"),
		"PVEMappingUser": privileges("Mapping", "Audit Use"), "PVEMappingAdmin": privileges("Mapping", "Audit Modify Use"),
		"PVESysAdmin": sysAdmin, "PVEUserAdmin": users,
		"PVEAuditor": slices.Concat(vmAudit,
			[]string{"Datastore.Audit", "Mapping.Audit", "Pool.Audit", "SDN.Audit", "Sys.Audit"}),
	}

	all["PVEAdmin"] = slices.Concat(vmAdmin, sysAdmin, users, all["PVEDatastoreAdmin"], all["PVEPoolAdmin"],
		all["PVESDNAdmin"], all["PVEMappingUser"])
	all["Administrator"] = slices.Concat(all["PVEAdmin"], []string{
		"Mapping.Modify", "Permissions.Modify", "Realm.Allocate", "Sys.AccessNetwork", "Sys.Incoming", "Sys.Modify",
		"Sys.PowerMgmt",
	})

	for _, list := range all {
		slices.Sort(list)
	}

	return all
}

func privileges(kind, names string) []string {
	list := strings.Fields(names)
	for i := range list {
		list[i] = kind + "." + list[i]
	}

	return list
}
