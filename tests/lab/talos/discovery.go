package talos

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"

	"talos-proxmox/tests/lab/kube"
)

// discovery stands for the discovery service on the internet: nodes of one cluster leave word there of who they are,
// and read it. What they write is encrypted with the cluster's secret, so only those that have it see each other.
type discovery struct {
	mu      sync.Mutex
	members map[*node]member
	changes int
}

type member struct {
	cluster string
	cluster.AffiliateSpec
}

// discoveryKey is empty when the configuration does not use the service.
func discoveryKey(cfg config.Provider) string {
	if len(cfg.DiscoveryServiceConfigs()) == 0 {
		return ""
	}

	return clusterOf(cfg).ID() + "/" + clusterOf(cfg).Secret()
}

// announce says who a node is, again when that changes.
func (d *discovery) announce(n *node) {
	cfg := n.config()
	m := member{cluster: discoveryKey(cfg), AffiliateSpec: n.affiliate()}

	d.mu.Lock()
	defer d.mu.Unlock()

	was, there := d.members[n]

	switch {
	case m.cluster == "" && !there, there && reflect.DeepEqual(was, m):
		return
	case m.cluster == "":
		delete(d.members, n)
	default:
		if d.members == nil {
			d.members = map[*node]member{}
		}

		d.members[n] = m
	}

	d.changes++
}

func (d *discovery) withdraw(n *node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.members, n)
	d.changes++
}

// said counts the new messages.
func (d *discovery) said() int {
	d.mu.Lock()
	defer d.mu.Unlock()

	return d.changes
}

// of returns the members of a node's cluster, itself included, by host name.
func (d *discovery) of(n *node) []cluster.AffiliateSpec {
	key := discoveryKey(n.config())
	if key == "" {
		return []cluster.AffiliateSpec{n.affiliate()}
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	var out []cluster.AffiliateSpec

	for _, m := range d.members {
		if m.cluster == key {
			out = append(out, m.AffiliateSpec)
		}
	}

	slices.SortFunc(out, func(a, b cluster.AffiliateSpec) int {
		return strings.Compare(a.Hostname+a.NodeID,
			b.Hostname+b.NodeID)
	})

	return out
}

// affiliate is what a node says of itself.
func (n *node) affiliate() cluster.AffiliateSpec {
	cfg := n.config()
	_, fqdn := n.fqdn()
	spec := cluster.AffiliateSpec{
		NodeID: n.nodeID(), Hostname: fqdn, Nodename: n.nodename(), MachineType: cfg.Machine().Type(),
		OperatingSystem: fmt.Sprintf("Talos (%s)", n.image.Version),
	}

	for _, p := range n.ownAddresses() {
		spec.Addresses = append(spec.Addresses, p.Addr())
	}

	if cfg.Machine().Type().IsControlPlane() {
		spec.ControlPlane = &cluster.ControlPlane{APIServerPort: clusterOf(cfg).LocalAPIServerPort()}
	}

	return spec
}

// controlPlanes are the addresses of the cluster's other control planes as far as the node can know: from the discovery
// service, or, where that is off, from the Kubernetes API behind the cluster's endpoint (Talos:
// controllers/k8s/endpoint.go).
func (n *node) controlPlanes(ctx context.Context) ([]string, error) {
	if discoveryKey(n.config()) == "" {
		return n.controlPlanesFromAPI(ctx)
	}

	var out []string

	for _, m := range n.fw.discovery.of(n) {
		if m.MachineType != configmachine.TypeControlPlane && m.MachineType != configmachine.TypeInit ||
			m.NodeID == n.nodeID() {
			continue
		}

		for _, a := range m.Addresses {
			out = append(out, a.String())
		}
	}

	return out, nil
}

// controlPlanesFromAPI asks with what the machine has: a worker's kubelet once it has joined, a control plane as admin.
func (n *node) controlPlanesFromAPI(ctx context.Context) ([]string, error) {
	cfg := clusterOf(n.config())
	k := &kube.Kubelet{Dial: n.dial, Servers: []string{cfg.Endpoint().String()}, CA: kubernetesCAs(cfg)}

	if n.controlPlane() {
		cert, err := adminCertificate(cfg)
		if err != nil {
			return nil, err
		}

		k.Certificate = x509.NewCertificateAndKeyFromKeyPair(cert)
	} else if i := n.installed(); i != nil {
		k.Certificate = i.kubelet
	}

	if k.Certificate == nil {
		return nil, nil // the kubelet has not joined yet
	}

	found, err := k.ControlPlanes(ctx)

	return slices.DeleteFunc(found, n.owns), err
}
