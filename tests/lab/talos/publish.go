package talos

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	blockpb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/block"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/proto"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	timeres "github.com/siderolabs/talos/pkg/machinery/resources/time"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"

	"talos-proxmox/tests/lab/machine"
)

// publishInterval is how often the resources are compared with what they describe, besides whenever something says that
// it changed: what happens on other nodes does not.
const publishInterval = 500 * time.Millisecond

func (n *node) publishForever(ctx context.Context) {
	for {
		changed := n.kick.next()
		n.publish()
		n.published.notify()

		select {
		case <-changed:
		case <-time.After(publishInterval):
		case <-ctx.Done():
			return
		}
	}
}

// shown waits until what there is now has been published.
func (n *node) shown(ctx context.Context) {
	for range 2 { // the first may have begun before
		done := n.published.next()
		n.kick.notify()

		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

// board collects what is to be published, so that what is gone can be told from what is new.
type board struct {
	node *node
	// last is what was published, by id.
	last map[string]shown
	seen map[string]bool
}

// sweep takes away what has not been shown again.
func (b *board) sweep() {
	for id, old := range b.last {
		if !b.seen[id] {
			b.node.drop(old.pointer)
			delete(b.last, id)
		}
	}
}

// show publishes a resource unless it is there already with the same content.
func show[R interface {
	resource.Resource
	TypedSpec() *S
}, S any](b *board, r R, fill func(*S)) {
	fill(r.TypedSpec())

	id := r.Metadata().Type() + " " + r.Metadata().Namespace() + " " + r.Metadata().ID()
	b.seen[id] = true
	spec := *r.TypedSpec()

	if old, ok := b.last[id]; ok && reflect.DeepEqual(old.spec, spec) {
		return
	}

	b.last[id] = shown{pointer: *r.Metadata(), spec: spec}
	b.node.put(r)
}

// shown is what was published under an id.
type shown struct {
	pointer resource.Metadata
	spec    any
}

// publish brings the resources in line with the node. Only the publishing goroutine calls it.
func (n *node) publish() {
	b := &board{node: n, last: n.last, seen: map[string]bool{}}
	n.publishNetwork(b)
	n.publishServices(b)

	if n.config() != nil {
		n.fw.discovery.announce(n)
		n.publishCluster(b)
		n.publishExtensionConfigs(b)
		n.publishFirewall(b)
		n.publishKubernetes(b)
	}

	b.sweep()
	n.publishMembers()
}

// memberList is what was published of who is in the node's cluster, and when.
type memberList struct {
	last map[string]shown
	key  string
	said int
}

// publishMembers publishes who is in the node's cluster, when a node has reported something else: of many nodes it is far
// more than all the rest, for each of them.
func (n *node) publishMembers() {
	var (
		key string
		all []cluster.AffiliateSpec
	)

	said := n.fw.discovery.said() // before they are asked: what is said meanwhile is published the next time

	if cfg := n.config(); cfg != nil {
		if key = discoveryKey(cfg); key != "" && key == n.members.key && said == n.members.said {
			return
		}

		all = n.fw.discovery.of(n)
	}

	n.members.key, n.members.said = key, said
	b := &board{node: n, last: n.members.last, seen: map[string]bool{}}

	for _, a := range all {
		show(b, cluster.NewAffiliate(cluster.NamespaceName, a.NodeID), func(s *cluster.AffiliateSpec) { *s = a })
		show(b, cluster.NewMember(cluster.NamespaceName, a.Nodename), func(s *cluster.MemberSpec) {
			s.NodeID, s.Addresses, s.Hostname, s.MachineType = a.NodeID, a.Addresses, a.Hostname, a.MachineType
			s.OperatingSystem, s.ControlPlane = a.OperatingSystem, a.ControlPlane
		})
	}

	b.sweep()
}

// publishMachine publishes what does not change while the system runs.
func (n *node) publishMachine() {
	version := runtime.NewVersion()
	version.TypedSpec().Version = n.image.Version
	n.put(version)

	cmdline := runtime.NewKernelCmdline()
	cmdline.TypedSpec().Cmdline = strings.Join(n.image.cmdline(), " ")
	n.put(cmdline)

	info := hardware.NewSystemInformation(hardware.SystemInformationID)
	info.TypedSpec().Manufacturer, info.TypedSpec().ProductName, info.TypedSpec().UUID = "QEMU",
		"Standard PC (Q35 + ICH9, 2009)", n.hw.UUID
	n.put(info)

	platform := runtime.NewPlatformMetadataSpec(runtime.NamespaceName, runtime.PlatformMetadataID)
	platform.TypedSpec().Platform, platform.TypedSpec().InstanceID = n.image.Platform, n.hw.UUID
	platform.TypedSpec().Hostname = n.platformNetwork().hostname
	n.put(platform)

	security := runtime.NewSecurityStateSpec(runtime.NamespaceName)
	security.TypedSpec().SecureBoot = n.image.SecureBoot
	n.put(security)

	clock := timeres.NewStatus()
	clock.TypedSpec().Synced = true
	n.put(clock)

	n.publishExtensions()
	n.publishDisks()
}

func (n *node) publishExtensions() {
	show := func(i int, name, author string) {
		ext := runtime.NewExtensionStatus(runtime.NamespaceName, fmt.Sprint(i))
		ext.TypedSpec().Metadata.Name, ext.TypedSpec().Metadata.Author = name, author
		ext.TypedSpec().Metadata.Version = n.image.Version
		n.put(ext)
	}

	for i, e := range n.image.Extensions {
		author, name, _ := strings.Cut(e, "/")
		show(i, name, author)
	}

	if n.image.ID == "" {
		return
	}

	// the schematic's id is recorded as an extension of its own
	ext := runtime.NewExtensionStatus(runtime.NamespaceName, fmt.Sprint(len(n.image.Extensions)))
	ext.TypedSpec().Metadata.Name, ext.TypedSpec().Metadata.Version, ext.TypedSpec().Metadata.Author = "schematic",
		n.image.ID, "Image Factory"
	n.put(ext)
}

// The partitions that Talos makes besides EPHEMERAL (Talos: pkg/machinery/constants, partition sizes).
const otherPartitions = 2<<20 + 1<<20 + 2000<<20 + 1<<20 + 100<<20

func (n *node) publishDisks() {
	ephemeral := n.ephemeralDisk()

	for i, d := range n.hw.Disks {
		disk := block.NewDisk(block.NamespaceName, deviceName(n.hw.Disks, i))
		*disk.TypedSpec() = diskSpec(n.hw.Disks, i)
		n.put(disk)

		if n.disk != nil && d == ephemeral {
			n.publishVolume(constants.EphemeralPartitionLabel, n.ephemeralSize(), disk.TypedSpec().DevPath)
		}

		if d != n.disk {
			continue
		}

		system := block.NewSystemDisk(block.NamespaceName, block.SystemDiskID)
		system.TypedSpec().DiskID, system.TypedSpec().DevPath = disk.Metadata().ID(), disk.TypedSpec().DevPath
		n.put(system)

		for label, size := range map[string]uint64{
			constants.StatePartitionLabel: 100 << 20,
			constants.MetaPartitionLabel:  1 << 20,
		} {
			n.publishVolume(label, size, disk.TypedSpec().DevPath)
		}
	}
}

// tableSize is what the partition table takes from a disk.
const tableSize = 2 << 20

// ephemeralDisk is where EPHEMERAL is: on the first disk that fits the configuration's selector, or on the system's.
func (n *node) ephemeralDisk() *machine.Disk {
	cfg := n.storedConfig()
	if cfg == nil {
		return n.disk
	}

	volume, _ := cfg.Volumes().ByName(constants.EphemeralPartitionLabel)

	selector, chosen := volume.Provisioning().DiskSelector().Get()
	if !chosen {
		return n.disk
	}

	for i, d := range n.hw.Disks {
		status := block.NewDisk(block.NamespaceName, deviceName(n.hw.Disks, i))
		*status.TypedSpec() = diskSpec(n.hw.Disks, i)

		var spec blockpb.DiskSpec

		err := proto.ResourceSpecToProto(status, &spec)
		if err == nil {
			var fits bool
			if fits, err = selector.EvalBool(celenv.DiskLocator(), map[string]any{
				"disk": &spec, "system_disk": d == n.disk,
			}); fits {
				return d
			}
		}

		if err != nil {
			n.sys.log("error evaluating the disk selector of EPHEMERAL: %v", err)
		}
	}

	// Talos would wait for such a disk; the lab's nodes do not.
	n.fw.opts.Journal.Ignore("a disk selector of EPHEMERAL that fits no disk")

	return n.disk
}

// ephemeralSize is what is left for EPHEMERAL on its disk.
func (n *node) ephemeralSize() uint64 {
	if d := n.ephemeralDisk(); d != n.disk {
		return uint64(max(0, d.Size()-tableSize))
	}

	return uint64(max(0, n.disk.Size()-otherPartitions))
}

func (n *node) publishVolume(label string, size uint64, device string) {
	index := map[string]int{
		constants.MetaPartitionLabel: 4, constants.StatePartitionLabel: 5,
		constants.EphemeralPartitionLabel: 6,
	}[label]

	if label == constants.EphemeralPartitionLabel && n.ephemeralDisk() != n.disk {
		index = 1
	}

	v := block.NewVolumeStatus(block.NamespaceName, label)
	spec := v.TypedSpec()
	spec.Phase, spec.Type = block.VolumePhaseReady, block.VolumeTypePartition
	spec.ParentLocation, spec.Location, spec.MountLocation = device, fmt.Sprint(device, index), fmt.Sprint(device, index)
	spec.PartitionIndex = index
	spec.SetSize(size)

	if label != constants.MetaPartitionLabel {
		spec.Filesystem = block.FilesystemTypeXFS
	}

	if encryption := n.encryptionOf(label); encryption != nil {
		spec.EncryptionProvider = encryption.Provider()

		for _, key := range encryption.Keys() {
			kind := block.EncryptionKeyStatic

			switch {
			case key.NodeID() != nil:
				kind = block.EncryptionKeyNodeID
			case key.KMS() != nil:
				kind = block.EncryptionKeyKMS
			case key.TPM() != nil:
				kind = block.EncryptionKeyTPM
			}

			spec.ConfiguredEncryptionKeys = append(spec.ConfiguredEncryptionKeys, kind.String())
		}
	}

	n.put(v)
}

// encryptionOf is how the node has encrypted a volume; nil: it has not.
func (n *node) encryptionOf(label string) config.EncryptionConfig {
	cfg := n.storedConfig()
	if cfg == nil {
		return nil
	}

	volume, _ := cfg.Volumes().ByName(label)
	if encryption := volume.Encryption(); encryption != nil || cfg.Machine() == nil {
		return encryption
	}

	return cfg.Machine().SystemDiskEncryption().Get(label)
}

func (n *node) publishNetwork(b *board) {
	host, fqdn := n.fqdn()
	links, addresses := n.allLinks(), n.addresses()

	if host != "" {
		show(b, network.NewHostnameStatus(network.NamespaceName, network.HostnameID), func(s *network.HostnameStatusSpec) {
			s.Hostname = host
			_, s.Domainname, _ = strings.Cut(fqdn, ".")
		})
	}

	show(b, network.NewStatus(network.NamespaceName, network.StatusID), func(s *network.StatusSpec) {
		s.AddressReady, s.ConnectivityReady = len(addresses) > 0, len(addresses) > 0
		s.HostnameReady, s.EtcFilesReady = host != "", true
	})

	n.publishLoopback(b)
	n.publishResolvers(b)

	for i, l := range links {
		n.publishRoutes(b, i+2, l)

		show(b, network.NewLinkStatus(network.NamespaceName, l.name), func(s *network.LinkStatusSpec) {
			*s = l.status(i)
		})

		for _, a := range l.addresses {
			show(b, network.NewAddressStatus(network.NamespaceName, network.AddressID(l.name, a)),
				func(s *network.AddressStatusSpec) {
					s.Address, s.LinkName, s.LinkIndex, s.Scope = a, l.name, uint32(i+2), nethelpers.ScopeGlobal
					s.Family = family(a.Addr())
				})
		}
	}

	if len(addresses) > 0 {
		n.publishAddresses(b, addresses)
	}

	n.mu.Lock()
	meta := n.meta
	n.mu.Unlock()

	for k, v := range meta {
		show(b, runtime.NewMetaKey(runtime.NamespaceName, runtime.MetaKeyTagToID(k)),
			func(s *runtime.MetaKeySpec) { s.Value = v })
	}
}

func (n *node) publishAddresses(b *board, addresses []netip.Prefix) {
	for id, list := range map[string][]netip.Prefix{
		network.NodeAddressDefaultID: addresses[:1], network.NodeAddressCurrentID: addresses,
		network.NodeAddressRoutedID: addresses, network.NodeAddressAccumulativeID: addresses,
	} {
		show(b, network.NewNodeAddress(network.NamespaceName, id), func(s *network.NodeAddressSpec) { s.Addresses = list })
	}
}

func (n *node) publishServices(b *board) {
	list := n.services.list()
	n.services.note(list)

	for _, info := range list {
		if info.state != stateRunning {
			continue // there is no such resource
		}

		show(b, v1alpha1.NewService(info.id), func(s *v1alpha1.ServiceSpec) {
			s.Running, s.Healthy, s.Unknown = true, info.healthy(), !info.known
		})
	}

	n.publishStatus(b)
}

func (n *node) publishCluster(b *board) {
	cfg := n.config()

	show(b, cluster.NewIdentity(cluster.NamespaceName, cluster.LocalIdentity),
		func(s *cluster.IdentitySpec) { s.NodeID = n.nodeID() })
	show(b, cluster.NewInfo(), func(s *cluster.InfoSpec) {
		s.ClusterID, s.ClusterName = clusterOf(cfg).ID(), clusterOf(cfg).Name()
	})

	for name, value := range cfg.Machine().Sysctls() {
		show(b, runtime.NewKernelParamStatus(runtime.NamespaceName, "proc.sys."+name),
			func(s *runtime.KernelParamStatusSpec) { s.Current = value })
	}

	if m := n.membership(); m != nil && n.services.running("etcd") {
		show(b, etcd.NewMember(etcd.NamespaceName, etcd.LocalMemberID),
			func(s *etcd.MemberSpec) { s.MemberID = etcd.FormatMemberID(m.id) })
	}
}

func (n *node) publishKubernetes(b *board) {
	cfg := n.config()
	skip := cfg.K8sNodeConfig().SkipNodeRegistration()

	show(b, k8s.NewNodename(k8s.NamespaceName, k8s.NodenameID), func(s *k8s.NodenameSpec) {
		s.Nodename, s.SkipNodeRegistration = n.nodename(), skip
	})

	show(b, k8s.NewKubeletSpec(k8s.NamespaceName, k8s.KubeletID), func(s *k8s.KubeletSpecSpec) {
		*s = n.renderedKubelet()
		s.ExpectedNodename = n.nodename()
	})

	n.mu.Lock()
	in := n.kube.in
	serving := n.kube.serving
	n.mu.Unlock()

	if in != nil {
		n.publishNodeStatus(b, in)
	}

	n.publishStaticPods(b)

	if cfg.Machine().Type().IsControlPlane() {
		n.publishManifestsConfig(b)
	}

	if serving {
		n.publishManifests(b)
	}
}

func (n *node) publishNodeStatus(b *board, in clusterState) {
	obj := in.Node(n.nodename())
	if obj == nil {
		return
	}

	_, ready := in.NodeReady(n.nodename())

	show(b, k8s.NewNodeStatus(k8s.NamespaceName, n.nodename()), func(s *k8s.NodeStatusSpec) {
		s.Nodename, s.NodeReady, s.Unschedulable = n.nodename(), ready, obj.Spec.Unschedulable
		s.Labels, s.Annotations = obj.Labels, obj.Annotations

		for _, cidr := range obj.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(cidr); err == nil {
				s.PodCIDRs = append(s.PodCIDRs, p)
			}
		}
	})
}

func (n *node) publishStaticPods(b *board) {
	for _, p := range n.staticPods() {
		status := p.Status
		if status.Phase == "" {
			status = corev1.PodStatus{
				Phase:      corev1.PodRunning,
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			}
		}

		p.Status = corev1.PodStatus{}

		show(b, k8s.NewStaticPod(k8s.NamespaceName, p.Labels["component"]), func(s *k8s.StaticPodSpec) {
			if content, err := k8sruntime.DefaultUnstructuredConverter.ToUnstructured(&p); err == nil {
				s.Pod = content
			}
		})
		show(b, k8s.NewStaticPodStatus(k8s.NamespaceName, p.Namespace+"/"+p.Name), func(s *k8s.StaticPodStatusSpec) {
			if content, err := k8sruntime.DefaultUnstructuredConverter.ToUnstructured(&status); err == nil {
				s.PodStatus = content
			}
		})
	}
}
