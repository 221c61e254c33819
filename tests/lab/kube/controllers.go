package kube

import (
	stdx509 "crypto/x509"
	"encoding/pem"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/crypto/x509"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

var (
	namespaces  = kindOf("", "v1", "namespaces")
	nodes       = kindOf("", "v1", "nodes")
	pods        = kindOf("", "v1", "pods")
	services    = kindOf("", "v1", "services")
	secrets     = kindOf("", "v1", "secrets")
	endpoints   = kindOf("", "v1", "endpoints")
	daemonSets  = kindOf("apps", "v1", "daemonsets")
	deployments = kindOf("apps", "v1", "deployments")
	jobs        = kindOf("batch", "v1", "jobs")
	leases      = kindOf("coordination.k8s.io", "v1", "leases")
	budgets     = kindOf("policy", "v1", "poddisruptionbudgets")
	requests    = kindOf("certificates.k8s.io", "v1", "certificatesigningrequests")
	slicesOf    = kindOf("discovery.k8s.io", "v1", "endpointslices")
	configMaps  = kindOf("", "v1", "configmaps")
	events      = kindOf("", "v1", "events")

	serviceAccounts     = kindOf("", "v1", "serviceaccounts")
	clusterRoleBindings = kindOf("rbac.authorization.k8s.io", "v1", "clusterrolebindings")
)

func equal(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }

// reconcile does the work of the controllers, after each change and at once. The caller holds the lock. What it does
// settles in one pass: it only looks at objects, and creates, changes or removes others.
func (c *Cluster) reconcile() {
	c.signRequests()
	c.allocatePodCIDRs()
	c.taintNodes()

	all := c.nodesLocked()
	c.schedulePods(all)
	c.collectPods(all)
	c.runJobs(all)
	c.runDaemonSets(all)
	c.runDeployments(all)
	c.runBudgets()
}

func (c *Cluster) nodesLocked() map[string]*corev1.Node {
	all := map[string]*corev1.Node{}
	for _, obj := range c.objects[nodes] {
		n := obj.(*corev1.Node)
		all[n.Name] = n
	}

	return all
}

// signRequests approves and signs what kubelets ask for, as the controller manager does with Talos' bootstrap
// manifests.
func (c *Cluster) signRequests() {
	if c.signer == nil {
		return
	}

	for _, obj := range c.listLocked(requests, "") {
		req := obj.(*certificatesv1.CertificateSigningRequest)
		if len(req.Status.Certificate) > 0 || req.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
			continue
		}

		block, _ := pem.Decode(req.Spec.Request)
		if block == nil {
			continue
		}

		csr, err := stdx509.ParseCertificateRequest(block.Bytes)
		if err != nil || !strings.HasPrefix(csr.Subject.CommonName, "system:node:") ||
			!slices.Equal(csr.Subject.Organization, []string{"system:nodes"}) {
			continue
		}

		cert, err := x509.NewCertificateFromCSR(c.signer.Crt, c.signer.Key, csr,
			x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
			x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}),
			x509.NotAfter(time.Now().AddDate(1, 0, 0)),
		)
		if err != nil {
			continue
		}

		req.Status.Certificate = cert.X509CertificatePEM
		req.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved",
			Message:        "Auto approving kubelet client certificate after SubjectAccessReview.",
			LastUpdateTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}}
		c.replace(requests, req)
	}
}

// replace stores a changed copy.
func (c *Cluster) replace(k *kind, obj runtime.Object) {
	m := accessor(obj)

	before, ok := c.objects[k][key(m.GetNamespace(), m.GetName())]
	if ok && !equal(before, obj) {
		c.commit(k, watch.Modified, obj, before)
	}
}

// podNetwork is what Talos configures by default as the cluster's pod subnet; each node gets a /24 of it.
var podNetwork = netip.MustParsePrefix("10.244.0.0/16")

func (c *Cluster) allocatePodCIDRs() {
	taken := map[string]bool{}
	for _, n := range c.nodesLocked() {
		taken[n.Spec.PodCIDR] = true
	}

	for _, obj := range c.listLocked(nodes, "") {
		n := obj.(*corev1.Node)
		if n.Spec.PodCIDR != "" {
			continue
		}

		base := podNetwork.Addr().As4()

		for i := range 256 {
			base[2] = byte(i)
			if cidr := netip.PrefixFrom(netip.AddrFrom4(base), 24).String(); !taken[cidr] {
				n.Spec.PodCIDR, n.Spec.PodCIDRs, taken[cidr] = cidr, []string{cidr}, true
				c.replace(nodes, n)

				break
			}
		}
	}
}

// nodeCondition returns the status of a node's Ready condition.
func nodeCondition(n *corev1.Node) corev1.ConditionStatus {
	for _, cond := range n.Status.Conditions {
		if cond.Type == corev1.NodeReady {
			return cond.Status
		}
	}

	return corev1.ConditionUnknown
}

// NodeLost marks a node whose kubelet has gone silent, as the node lifecycle controller does after its grace period.
// Here the grace period is nothing: a lab's machine that is off is known to be off.
func (c *Cluster) NodeLost(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	obj, ok := c.objects[nodes][key("", name)]
	if !ok {
		return
	}

	n := obj.DeepCopyObject().(*corev1.Node)
	MarkLost(n)
	c.replace(nodes, n)
	c.reconcile()
}

// NodeReports has nothing to end: nodes are marked at once.
func (c *Cluster) NodeReports(string) {}

// NodeStates are the nodes of a cluster, and what the lab knows of their kubelets without asking an API server.
type NodeStates interface {
	// Node is a copy of a node, nil when there is none of that name; Nodes are all.
	Node(name string) *corev1.Node
	Nodes() []*corev1.Node
	// NodeReady tells whether a node has joined and is Ready.
	NodeReady(name string) (joined, ready bool)
	// NodeLost marks a node whose kubelet has gone silent; NodeReports says that it is about to report again.
	NodeLost(name string)
	NodeReports(name string)
}

// NodeReady tells whether a node has joined and is Ready.
func (c *Cluster) NodeReady(name string) (joined, ready bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	obj, ok := c.objects[nodes][key("", name)]

	return ok, ok && nodeCondition(obj.(*corev1.Node)) == corev1.ConditionTrue
}

// Node returns a copy of a node, nil when there is none of that name.
func (c *Cluster) Node(name string) *corev1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()

	if obj, ok := c.objects[nodes][key("", name)]; ok {
		return obj.DeepCopyObject().(*corev1.Node)
	}

	return nil
}

// RunningOn returns copies of the pods that run on a node.
func (c *Cluster) RunningOn(node string) []*corev1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()

	var out []*corev1.Pod

	for _, obj := range c.objects[pods] {
		if p := obj.(*corev1.Pod); p.Spec.NodeName == node && podReady(p) {
			out = append(out, p.DeepCopy())
		}
	}

	return out
}

// Nodes returns copies of all nodes, by name.
func (c *Cluster) Nodes() []*corev1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()

	var out []*corev1.Node

	for _, obj := range c.listLocked(nodes, "") {
		out = append(out, obj.(*corev1.Node))
	}

	return out
}

// HasNode tells whether a node of that name and identity is registered.
func (c *Cluster) HasNode(name string, uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	obj, ok := c.objects[nodes][key("", name)]

	return ok && accessor(obj).GetUID() == uid
}

// NetworkPlugin is the name of what has put a CNI configuration on a node; empty while nothing has, and the node never
// becomes Ready: a pod that runs there with the host's /etc/cni mounted, which is how flannel, Cilium, Calico and
// others do it.
func (c *Cluster) NetworkPlugin(node string) string {
	return NetworkPluginOf(c.RunningOn(node))
}

// NetworkPluginOf is the one among the pods that run on a node.
func NetworkPluginOf(running []*corev1.Pod) string {
	for _, p := range running {
		for _, v := range p.Spec.Volumes {
			if owner := metav1.GetControllerOf(p); owner != nil && v.HostPath != nil &&
				strings.HasPrefix(v.HostPath.Path, "/etc/cni") {
				return owner.Name
			}
		}
	}

	return ""
}

// collectPods removes the pods of nodes that are gone, and marks those of lost nodes as not ready.
func (c *Cluster) collectPods(all map[string]*corev1.Node) {
	for _, obj := range c.listLocked(pods, "") {
		p := obj.(*corev1.Pod)
		if p.Spec.NodeName == "" || completed(p) && all[p.Spec.NodeName] != nil {
			continue
		}

		n := all[p.Spec.NodeName]
		if n == nil {
			c.commit(pods, watch.Deleted, p, c.objects[pods][key(p.Namespace, p.Name)])
			continue
		}

		if nodeCondition(n) == corev1.ConditionTrue && p.DeletionTimestamp != nil && len(p.Finalizers) == 0 {
			// the kubelet is back, and ends it
			c.commit(pods, watch.Deleted, p, c.objects[pods][key(p.Namespace, p.Name)])
			continue
		}

		if nodeCondition(n) == corev1.ConditionUnknown && len(n.Status.Conditions) > 0 {
			setReady(p, false)
		} else if ref := metav1.GetControllerOf(p); ref == nil || ref.Kind != "Node" {
			c.assignAddress(p, n)
			runPod(p, n)
			c.takeTime(p)
		}

		c.replace(pods, p)
	}
}

// ReadyAfter is the annotation of pods that are not ready as soon as they run: "2s". All others are.
const ReadyAfter = "lab/ready-after"

// takeTime keeps a pod from being ready until its time has come, and has it looked at again then.
func (c *Cluster) takeTime(p *corev1.Pod) {
	takes, err := time.ParseDuration(p.Annotations[ReadyAfter])
	if err != nil || !podReady(p) {
		return
	}

	left := takes - time.Since(p.Status.StartTime.Time)
	if left <= 0 {
		return
	}

	setReady(p, false)

	if c.timed {
		return
	}

	c.timed = true

	time.AfterFunc(left, func() {
		c.mu.Lock()
		defer c.mu.Unlock()

		c.timed = false
		c.reconcile()
	})
}

// runPod gives a pod the status it has on its node: pods on the host's network run as soon as the kubelet has
// registered, others once the node is Ready.
func runPod(p *corev1.Pod, n *corev1.Node) {
	if !p.Spec.HostNetwork && nodeCondition(n) != corev1.ConditionTrue {
		p.Status.Phase = corev1.PodPending
		setReady(p, false)

		return
	}

	p.Status.Phase = corev1.PodRunning
	p.Status.HostIP = nodeAddress(n)

	if p.Spec.HostNetwork {
		p.Status.PodIP = p.Status.HostIP
	}

	p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
	if p.Status.StartTime == nil {
		now := metav1.Now()
		p.Status.StartTime = &now
	}

	setReady(p, true)

	if name, problem := refusedByTalos(p, n); problem != "" {
		setReady(p, false)
		waiting(p, name, "RunContainerError", problem)
	}
}

func nodeAddress(n *corev1.Node) string {
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}

	return ""
}

// assignAddress gives a pod the first free address of its node's subnet, which it keeps.
func (c *Cluster) assignAddress(p *corev1.Pod, n *corev1.Node) {
	prefix, err := netip.ParsePrefix(n.Spec.PodCIDR)
	if err != nil || p.Spec.HostNetwork || p.Status.PodIP != "" || nodeCondition(n) != corev1.ConditionTrue {
		return
	}

	taken := map[string]bool{}
	for _, obj := range c.objects[pods] {
		taken[obj.(*corev1.Pod).Status.PodIP] = true
	}

	// the first two are the network and its bridge
	for a := prefix.Addr().Next().Next(); prefix.Contains(a); a = a.Next() {
		if !taken[a.String()] {
			p.Status.PodIP = a.String()

			return
		}
	}
}

// setReady sets a pod's readiness and that of its containers.
func setReady(p *corev1.Pod, ready bool) {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}

	for _, t := range []corev1.PodConditionType{
		corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
		corev1.PodScheduled,
	} {
		want := status
		if t == corev1.PodScheduled || t == corev1.PodInitialized {
			want = corev1.ConditionTrue
		}

		i := slices.IndexFunc(p.Status.Conditions, func(cond corev1.PodCondition) bool { return cond.Type == t })
		if i < 0 {
			p.Status.Conditions = append(p.Status.Conditions,
				corev1.PodCondition{Type: t, Status: want, LastTransitionTime: metav1.Now()})
		} else if p.Status.Conditions[i].Status != want {
			p.Status.Conditions[i].Status, p.Status.Conditions[i].LastTransitionTime = want, metav1.Now()
		}
	}

	running := p.Status.Phase == corev1.PodRunning
	if len(p.Status.ContainerStatuses) != len(p.Spec.Containers) {
		p.Status.ContainerStatuses = nil

		for _, ctr := range p.Spec.Containers {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses,
				corev1.ContainerStatus{Name: ctr.Name, Image: ctr.Image})
		}
	}

	for i := range p.Status.ContainerStatuses {
		cs := &p.Status.ContainerStatuses[i]
		cs.Ready, cs.Started = ready, &running

		switch {
		case running && cs.State.Running == nil:
			cs.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
		case !running:
			cs.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
		}
	}
}

// owned returns the pods that an object controls.
func (c *Cluster) owned(owner metav1.Object) []*corev1.Pod {
	var out []*corev1.Pod

	for _, obj := range c.listLocked(pods, owner.GetNamespace()) {
		if p := obj.(*corev1.Pod); metav1.IsControlledBy(p, owner) {
			out = append(out, p)
		}
	}

	return out
}

// active are the pods that are not being deleted.
func active(all []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(all, func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

func (c *Cluster) startPod(owner metav1.Object, gvk string, template *corev1.PodTemplateSpec, n *corev1.Node) {
	group, name, _ := strings.Cut(gvk, "/")
	yes := true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: owner.GetName() + "-", Namespace: owner.GetNamespace(),
			Labels: template.Labels, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: group + "/v1", Kind: name, Name: owner.GetName(), UID: owner.GetUID(), Controller: &yes,
				BlockOwnerDeletion: &yes,
			}},
		},
		Spec: *template.Spec.DeepCopy(),
	}
	p.Spec.NodeName = n.Name
	c.assignAddress(p, n)
	runPod(p, n)

	_, _ = c.createLocked(pods, p) // the name is new and the namespace is the owner's: it cannot fail
}

// rollOut removes the pods that were made from another template; the controller recreates them.
func (c *Cluster) rollOut(owner metav1.Object, template *corev1.PodTemplateSpec) {
	for _, p := range c.owned(owner) {
		if !equal(p.Spec.Containers, template.Spec.Containers) ||
			!equal(p.Spec.InitContainers, template.Spec.InitContainers) {
			c.commit(pods, watch.Deleted, p, c.objects[pods][key(p.Namespace, p.Name)])
		}
	}
}

func (c *Cluster) runDaemonSets(all map[string]*corev1.Node) {
	for _, obj := range c.listLocked(daemonSets, "") {
		ds := obj.(*appsv1.DaemonSet)
		on := map[string]bool{}

		c.rollOut(ds, &ds.Spec.Template)

		for _, p := range c.owned(ds) {
			on[p.Spec.NodeName] = true
		}

		// daemon set pods tolerate what the controller adds: nodes that are not ready, unreachable or cordoned
		spec := ds.Spec.Template.Spec.DeepCopy()
		for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable} {
			spec.Tolerations = append(spec.Tolerations, corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists})
		}

		for _, name := range sortedNames(all) {
			if !on[name] && mayRun(spec, all[name]) {
				c.startPod(ds, "apps/DaemonSet", &ds.Spec.Template, all[name])
			}
		}

		desired, ready := 0, 0

		for _, p := range c.owned(ds) {
			desired++
			if podReady(p) {
				ready++
			}
		}

		ds.Status.DesiredNumberScheduled, ds.Status.CurrentNumberScheduled = int32(desired), int32(desired)
		ds.Status.UpdatedNumberScheduled, ds.Status.NumberReady, ds.Status.NumberAvailable = int32(desired), int32(ready),
			int32(ready)
		ds.Status.NumberUnavailable, ds.Status.ObservedGeneration = int32(desired-ready), ds.Generation
		c.replace(daemonSets, ds)
	}

	c.collectOwned("DaemonSet", daemonSets)
}

func (c *Cluster) runDeployments(all map[string]*corev1.Node) {
	for _, obj := range c.listLocked(deployments, "") {
		d := obj.(*appsv1.Deployment)
		want := replicas(d)

		c.rollOut(d, &d.Spec.Template)

		have := active(c.owned(d))

		// pods go round the nodes that can take them, least loaded first
		for int32(len(have)) < want {
			load := map[string]int{}
			for _, p := range have {
				load[p.Spec.NodeName]++
			}

			best := place(&d.Spec.Template.Spec, all, load)
			if best == nil {
				break
			}

			c.startPod(d, "apps/Deployment", &d.Spec.Template, best)
			have = active(c.owned(d))
		}

		for int32(len(have)) > want {
			p := have[len(have)-1]
			c.commit(pods, watch.Deleted, p, c.objects[pods][key(p.Namespace, p.Name)])
			have = have[:len(have)-1]
		}

		ready := int32(0)

		for _, p := range have {
			if podReady(p) {
				ready++
			}
		}

		d.Status.Replicas, d.Status.UpdatedReplicas = int32(len(have)), int32(len(have))
		d.Status.ReadyReplicas, d.Status.AvailableReplicas = ready, ready
		d.Status.UnavailableReplicas, d.Status.ObservedGeneration = want-ready, d.Generation
		c.replace(deployments, d)
	}

	c.collectOwned("Deployment", deployments)
}

// collectOwned removes the pods whose owner of the given kind is gone.
func (c *Cluster) collectOwned(name string, k *kind) {
	for _, obj := range c.listLocked(pods, "") {
		p := obj.(*corev1.Pod)
		if ref := metav1.GetControllerOf(p); ref != nil && ref.Kind == name &&
			c.objects[k][key(p.Namespace, ref.Name)] == nil {
			c.commit(pods, watch.Deleted, p, c.objects[pods][key(p.Namespace, p.Name)])
		}
	}
}

// PodReady tells whether a pod is.
func PodReady(p *corev1.Pod) bool { return podReady(p) }

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(cond corev1.PodCondition) bool {
		return cond.Type == corev1.PodReady && cond.Status == corev1.ConditionTrue
	})
}

func sortedNames(all map[string]*corev1.Node) []string {
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}

	slices.Sort(names)

	return names
}

// SetAPIServers records which addresses serve the API, in the endpoints of the service "kubernetes".
func (c *Cluster) SetAPIServers(addresses []string, port int32) {
	c.mu.Lock()
	defer c.mu.Unlock()

	slices.Sort(addresses)
	c.put(endpoints, kubernetesEndpoints(addresses, port))
	c.put(slicesOf, kubernetesSlice(addresses, port))
}

// put creates an object or replaces the one that is there.
func (c *Cluster) put(k *kind, obj runtime.Object) {
	m := accessor(obj)

	before, ok := c.objects[k][key(m.GetNamespace(), m.GetName())]
	if !ok {
		if _, err := c.createLocked(k, obj); err != nil {
			// the cluster's own objects go into namespaces it made
			panic(fmt.Sprintf("kube: %s %s: %v", k.name, m.GetName(), err))
		}

		return
	}

	was := accessor(before)
	m.SetUID(was.GetUID())
	m.SetCreationTimestamp(was.GetCreationTimestamp())
	m.SetGeneration(was.GetGeneration())
	m.SetResourceVersion(was.GetResourceVersion())
	c.replace(k, obj)
}

// Changed is closed at the next change of anything.
func (c *Cluster) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.changed
}

// UpdateNode changes a node as a controller does that runs outside of the controller manager.
func (c *Cluster) UpdateNode(name string, change func(*corev1.Node)) error {
	_, err := c.update(nodes, "", name, false, func(obj runtime.Object) (runtime.Object, error) {
		n := obj.(*corev1.Node)
		change(n)

		return n, nil
	})

	return err
}
