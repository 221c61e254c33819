package spec

// SetDefaults fills in what an absent value means, where it means the same for every node.
func (s *Spec) SetDefaults() {
	setDefault(&s.Environment, EnvironmentLab)
	setDefault(&s.Proxmox.Storage.Disks, "local-lvm")
	setDefault(&s.Proxmox.Storage.Images, "local")
	setDefault(&s.Cluster.Distribution, DistributionTalos)
	setDefault(&s.Cluster.Bootstrap, BootstrapPulumi)
	setDefault(&s.Cluster.Endpoint.Mode, EndpointFirstControlPlane)
	setDefault(&s.Cluster.CNI.Name, CNIFlannel)
	setDefault(&s.Cluster.CNI.KubeProxy, new(true))
	setDefault(&s.Cluster.Discovery, DiscoveryService)
	setDefault(&s.Network.Bridge, "vmbr0")
	setDefault(&s.Placement.Strategy, StrategySpread)
	setDefault(&s.Firewall.Enabled, new(s.Environment == EnvironmentProduction))
	setDefault(&s.Lifecycle.ReadyTimeout, "10m")
	setDefault(&s.Lifecycle.NodeTimeout, "10m")
	setDefault(&s.Lifecycle.AgentTimeout, "5m")
	setDefault(&s.Lifecycle.KeepImages, new(true))
	setDefault(&s.Lifecycle.DrainTimeout, "5m")
	setDefault(&s.Lifecycle.TaskTimeout, "30m")
	setDefault(&s.Lifecycle.SettleTimeout, "10s")
	setDefault(&s.Lifecycle.Backup.Enabled, new(true))
	setDefault(&s.Lifecycle.Backup.Dir, "./etcd-backups")
	setDefault(&s.Lifecycle.Backup.Keep, 10)
	setDefault(&s.Lifecycle.Backup.Timeout, "15m")
	setDefault(&s.Lifecycle.Upgrade.MaxUnavailable, 1)
	setDefault(&s.Lifecycle.Upgrade.Timeout, "15m")
	setDefault(&s.Lifecycle.Apply, ApplyAuto)

	if s.Cluster.Distribution == DistributionK3s {
		s.setK3sDefaults()
	}

	setDefault(&s.Image.Source, SourceFactory)

	if s.Image.Source == SourceFactory {
		setDefault(&s.Image.Platform, PlatformNoCloud)
	}

	setDefault(&s.Image.Platform, PlatformMetal)

	// A metal image that is the same for all nodes has no place for the address of one.
	if s.Image.Source != SourceFactory && s.Image.Platform == PlatformMetal {
		setDefault(&s.Network.Addressing, AddressingReserved)
	}

	setDefault(&s.Network.Addressing, AddressingStatic)
}

// setK3sDefaults fills in what an absent value means with kind k3s.
func (s *Spec) setK3sDefaults() {
	setDefault(&s.Image.Source, SourceTemplate)
	setDefault(&s.Proxmox.Storage.Snippets, "local")

	// Ubuntu reads the cloud-init drive as Talos' nocloud does.
	s.Image.Platform = PlatformNoCloud

	k := K3s{}
	if s.K3s != nil {
		k = *s.K3s
	}

	setDefault(&k.User, "ubuntu")
	setDefault(&k.UpgradePackages, new(true))
	setDefault(&k.StartTimeout, "10m")
	s.K3s = &k
}

// DefaultVM is the shape of a VM that nothing is said about (the defaults of the VM module that this program replaces;
// what document and provider leave open is the provider's default). Absent is what depends on the source, the role or
// the environment.
func DefaultVM(kind Distribution) VMSpec {
	return VMSpec{
		Cores: new(2), CPUType: new("host"), NUMA: new(false), MemoryMiB: new(4096), Ballooning: new(false), DiskGiB: new(40),
		Disk: DefaultDisk(), TPM: new(false), Serial: new(kind == DistributionK3s), OnBoot: new(true),
	}
}

// DefaultDisk are the options of a disk of which nothing is set.
func DefaultDisk() DiskOptions {
	return DiskOptions{
		Cache: new("none"), AIO: new("io_uring"), Discard: new(true), SSD: new(false), IOThread: new(false),
		Backup: new(true), Replicate: new(true),
	}
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
