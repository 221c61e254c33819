package talos

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/tests/lab/kube"
	"talos-proxmox/tests/lab/timeline"
)

// kubernetesState is how far the machine has come in Kubernetes.
type kubernetesState struct {
	joined, ready bool
	serving       bool // its API server
	problem       string
	unapplied     string              // why labels, annotations and taints are not as Talos wants them; empty: they are
	kubelet       string              // the image of the kubelet that runs, empty while none does
	rendered      k8s.KubeletSpecSpec // what Talos has it started with
	starts        int                 // of kubelets, and how often one has ended
	registered    bool                // that kubelet has registered the machine
	in            clusterState        // the cluster it joined; only to tell it when the machine is gone
	api           *timeline.Span      // when that cluster's API first answered
}

// nodename is the machine's name in Kubernetes.
func (n *node) nodename() string {
	host, fqdn := n.fqdn()
	if cfg := n.config(); cfg != nil && cfg.K8sNodeConfig().RegisterWithFQDN() {
		return fqdn
	}

	return host
}

// nodeIPs are the addresses that the kubelet reports (Talos: controllers/k8s/node_ip.go).
func (n *node) nodeIPs() []netip.Addr {
	valid := n.config().K8sNodeConfig().NodeIP().ValidSubnets()

	var out []netip.Addr

	for _, p := range n.ownAddresses() {
		if len(valid) == 0 || inSubnets(p.Addr(), valid) {
			out = append(out, p.Addr())
		}
	}

	// one address per family at most
	return slices.CompactFunc(out, func(a, b netip.Addr) bool { return a.Is4() == b.Is4() })
}

// inSubnets applies a list in which a leading "!" excludes.
func inSubnets(a netip.Addr, subnets []string) bool {
	included := false

	for _, s := range subnets {
		text, exclude := strings.CutPrefix(s, "!")

		p, err := netip.ParsePrefix(text)
		if err != nil || !p.Contains(a) {
			continue
		}

		if exclude {
			return false
		}

		included = true
	}

	return included
}

// apiServers are the addresses by which the machine reaches the API (Talos: controllers/secrets/kubelet.go): those that
// KubePrism balances, if it is on; otherwise a control plane asks its own, and a worker the cluster's endpoint.
func (n *node) apiServers() []string {
	cfg := clusterOf(n.config())
	endpoint, port := cfg.Endpoint().String(), cfg.LocalAPIServerPort()
	server := func(host string, port int) string { return "https://" + net.JoinHostPort(host, strconv.Itoa(port)) }

	var own []string

	if n.controlPlane() {
		n.mu.Lock()
		serving := n.kube.serving
		n.mu.Unlock()

		if serving {
			own = []string{server(n.address().String(), port)}
		}
	}

	switch {
	case n.kubePrism():
	case n.controlPlane():
		return own
	default:
		return []string{endpoint}
	}

	// Talos: controllers/k8s/kubeprism_endpoints.go. Its balancer leaves out what does not answer.
	out := append(own, endpoint)

	for _, m := range n.fw.discovery.of(n) {
		if m.ControlPlane == nil || m.NodeID == n.nodeID() {
			continue
		}

		for _, a := range m.Addresses {
			out = append(out, server(a.String(), m.ControlPlane.APIServerPort))
		}
	}

	return out
}

func (n *node) kubePrism() bool { return n.config().K8sKubePrismConfig() != nil }

// runKubelet joins the machine to its cluster and reports for it, again when the configuration changes what it reports.
func (n *node) runKubelet(ctx context.Context) {
	if n.config().K8sNodeConfig().SkipNodeRegistration() {
		return
	}

	reported := ""

	for {
		changed := n.kick.next()
		spec := n.kubeletSpec() // before the report: what changes meanwhile is reported again

		if fmt.Sprint(spec, n.networkReady()) != reported && n.services.running("kubelet") {
			if ready, ok := n.report(ctx); ok {
				reported = fmt.Sprint(spec, ready)

				continue
			}

			if !pause(ctx, retry) {
				return
			}

			continue
		}

		if n.unapplied() {
			n.applyNode(ctx, n.kubelet()) // Talos tries again for ever
		}

		select {
		case <-changed:
		case <-time.After(networkCheck): // a network plugin may come at any time
		case <-ctx.Done():
			return
		}
	}
}

// networkCheck is how often the container runtime looks for a network plugin.
const networkCheck = 500 * time.Millisecond

// kubeletSpec is what the kubelet reports, to compare.
func (n *node) kubeletSpec() string {
	cfg := n.config()
	spec := fmt.Sprint(n.kubernetesNode(), n.nodeSpec(), clusterOf(cfg).Endpoint(), n.kubePrism(), n.kubeletImage())
	spec += fmt.Sprintf("%p", n.servedCluster())

	n.mu.Lock()
	spec += fmt.Sprint(n.kube.starts) // a kubelet reports as soon as it is started
	n.mu.Unlock()

	if n.controlPlane() {
		spec += fmt.Sprint(n.staticPods())

		n.mu.Lock()
		spec += fmt.Sprint(n.kube.serving)
		n.mu.Unlock()
	}

	return spec
}

// servedCluster is what the cluster's API servers answer from; what they last did while none does. It is another one
// after etcd was recovered, and the machine has to report to it: a kubelet does so all the time.
func (n *node) servedCluster() clusterState {
	id := clusterOf(n.config()).ID()

	for _, other := range n.fw.nodes() {
		m, cfg := other.membership(), other.config()
		if m == nil || cfg == nil || clusterOf(cfg).ID() != id {
			continue
		}

		other.mu.Lock()
		serving := other.kube.serving
		other.mu.Unlock()

		if serving && m.cluster.answers(m.id) == nil {
			return m.cluster.kube
		}
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	return n.kube.in
}

// report brings the machine's Node in line and returns whether it was reported ready. It is not ok when the API could
// not be reached or refused.
func (n *node) report(ctx context.Context) (ready, ok bool) {
	k := n.kubelet()

	if err := k.Join(ctx); err != nil {
		n.setProblem(err.Error())

		return false, false
	}

	n.joined(k)
	n.applyNode(ctx, k)

	if !n.wait("kubelet", n.kubeletLatency(), n.apiSpan()) {
		return false, false
	}

	reason := ""

	if ready = n.networkReady(); !ready {
		reason = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network " +
			"plugin returns error: cni plugin not initialized"
	}

	n.mu.Lock()
	in := n.kube.in
	n.mu.Unlock()

	if in != nil {
		in.NodeReports(n.nodename())
	}

	if err := k.Report(ctx, ready, reason); err != nil {
		n.setProblem(err.Error())

		return false, false
	}

	n.mu.Lock()
	n.kube.ready, n.kube.problem = ready, reason
	n.mu.Unlock()
	n.kick.notify()
	n.fw.checkVersions(n)

	return ready, true
}

// kubeletLatency is imposed once: a Node that was Ready is not made to wait again for a changed label.
func (n *node) kubeletLatency() (d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.kube.ready {
		return 0
	}

	return n.fw.opts.Latencies.Kubelet
}

func (n *node) setProblem(problem string) {
	n.mu.Lock()
	was := n.kube.problem
	n.kube.problem = problem
	n.mu.Unlock()

	if was != problem {
		n.sys.log("kubelet: %s", problem)
	}
}

// joined notes that the machine is registered: its certificate goes to the disk.
func (n *node) joined(k *kube.Kubelet) {
	n.store(func(i *Installed) { i.kubelet = k.Certificate })

	c := n.fw.clusterOf(k)

	n.mu.Lock()
	n.kube.joined = true
	n.kube.registered = true
	n.kube.in, n.kube.api = nil, nil

	if c != nil {
		n.kube.in = c.kube
		_, n.kube.api, _ = c.spans()
	}
	n.mu.Unlock()
	n.kick.notify()
}

// clusterOf finds the cluster that a kubelet joined, by the identity of the Node it was given there.
func (f *Firmware) clusterOf(k *kube.Kubelet) *etcdCluster {
	for _, n := range f.nodes() {
		if m := n.membership(); m != nil && m.cluster.kube.HasNode(k.Node.Name, k.UID) {
			return m.cluster
		}
	}

	return nil
}

// apiSpan is when the API that the kubelet joined at first answered.
func (n *node) apiSpan() *timeline.Span {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.kube.api
}

// networkReady tells whether a network plugin has been installed on the machine.
func (n *node) networkReady() bool {
	n.mu.Lock()
	c := n.kube.in
	n.mu.Unlock()

	return c == nil || c.NetworkPlugin(n.nodename()) != ""
}

// kubelet is the kubelet that the present configuration describes.
func (n *node) kubelet() *kube.Kubelet {
	cfg := clusterOf(n.config())
	k := &kube.Kubelet{
		Dial: n.dial, Servers: n.apiServers(), CA: kubernetesCAs(cfg), Token: cfg.Token().ID() + "." + cfg.Token().Secret(),
		Node: n.kubernetesNode(), RegisterLabels: n.registerLabels(), Journal: n.fw.opts.Journal,
	}

	if n.kubePrism() {
		k.ServerName = "127.0.0.1" // where KubePrism listens
	}

	if i := n.installed(); i != nil {
		k.Certificate = i.kubelet
	}

	n.mu.Lock()
	k.Registered = n.kube.registered
	n.mu.Unlock()

	if n.controlPlane() {
		k.StaticPods = n.staticPods()
	}

	return k
}

// kubernetesNode is the Node object that the kubelet registers.
func (n *node) kubernetesNode() *corev1.Node {
	name := n.nodename()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name,
		Labels: map[string]string{
			corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux", corev1.LabelHostname: name,
			"beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
		},
	}}

	node.Spec.Taints = n.registerTaints()
	node.Status = n.kubernetesStatus()

	return node
}

// registerTaints are the taints that the kubelet gives a Node that is not there yet.
func (n *node) registerTaints() []corev1.Taint {
	var c struct {
		Taints []corev1.Taint `json:"registerWithTaints"`
	}

	text, err := json.Marshal(n.config().K8sKubeletConfig().ExtraConfig())
	if err == nil {
		err = json.Unmarshal(text, &c)
	}

	if err != nil {
		n.sys.log("kubelet: error unmarshalling extra kubelet configuration: %v", err)
	}

	return c.Taints
}

// registerLabels are the labels that the kubelet gives a Node that is not there yet.
func (n *node) registerLabels() map[string]string {
	labels := map[string]string{}

	for _, pair := range strings.Split(strings.Join(n.config().K8sKubeletConfig().ExtraArgs()["node-labels"], ","), ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			labels[key] = value
		}
	}

	return labels
}

// nodeSpec is what Talos wants of the Node of the machine.
func (n *node) nodeSpec() kube.NodeSpec {
	cfg := n.config()
	spec := kube.NodeSpec{
		Labels:      map[string]string{},
		Annotations: map[string]string{"networking.talos.dev/self-ips": strings.Join(addressTexts(n.nodeIPs()), ",")},
		Cordoned:    n.goingDown(),
	}

	maps.Copy(spec.Labels, cfg.RawV1Alpha1().MachineConfig.MachineNodeLabels)
	maps.Copy(spec.Annotations, cfg.RawV1Alpha1().MachineConfig.MachineNodeAnnotations)

	for _, e := range n.image.Extensions {
		spec.Labels["extensions.talos.dev/"+e[strings.LastIndex(e, "/")+1:]] = n.image.Version
	}

	for _, key := range slices.Sorted(maps.Keys(cfg.RawV1Alpha1().MachineConfig.MachineNodeTaints)) {
		value, effect, ok := strings.Cut(cfg.RawV1Alpha1().MachineConfig.MachineNodeTaints[key], ":")
		if !ok {
			value, effect = "", value
		}

		spec.Taints = append(spec.Taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}

	if cfg.Machine().Type().IsControlPlane() {
		spec.Labels[constants.LabelNodeRoleControlPlane] = ""

		if !clusterOf(cfg).ScheduleOnControlPlanes() {
			spec.Taints = append(spec.Taints,
				corev1.Taint{Key: constants.LabelNodeRoleControlPlane, Effect: corev1.TaintEffectNoSchedule})
		}
	}

	return spec
}

// applyNode brings labels, annotations and taints of the Node in line: on control planes with the admin's credentials, on
// workers with the kubelet's (Talos: controllers/k8s/node_apply.go, getK8sClient). What is refused keeps nothing else
// from going on.
func (n *node) applyNode(ctx context.Context, k *kube.Kubelet) {
	spec := n.nodeSpec()

	if n.controlPlane() {
		pair, err := adminCertificate(clusterOf(n.config()))
		if err != nil {
			n.sys.log("%v", err)

			return
		}

		spec.Admin = x509.NewCertificateAndKeyFromKeyPair(pair)
	}

	problem := ""
	if err := k.Apply(ctx, spec); err != nil {
		problem = err.Error()
	}

	n.mu.Lock()
	was := n.kube.unapplied
	n.kube.unapplied = problem
	n.mu.Unlock()

	if problem != "" && problem != was {
		n.sys.log(`controller failed {"controller": "k8s.NodeApplyController", "error": %q}`, problem)
	}
}

// unapplied tells whether labels, annotations and taints are not as Talos wants them.
func (n *node) unapplied() bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.kube.unapplied != ""
}

func addressTexts(addresses []netip.Addr) []string {
	out := make([]string, 0, len(addresses))
	for _, a := range addresses {
		out = append(out, a.String())
	}

	return out
}

func (n *node) kubernetesStatus() corev1.NodeStatus {
	version := imageTag(n.kubeletImage())
	capacity, allocatable := n.capacity().Lists()
	st := corev1.NodeStatus{
		Capacity: capacity, Allocatable: allocatable,
		NodeInfo: corev1.NodeSystemInfo{
			MachineID: strings.ReplaceAll(n.hw.UUID, "-", ""), SystemUUID: n.hw.UUID, BootID: n.bootID,
			KernelVersion: "6.18.8-talos", OSImage: fmt.Sprintf("Talos (%s)", n.image.Version),
			ContainerRuntimeVersion: "containerd://2.1.6",
			KubeletVersion:          version, OperatingSystem: "linux", Architecture: "amd64",
		},
	}

	for _, a := range n.nodeIPs() {
		st.Addresses = append(st.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}

	st.Addresses = append(st.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: n.nodename()})

	return st
}

// systemMiB is what Talos' other partitions take of the disk.
const systemMiB = 1202

// capacity is what the kubelet of Talos finds, and keeps for the system by Talos' configuration (Talos:
// controllers/k8s/kubelet_spec.go) and for evictions by its own: 100 MiB of memory, a tenth of the disk.
func (n *node) capacity() kube.Capacity {
	memory := constants.KubeletSystemReservedMemoryWorker
	if n.controlPlane() {
		memory = constants.KubeletSystemReservedMemoryControlPlane
	}

	reserved := resource.MustParse(memory)
	reserved.Add(resource.MustParse("100Mi"))

	c := kube.Capacity{Cores: n.hw.Cores, MemoryMiB: n.hw.MemoryMiB}
	if n.disk != nil {
		c.Disk = n.disk.Size() - systemMiB<<20

		if d := n.ephemeralDisk(); d != n.disk {
			c.Disk = d.Size() - tableSize
		}
	}

	storage := resource.MustParse(constants.KubeletSystemReservedEphemeralStorage)
	storage.Add(*resource.NewQuantity(c.Disk/10, resource.BinarySI))

	c.Reserved = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(constants.KubeletSystemReservedCPU), corev1.ResourceMemory: reserved,
		corev1.ResourceEphemeralStorage: storage,
	}

	return c
}

// kubeletHealth is the kubelet's own health, which says nothing about the cluster.
func (n *node) kubeletHealth() string { return "" }

// leaveKubernetes tells the cluster that the machine is gone, as its silence would.
func (n *node) leaveKubernetes() {
	n.mu.Lock()
	c := n.kube.in
	n.mu.Unlock()

	if c != nil {
		c.NodeLost(n.nodename())
	}
}
