package permissions

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/components/plan"
)

// Privilege is what the login to Proxmox VE must be allowed, and what for.
type Privilege struct {
	// Names are those of privileges of which one is enough. The first is what Proxmox VE calls it now.
	Names []string
	// Paths of which one is enough.
	Paths []string
	// For says what it is needed for.
	For string
	// AnyOf are privileges that do as well, all together.
	AnyOf []Privilege
	// Changes are the properties of a VM whose change needs it, by the names of the provider; anyChange for all. A restart
	// changes "started".
	Changes []string
	// Optional says that the cluster comes up without it, and less is seen when it does not.
	Optional bool
}

// What K3s nodes are read and written with.
var (
	ReadGuestFiles = Privilege{Names: []string{
		"VM.GuestAgent.FileRead", "VM.GuestAgent.Unrestricted", "VM.Monitor",
	}}
	WriteGuestFiles = Privilege{Names: []string{
		"VM.GuestAgent.FileWrite", "VM.GuestAgent.Unrestricted", "VM.Monitor",
	}}
)

// On are the names that a version of Proxmox VE knows; all of them for an unknown one, 0.
func (p Privilege) On(major int) []string {
	known := slices.DeleteFunc(slices.Clone(p.Names), func(name string) bool {
		return major != 0 && (name == "VM.Monitor" && major > 8 || strings.HasPrefix(name, "VM.GuestAgent.") && major < 9)
	})
	if len(known) == 0 {
		return p.Names
	}

	return known
}

// Role are the privileges of the smallest role with which a plan can be deployed, changed and destroyed on a version of
// Proxmox VE.
func Role(p *plan.Plan, major int) []string {
	const anyTemplate = 1

	var names []string

	for _, n := range p.Nodes() {
		template := 0
		if n.Template != "" {
			template = anyTemplate
		}

		for _, needed := range Needed(p, n, template) {
			names = append(names, needed.On(major)[0])
		}
	}

	slices.Sort(names)

	return slices.Compact(names)
}

// anyChange stands for whatever of a VM changes: the provider states the VM's name each time.
const anyChange = "*"

// HighAvailability stands for a change of the HA resource of a VM.
const HighAvailability = "ha"

// neededToChange are privileges on a VM that exists, by what of it changes.
var neededToChange = map[string][]string{
	"VM.Config.CDROM": {"cdrom"}, "VM.Config.Cloudinit": {"initialization"}, "VM.Config.CPU": {"cpu"},
	"VM.Config.Disk": {"disks"}, "VM.Config.Memory": {"memory"},
	"VM.Config.Network": {"networkDevices"},
	"VM.Config.HWType":  {"machine", "bios", "scsiHardware", "serialDevices", "hostpcis"},
	"VM.Config.Options": {anyChange}, "VM.Migrate": {"nodeName"}, "Datastore.AllocateSpace": {"disks"},
	"SDN.Use": {"networkDevices"}, "Mapping.Use": {"hostpcis"},
	"Pool.Allocate": {"poolId"}, "VM.PowerMgmt": {"started"},
	"Sys.Console": {HighAvailability},
}

// Needed are the privileges that Proxmox VE asks for when a node is made, changed and removed;
// stacks/docs/permissions.md has the calls that do. The VMID of its template is 0 when it is not known.
func Needed(p *plan.Plan, n plan.Node, template int) []Privilege {
	l := privileges{plan: p, node: n, vm: []string{"/vms/" + strconv.Itoa(n.VMID)}}
	if n.ResourcePool != "" {
		l.vm = append(l.vm, "/pool/"+n.ResourcePool)
	}

	l.machine(template)
	l.storage()
	l.network()
	l.guest()
	l.gpu()
	l.host()

	for i, needed := range l.all {
		l.all[i].Changes = neededToChange[needed.Names[0]]
	}

	if l.node.Startup != nil {
		i := slices.IndexFunc(l.all, func(needed Privilege) bool { return needed.Names[0] == "Sys.Modify" })
		l.all[i].Changes = []string{"startup"}
	}

	return l.all
}

// privileges are collected for one node.
type privileges struct {
	plan *plan.Plan
	node plan.Node
	// vm are the paths of its VM.
	vm  []string
	all []Privilege
}

func (l *privileges) need(name, path, why string) {
	l.all = append(l.all, Privilege{Names: strings.Split(name, "|"), Paths: []string{path}, For: why})
}

func (l *privileges) ofVM(why string, names ...string) {
	for _, name := range names {
		l.all = append(l.all, Privilege{Names: strings.Split(name, "|"), Paths: l.vm, For: why})
	}
}

func (l *privileges) machine(template int) {
	l.ofVM("to see VMs", "VM.Audit")
	l.ofVM("to make and to remove VMs", "VM.Allocate")
	l.ofVM("to configure VMs", "VM.Config.CDROM", "VM.Config.CPU", "VM.Config.Disk", "VM.Config.HWType",
		"VM.Config.Memory", "VM.Config.Network", "VM.Config.Options")

	if l.node.CloudInit != "" {
		l.ofVM("to give VMs a cloud-init drive", "VM.Config.Cloudinit")
		// A VM that is not a clone is created with it, for which nothing is asked. Only later changes need it.
		l.all[len(l.all)-1].Optional = template == 0
	}

	l.ofVM("to start and to stop VMs", "VM.PowerMgmt")

	if template != 0 {
		l.need("VM.Clone", "/vms/"+strconv.Itoa(template), "to clone the template")
	}

	if l.plan.Rebalance {
		l.ofVM("to migrate VMs", "VM.Migrate")
	}
}

func (l *privileges) storage() {
	for _, d := range l.node.Disks {
		l.need("Datastore.AllocateSpace", "/storage/"+d.Datastore, "to make disks")
		l.need("Datastore.Audit", "/storage/"+d.Datastore, "to see the size of disks")
	}

	image := l.plan.PoolOf(l.node).Image

	if store, _, ok := strings.Cut(image.Volume, ":"); ok {
		l.need("Datastore.Audit|Datastore.AllocateSpace", "/storage/"+store, "to boot from a file")
	}

	if image.URL != "" || image.FactoryURL != "" {
		l.need("Datastore.AllocateTemplate", "/storage/"+l.plan.ImageStore, "to download images")
		l.need("Datastore.Audit", "/storage/"+l.plan.ImageStore, "to see images")

		l.need("Sys.AccessNetwork", "/nodes/"+l.node.Host, "to download images")
		l.all[len(l.all)-1].AnyOf = []Privilege{
			{Names: []string{"Sys.Audit"}, Paths: []string{"/"}}, {Names: []string{"Sys.Modify"}, Paths: []string{"/"}},
		}

		if !image.Keep {
			l.need("Datastore.Allocate", "/storage/"+l.plan.ImageStore, "to remove images (lifecycle.keepImages: false)")
		}
	}

	if l.plan.K3s != nil {
		l.need("Datastore.Allocate", "/storage/"+l.plan.K3s.Snippets, "to keep user data and remove them")
	}
}

func (l *privileges) network() {
	for _, nic := range l.node.NICs {
		path := "/sdn/zones/localnetwork/" + nic.Bridge
		if nic.VLAN != 0 {
			path += "/" + strconv.Itoa(nic.VLAN)
		}

		l.need("SDN.Use", path, "to use the bridge")
	}
}

func (l *privileges) guest() {
	if l.node.Agent {
		l.ofVM("to ask the guest agent for addresses", "VM.GuestAgent.Audit|VM.Monitor")
	}

	if l.plan.K3s != nil {
		l.ofVM("to read the logs of a node that does not join", strings.Join(ReadGuestFiles.Names, "|"))
		l.all[len(l.all)-1].Optional = true
		// The first server is told by it which etcd it has.
		l.ofVM("to begin a cluster of K3s and to upgrade it", strings.Join(WriteGuestFiles.Names, "|"))
		l.all[len(l.all)-1].Optional = l.node.Name != l.plan.ControlPlanes()[0].Name
	}
}

func (l *privileges) gpu() {
	if l.node.GPU == nil {
		return
	}

	l.need("Sys.Audit|Sys.Modify", "/", "to see the GPUs of hosts")

	// Root alone may pass a GPU by its address.
	if !l.node.GPU.Raw {
		l.need("Mapping.Modify", "/mapping/pci", "to make resource mappings of GPUs")
		l.need("Mapping.Use", "/mapping/pci/"+plan.MappingName(plan.ResourceName(l.plan.Cluster, l.node)),
			"to use resource mappings of GPUs")
	}
}

// host collects what is asked for on hosts, and on everything.
func (l *privileges) host() {
	l.need("Sys.Audit", "/nodes/"+l.node.Host, "to compare cores and memory with what hosts have")
	l.all[len(l.all)-1].Optional = true

	if l.node.Startup != nil {
		l.need("Sys.Modify", "/", fmt.Sprintf("to say when VMs start (pools.%s.startup)", l.node.Pool))
	}

	if l.node.HAGroup != "" || l.node.HA != nil {
		key := map[bool]string{false: "ha", true: "haGroup"}[l.node.HAGroup != ""]
		l.need("Sys.Console", "/", fmt.Sprintf("for high availability (pools.%s.%s)", l.node.Pool, key))
	}

	if l.node.HAGroup != "" || l.node.HA != nil || l.plan.Firewall || l.plan.Rebalance {
		l.need("Sys.Audit", "/", "to see what the datacenter has set for firewall and high availability")
	}

	if pool := l.node.ResourcePool; pool != "" {
		l.need("Pool.Allocate", "/pool/"+pool, "to put VMs into the resource pool")
		l.need("Pool.Audit", "/pool/"+pool, "to see what is in the resource pool")
	}
}
