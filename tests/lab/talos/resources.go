package talos

import (
	"context"
	"sync"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"github.com/cosi-project/runtime/pkg/state/registry"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/cri"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/files"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/kubeaccess"
	"github.com/siderolabs/talos/pkg/machinery/resources/kubespan"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/perf"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	"github.com/siderolabs/talos/pkg/machinery/resources/siderolink"
	"github.com/siderolabs/talos/pkg/machinery/resources/time"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
)

// namespaces of Talos (Talos: runtime/v1alpha2/v1alpha2_state.go).
var resourceNamespaces = []string{
	v1alpha1.NamespaceName, cluster.NamespaceName, cluster.RawNamespaceName, configres.NamespaceName, etcd.NamespaceName,
	files.NamespaceName, hardware.NamespaceName, k8s.NamespaceName, k8s.ControlPlaneNamespaceName, kubespan.NamespaceName,
	network.NamespaceName, network.ConfigNamespaceName, cri.NamespaceName, secrets.NamespaceName, perf.NamespaceName,
}

// resourceTypes are the types that a node's API knows; of most there is never a resource, as on a node that does not
// use them.
var resourceTypes = []meta.ResourceWithRD{
	&block.Device{}, &block.DiscoveredVolume{}, &block.Disk{}, &block.MountStatus{}, &block.SwapStatus{}, &block.Symlink{},
	&block.SystemDisk{}, &block.UserDiskConfigStatus{}, &block.VolumeConfig{}, &block.VolumeMountRequest{},
	&block.VolumeMountStatus{},
	&block.VolumeStatus{}, &block.ZswapStatus{},
	&cluster.Affiliate{}, &cluster.Config{}, &cluster.Identity{}, &cluster.Info{}, &cluster.Member{},
	&configres.MachineConfig{}, &configres.MachineType{},
	&cri.ImageCacheConfig{}, &cri.RegistriesConfig{}, &cri.SeccompProfile{},
	&etcd.Config{}, &etcd.Member{}, &etcd.PKIStatus{}, &etcd.Spec{},
	&files.EtcFileSpec{}, &files.EtcFileStatus{},
	&hardware.MemoryModule{}, &hardware.PCIDevice{}, &hardware.PCIDriverRebindConfig{}, &hardware.PCIDriverRebindStatus{},
	&hardware.PCRStatus{}, &hardware.Processor{}, &hardware.SystemInformation{},
	&k8s.APIServerConfig{}, &k8s.AdmissionControlConfig{}, &k8s.AuditPolicyConfig{}, &k8s.AuthorizationConfig{},
	&k8s.BootstrapManifestsConfig{}, &k8s.ConfigStatus{}, &k8s.ControllerManagerConfig{}, &k8s.Endpoint{},
	&k8s.ExtraManifestsConfig{},
	&k8s.KubePrismConfig{}, &k8s.KubePrismEndpoints{}, &k8s.KubePrismStatuses{}, &k8s.KubeletConfig{},
	&k8s.KubeletLifecycle{},
	&k8s.KubeletSpec{}, &k8s.Manifest{}, &k8s.ManifestStatus{}, &k8s.NodeAnnotationSpec{}, &k8s.NodeCordonedSpec{},
	&k8s.NodeIP{},
	&k8s.NodeIPConfig{}, &k8s.NodeLabelSpec{}, &k8s.NodeStatus{}, &k8s.NodeTaintSpec{}, &k8s.Nodename{},
	&k8s.SchedulerConfig{},
	&k8s.SecretsStatus{}, &k8s.StaticPod{}, &k8s.StaticPodServerStatus{}, &k8s.StaticPodStatus{},
	&kubeaccess.Config{},
	&kubespan.Config{}, &kubespan.Endpoint{}, &kubespan.Identity{}, &kubespan.PeerSpec{}, &kubespan.PeerStatus{},
	&network.AddressSpec{}, &network.AddressStatus{}, &network.DNSResolveCache{}, &network.DNSUpstream{},
	&network.DeviceConfigSpec{},
	&network.EthernetSpec{}, &network.EthernetStatus{}, &network.HardwareAddr{}, &network.HostDNSConfig{},
	&network.HostnameSpec{},
	&network.HostnameStatus{}, &network.LinkAliasSpec{}, &network.LinkRefresh{}, &network.LinkSpec{},
	&network.LinkStatus{},
	&network.NfTablesChain{}, &network.NodeAddress{}, &network.NodeAddressFilter{}, &network.NodeAddressSortAlgorithm{},
	&network.OperatorSpec{}, &network.PlatformConfig{}, &network.ProbeSpec{}, &network.ProbeStatus{},
	&network.ResolverSpec{},
	&network.ResolverStatus{}, &network.RouteSpec{}, &network.RouteStatus{}, &network.Status{}, &network.TimeServerSpec{},
	&network.TimeServerStatus{},
	&perf.CPU{}, &perf.Memory{},
	&runtime.BootedEntry{}, &runtime.DevicesStatus{}, &runtime.Diagnostic{}, &runtime.EventSinkConfig{},
	&runtime.ExtensionServiceConfig{},
	&runtime.ExtensionServiceConfigStatus{}, &runtime.ExtensionStatus{}, &runtime.KernelCmdline{},
	&runtime.KernelModuleSpec{},
	&runtime.KernelParamDefaultSpec{}, &runtime.KernelParamSpec{}, &runtime.KernelParamStatus{}, &runtime.KmsgLogConfig{},
	&runtime.LoadedKernelModule{}, &runtime.MachineResetSignal{}, &runtime.MachineStatus{},
	&runtime.MaintenanceServiceConfig{},
	&runtime.MaintenanceServiceRequest{}, &runtime.MetaKey{}, &runtime.MetaLoaded{}, &runtime.MountStatus{},
	&runtime.OOMAction{},
	&runtime.PlatformMetadata{}, &runtime.SBOMItem{}, &runtime.SecurityState{}, &runtime.UniqueMachineToken{},
	&runtime.Version{},
	&runtime.WatchdogTimerConfig{}, &runtime.WatchdogTimerStatus{},
	&secrets.API{}, &secrets.CertSAN{}, &secrets.EncryptionSalt{}, &secrets.Etcd{}, &secrets.EtcdRoot{},
	&secrets.Kubelet{},
	&secrets.Kubernetes{}, &secrets.KubernetesDynamicCerts{}, &secrets.KubernetesRoot{}, &secrets.MaintenanceRoot{},
	&secrets.OSRoot{}, &secrets.Trustd{},
	&siderolink.Config{}, &siderolink.Status{}, &siderolink.Tunnel{},
	&time.AdjtimeStatus{}, &time.Status{},
	&v1alpha1.AcquireConfigSpec{}, &v1alpha1.AcquireConfigStatus{}, &v1alpha1.Service{},
}

// definitions are the types as the store wants to know them. They are made once: it takes longer than a boot should.
var definitions = sync.OnceValue(func() []*meta.ResourceDefinition {
	var out []*meta.ResourceDefinition

	for _, r := range append([]meta.ResourceWithRD{&meta.ResourceDefinition{}, &meta.Namespace{}}, resourceTypes...) {
		rd, err := meta.NewResourceDefinition(r.ResourceDefinition())
		must(err)

		out = append(out, rd)
	}

	return out
})

// newState returns an empty store that knows Talos' resource types.
func newState() state.State {
	ctx := context.Background()
	st := state.WrapCore(namespaced.NewState(inmem.Build))
	ns := registry.NewNamespaceRegistry(st)

	must(ns.RegisterDefault(ctx))

	for _, name := range resourceNamespaces {
		must(ns.Register(ctx, name, name))
	}

	for _, rd := range definitions() {
		must(st.Create(ctx, rd.DeepCopy(), state.WithCreateOwner(meta.Owner)))
	}

	return st
}

// must is for what cannot fail on a store in memory with one writer.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// put stores a resource, as a new one or replacing the one that is there.
func (n *node) put(r resource.Resource) {
	ctx := context.Background()

	old, err := n.state.Get(ctx, r.Metadata())

	switch {
	case state.IsNotFoundError(err):
		must(n.state.Create(ctx, r))
	case err == nil:
		r.Metadata().SetVersion(old.Metadata().Version())
		must(n.state.Update(ctx, r))
	default:
		must(err)
	}
}

// drop removes a resource if it is there.
func (n *node) drop(r resource.Pointer) {
	if err := n.state.Destroy(context.Background(), r); err != nil && !state.IsNotFoundError(err) {
		panic(err) // nothing has finalizers
	}
}
