package kube

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/siderolabs/crypto/x509"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Manifests is what Talos installs into a cluster by itself, from its machine configuration.
type Manifests struct {
	// CA signs the certificates of kubelets.
	CA *x509.PEMEncodedCertificateAndKey
	// TokenID and TokenSecret are the kubelets' bootstrap token; empty: there is none.
	TokenID, TokenSecret string
	// APIServerIP is the address of the service "kubernetes", DNSIP that of "kube-dns".
	APIServerIP, DNSIP netip.Addr
	// Images; an empty one means that the component is not installed.
	ProxyImage, CoreDNSImage, FlannelImage string
	// Extra holds the inline manifests, in order.
	Extra []runtime.Object
	// Inventory says that Talos keeps an inventory of what it has installed, as it does from 1.13 on.
	Inventory bool
}

// Apply creates what is missing and leaves alone what is there, as Talos does whenever a control plane comes up.
func (c *Cluster) Apply(m Manifests) error {
	signer, err := x509.NewCertificateAuthorityFromCertificateAndKey(m.CA)
	if err != nil {
		return err
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.signer = signer

	for _, obj := range m.served() {
		if err := c.createMissingLocked(kindOfObject(obj), obj); err != nil {
			return err
		}
	}

	if err := c.installLocked(m); err != nil {
		return err
	}

	c.reconcile()

	return nil
}

// served are the objects that the API server itself makes.
func (m Manifests) served() []runtime.Object {
	var out []runtime.Object

	for _, name := range []string{
		metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic,
		corev1.NamespaceNodeLease,
	} {
		out = append(out, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}

	return append(out, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: "kubernetes", Namespace: metav1.NamespaceDefault,
			Labels: map[string]string{"component": "apiserver", "provider": "kubernetes"},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: m.APIServerIP.String(),
			Ports: []corev1.ServicePort{{
				Name: "https", Port: 443, TargetPort: intstr.FromInt32(6443),
				Protocol: corev1.ProtocolTCP,
			}},
		},
	})
}

// Installed are the manifests that Talos brings along and those of the configuration, in order.
func (m Manifests) Installed() []runtime.Object {
	var out []runtime.Object

	own := m.Own()
	for _, id := range slices.Sorted(maps.Keys(own)) {
		out = append(out, own[id]...)
	}

	return append(out, m.Extra...)
}

// Own are the manifests that Talos brings along, by their names (Talos: controllers/k8s/manifest.go).
func (m Manifests) Own() map[string][]runtime.Object {
	out := map[string][]runtime.Object{}
	if m.TokenID != "" {
		m.bootstrap(out)
	}

	if m.FlannelImage != "" {
		out["05-flannel"] = []runtime.Object{daemonSet("kube-flannel", m.FlannelImage,
			map[string]string{"k8s-app": "flannel", "tier": "node"}, "/etc/cni/net.d"), account("kube-flannel")}
	}

	if m.ProxyImage != "" {
		out["10-kube-proxy"] = []runtime.Object{daemonSet("kube-proxy", m.ProxyImage,
			map[string]string{"k8s-app": "kube-proxy", "tier": "node"}, ""), account("kube-proxy")}
	}

	if m.CoreDNSImage != "" {
		dns := m.coreDNS()
		out["11-core-dns"], out["11-core-dns-svc"] = []runtime.Object{dns[0], account("coredns")}, dns[1:]
	}

	return out
}

// bootstrap adds what machines join with.
func (m Manifests) bootstrap(out map[string][]runtime.Object) {
	out["00-kubelet-bootstrapping-token"] = []runtime.Object{&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + m.TokenID, Namespace: metav1.NamespaceSystem},
		Type:       corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			"token-id": []byte(m.TokenID), "token-secret": []byte(m.TokenSecret),
			"usage-bootstrap-authentication": []byte("true"), "auth-extra-groups": []byte("system:bootstrappers:nodes"),
		},
	}}

	for id, b := range map[string]struct{ name, group, role string }{
		"01-csr-approver-role-binding": {
			"system-bootstrap-approve-node-client-csr", "system:bootstrappers:nodes", certificateRole + "nodeclient",
		},
		"01-csr-node-bootstrap": {"system-bootstrap-node-bootstrapper", "system:bootstrappers:nodes", "system:node-bootstrapper"},
		"01-csr-renewal-role-binding": {
			"system-bootstrap-node-renewal", "system:nodes", certificateRole + "selfnodeclient",
		},
	} {
		out[id] = []runtime.Object{&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: b.name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: b.group}},
			RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", APIGroup: rbacv1.GroupName, Name: b.role},
		}}
	}
}

// certificateRole begins the names of the roles by which certificates of kubelets are approved.
const certificateRole = "system:certificates.k8s.io:certificatesigningrequests:"

// account is a service account of Talos' own pods.
func account(name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem}}
}

func daemonSet(name, image string, labels map[string]string, hostPath string) *appsv1.DaemonSet {
	spec := corev1.PodSpec{
		HostNetwork:        true,
		ServiceAccountName: name,
		PriorityClassName:  "system-cluster-critical",
		Containers:         []corev1.Container{{Name: name, Image: image}},
		Tolerations: []corev1.Toleration{
			{Effect: corev1.TaintEffectNoSchedule, Operator: corev1.TolerationOpExists},
			{Effect: corev1.TaintEffectNoExecute, Operator: corev1.TolerationOpExists},
		},
	}

	if hostPath != "" {
		spec.Volumes = []corev1.Volume{{
			Name:         "cni",
			VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: hostPath}},
		}}
	}

	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem, Labels: labels},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
}

func (m Manifests) coreDNS() []runtime.Object {
	labels := map[string]string{"k8s-app": "kube-dns"}
	replicas := int32(2)

	return []runtime.Object{
		&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{
				Name: "coredns", Namespace: metav1.NamespaceSystem,
				Labels: map[string]string{"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS"},
			},
			Spec: appsv1.DeploymentSpec{
				Replicas: &replicas,
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{
						ServiceAccountName: "coredns",
						Containers:         []corev1.Container{{Name: "coredns", Image: m.CoreDNSImage}},
						Tolerations: []corev1.Toleration{
							{
								Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists,
								Effect: corev1.TaintEffectNoSchedule,
							},
						},
					},
				},
			},
		},
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Name: "kube-dns", Namespace: metav1.NamespaceSystem,
				Labels: map[string]string{
					"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true",
					"kubernetes.io/name": "CoreDNS",
				},
			},
			Spec: corev1.ServiceSpec{
				ClusterIP: m.DNSIP.String(), Selector: labels,
				Ports: []corev1.ServicePort{
					{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP},
					{Name: "dns-tcp", Port: 53, Protocol: corev1.ProtocolTCP},
					{Name: "metrics", Port: 9153, Protocol: corev1.ProtocolTCP},
				},
			},
		},
	}
}

func kubernetesEndpoints(addresses []string, port int32) *corev1.Endpoints {
	subset := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{
		Name: "https", Port: port,
		Protocol: corev1.ProtocolTCP,
	}}}
	for _, a := range addresses {
		subset.Addresses = append(subset.Addresses, corev1.EndpointAddress{IP: a})
	}

	return &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{
			Name: "kubernetes", Namespace: metav1.NamespaceDefault,
			Labels: map[string]string{"endpointslice.kubernetes.io/skip-mirror": "true"},
		},
		Subsets: []corev1.EndpointSubset{subset},
	}
}

// APIServersPath is where the addresses of API servers are found, APIServers what is there.
const APIServersPath = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"

// APIServers are the addresses of API servers as an object.
func APIServers(addresses []string, port int32) *discoveryv1.EndpointSlice {
	slice := kubernetesSlice(addresses, port)
	slice.TypeMeta = metav1.TypeMeta{Kind: "EndpointSlice", APIVersion: discoveryv1.SchemeGroupVersion.String()}

	return slice
}

func kubernetesSlice(addresses []string, port int32) *discoveryv1.EndpointSlice {
	name, protocol, ready := "https", corev1.ProtocolTCP, true
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "kubernetes", Namespace: metav1.NamespaceDefault,
			Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	}

	for _, a := range addresses {
		if strings.Contains(a, ":") {
			continue
		}

		slice.Endpoints = append(slice.Endpoints,
			discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
	}

	return slice
}
