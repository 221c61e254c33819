package main

// proxmoxPrefix is what the names of the upstream provider's resources and data sources begin with.
const proxmoxPrefix = "proxmox_virtual_environment_"

// member is one token of the SDK: proxmoxve:<module>/<name>:<Name>.
type member struct{ module, name string }

// proxmoxResources has the SDK's token of every upstream resource. They are written out because they follow no rule: the
// SDK's names kept pace with several of its own conventions.
var proxmoxResources = map[string]member{
	"acl":                             {"index", "Acl"},
	"acme_account":                    {"index", "AcmeAccount"},
	"acme_dns_plugin":                 {"index", "AcmeDnsPlugin"},
	"apt_repository":                  {"Apt", "Repository"},
	"apt_standard_repository":         {"Apt/standard", "Repository"},
	"certificate":                     {"index", "Certifi"},
	"cluster_firewall":                {"Network", "Firewall"},
	"cluster_firewall_security_group": {"Network", "FirewallSecurityGroup"},
	"cluster_options":                 {"Cluster", "Options"},
	"container":                       {"CT", "Container"},
	"dns":                             {"index", "DNS"},
	"download_file":                   {"Download", "File"},
	"file":                            {"Storage", "File"},
	"firewall_alias":                  {"Network", "FirewallAlias"},
	"firewall_ipset":                  {"Network", "FirewallIPSet"},
	"firewall_options":                {"Network", "FirewallOptions"},
	"firewall_rules":                  {"Network", "FirewallRules"},
	"group":                           {"Permission", "Group"},
	"hagroup":                         {"HA", "HAGroup"},
	"hardware_mapping_pci":            {"Hardware/mapping", "Pci"},
	"hardware_mapping_usb":            {"Hardware/mapping", "Usb"},
	"haresource":                      {"HA", "HAResource"},
	"hosts":                           {"index", "Hosts"},
	"network_linux_bridge":            {"Network", "NetworkBridge"},
	"network_linux_vlan":              {"Network", "NetworkVlan"},
	"pool":                            {"Permission", "Pool"},
	"role":                            {"Permission", "Role"},
	"time":                            {"index", "Time"},
	"user":                            {"Permission", "User"},
	"user_token":                      {"User", "Token"},
	"vm":                              {"VM", "VirtualMachine"},
}

// proxmoxFunctions is the same for data sources.
var proxmoxFunctions = map[string]member{
	"acme_account":            {"Acme", "getAccount"},
	"acme_accounts":           {"Acme", "getAccounts"},
	"acme_plugin":             {"Acme", "getPlugin"},
	"acme_plugins":            {"Acme", "getPlugins"},
	"apt_repository":          {"Apt", "getRepository"},
	"apt_standard_repository": {"Apt/standard", "getRepository"},
	"datastores":              {"Storage", "getDatastores"},
	"dns":                     {"Network", "getDNS"},
	"group":                   {"Permission", "getGroup"},
	"groups":                  {"Permission", "getGroups"},
	"hagroup":                 {"HA", "getHAGroup"},
	"hagroups":                {"HA", "getHAGroups"},
	"hardware_mapping_pci":    {"Hardware/mapping", "getPci"},
	"hardware_mapping_usb":    {"Hardware/mapping", "getUsb"},
	"hardware_mappings":       {"Hardware", "getMappings"},
	"haresource":              {"HA", "getHAResource"},
	"haresources":             {"HA", "getHAResources"},
	"hosts":                   {"Network", "getHosts"},
	"node":                    {"index", "getNode"},
	"nodes":                   {"Cluster", "getNodes"},
	"pool":                    {"Permission", "getPool"},
	"pools":                   {"Permission", "getPools"},
	"role":                    {"Permission", "getRole"},
	"roles":                   {"Permission", "getRoles"},
	"time":                    {"Network", "getTime"},
	"user":                    {"Permission", "getUser"},
	"users":                   {"Permission", "getUsers"},
	"version":                 {"Network", "getVersion"},
	"vm":                      {"VM", "getVirtualMachine"},
	"vms":                     {"VM", "getVirtualMachines"},
}
