package rehearsal

import (
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/tests/lab"
	"talos-proxmox/tests/lab/ubuntu"
	"talos-proxmox/tests/lab/world"
)

// labOf is what the plan expects to find on Proxmox VE: all its hosts, each with the datastores, bridges and GPUs that
// its nodes use, the resource pools and the groups for high availability, the templates where they are cloned, and the
// ISO files that operators put there. Datastores that are shared are the same on all hosts.
func labOf(p *plan.Plan, shared []string) lab.Config {
	var (
		bridges, groups []string
		mtu             = map[string]int{}
		c               lab.Config
	)

	for _, n := range p.Nodes() {
		for _, nic := range n.NICs {
			bridges = append(bridges, nic.Bridge)

			if nic.MTU > 1500 {
				mtu[nic.Bridge] = max(mtu[nic.Bridge], nic.MTU)
			}
		}

		if n.ResourcePool != "" {
			c.Pools = append(c.Pools, n.ResourcePool)
		}

		if n.HAGroup != "" {
			groups = append(groups, n.HAGroup)
		}
	}

	c.Pools = unique(c.Pools)

	for _, name := range unique(groups) {
		g := lab.HAGroup{Name: name}
		for _, h := range p.Hosts {
			g.Nodes = append(g.Nodes, h.Name)
		}

		c.HAGroups = append(c.HAGroups, g)
	}

	bridges = unique(bridges)
	storages := storagesOf(p, shared)

	for _, h := range p.Hosts {
		host := lab.Host{Name: h.Name, VCPU: 64, MemoryMiB: 256 << 10, Bridges: bridges, MTU: mtu, Storages: storages}
		if h.Limited {
			host.VCPU, host.MemoryMiB = h.Capacity.VCPU, h.Capacity.MemoryMiB
		}

		for _, n := range p.Nodes() {
			if n.GPU != nil && n.Host == h.Name {
				slot, _, _ := strings.Cut(n.GPU.BDF, ".")
				host.PCI = append(host.PCI, world.GPU(slot, 10+len(host.PCI))...)
			}
		}

		c.Hosts = append(c.Hosts, host)
	}

	c.Templates = templatesOf(p)
	c.Files = filesOf(p)

	return c
}

func unique(names []string) []string {
	slices.Sort(names)

	return slices.Compact(names)
}

// storagesOf are the datastores of a host: those for files are directories, those for disks only are not.
func storagesOf(p *plan.Plan, shared []string) []lab.Storage {
	var disks, files []string

	for _, n := range p.Nodes() {
		for _, disk := range n.Disks {
			disks = append(disks, disk.Datastore)
		}
	}

	for _, pool := range p.Pools {
		store, _, file := strings.Cut(pool.Image.Volume, ":")

		switch {
		case file:
			files = append(files, store)
		case pool.Image.URL != "", pool.Image.FactoryURL != "":
			files = append(files, p.ImageStore)
		}
	}

	var (
		all      []lab.Storage
		snippets []string
	)

	if p.K3s != nil {
		snippets = []string{p.K3s.Snippets}
	}

	for _, name := range unique(slices.Concat(disks, files, snippets)) {
		s := lab.Storage{Name: name, Type: "zfspool", SizeGiB: 8192, Shared: slices.Contains(shared, name)}

		if slices.Contains(disks, name) {
			s.Content = append(s.Content, "images")
		}

		if slices.Contains(files, name) {
			s.Type, s.Content = "dir", append(s.Content, "iso", "vztmpl")
		}

		if slices.Contains(snippets, name) {
			s.Type, s.Content = "dir", append(s.Content, "snippets")
		}

		all = append(all, s)
	}

	return all
}

// filesOf are the ISO files that nodes boot and the program does not download.
func filesOf(p *plan.Plan) []lab.File {
	var all []lab.File

	for _, pool := range p.Pools {
		store, name, file := strings.Cut(pool.Image.Volume, ":iso/")
		if file && !slices.ContainsFunc(all, func(f lab.File) bool { return f.Storage == store && f.Name == name }) {
			all = append(all, lab.File{Storage: store, Name: name, Asset: isoOf(p, pool.Image)})
		}
	}

	return all
}

// templatesOf are the templates that nodes are cloned from, on each host that needs them.
func templatesOf(p *plan.Plan) []lab.Template {
	var all []lab.Template

	for _, pool := range p.Pools {
		for _, n := range pool.Nodes {
			if n.Template == "" {
				continue
			}

			made := templateOf(p, pool, n, 9000+len(all))
			same := func(t lab.Template) bool { return t.Host == made.Host && t.Name == made.Name }

			if i := slices.IndexFunc(all, same); i < 0 {
				all = append(all, made)
			} else {
				for key, value := range made.Conf {
					all[i].Conf[key] = value
				}
			}
		}
	}

	return all
}

// calledLike is the system that a template's name says it has; Ubuntu where it says nothing.
func calledLike(name string) *ubuntu.Image {
	if id, version, ok := strings.Cut(name, "-"); ok {
		return &ubuntu.Image{ID: id, Version: version}
	}

	return &ubuntu.Image{ID: "ubuntu", Version: "24.04"}
}

// templateOf is a prepared template: Talos on a disk, and nothing else. It is of the kind that its clones are to be.
func templateOf(p *plan.Plan, pool plan.PlannedPool, n plan.Node, id int) lab.Template {
	name := n.Template
	if given, err := strconv.Atoi(name); err == nil {
		id, name = given, "talos-"+p.Talos+"-base-"+name
	}

	t := lab.Template{
		Name: name, VMID: id, Host: n.Host, Storage: n.Disks[0].Datastore, DiskGiB: 10, Interface: n.Disks[0].Interface,
		Content: templateImage(p, pool.Image), Conf: map[string]string{},
	}

	if p.K3s != nil {
		t.Content, t.DiskGiB = calledLike(n.Template), 4
		t.CloudInit = "ide2"
	}

	firmware := n.Firmware
	if pool.Image.SecureBoot {
		firmware = "ovmf" // no other boots it
	}

	for key, value := range map[string]string{"machine": n.Machine, "bios": firmware, "scsihw": n.SCSIController} {
		if value != "" {
			t.Conf[key] = value
		}
	}

	return t
}
