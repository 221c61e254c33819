package talos_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/talos"
)

// A worker does not have the CA's key: its certificate is signed by a control plane.
func TestWorkerCertificate(t *testing.T) {
	r := newHarness(t)
	cp, worker := r.machine(11, template()).on(), r.machine(21, template()).on()
	c := r.cluster(cp.addr())
	address := worker.addr() + ":50000"

	c.apply(worker, c.config(configmachine.TypeWorker, "worker-1"))
	worker.stage("booting")

	// without a control plane there is no node to sign it, so the API stays away
	time.Sleep(300 * time.Millisecond)
	require.Nil(t, c.serverCertificate(address))

	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1"))
	worker.until("answers", func(ctx context.Context) error {
		_, err := c.client(worker).Version(ctx)

		return err
	})

	cert := c.serverCertificate(address)
	require.NotNil(t, cert)
	require.Equal(t, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, cert.ExtKeyUsage)

	block, _ := pem.Decode(c.input.Options.SecretsBundle.Certs.OS.Crt)
	ca, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	require.NoError(t, cert.CheckSignatureFrom(ca))
}

func TestWorkerWithTheWrongToken(t *testing.T) {
	r := newHarness(t)
	cp, worker := r.machine(11, template()).on(), r.machine(21, template()).on()
	c := r.cluster(cp.addr())

	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1"))
	c.bootstrap(cp)
	cp.stage("running")

	c.apply(worker, c.config(configmachine.TypeWorker, "worker-1",
		"machine: {token: aaaaaa.aaaaaaaaaaaaaaaa}", "cluster: {token: bbbbbb.bbbbbbbbbbbbbbbb}"))
	time.Sleep(time.Second)

	require.Nil(t, c.serverCertificate(worker.addr()+":50000"))
	require.False(t, worker.status().Joined)
	require.Equal(t, "booting", worker.status().Stage)
}

// Without the discovery service a worker learns of the control planes from Kubernetes, so its API comes after that.
func TestWorkerWithoutDiscovery(t *testing.T) {
	r := newHarness(t)
	cp, worker := r.machine(11, template()).on(), r.machine(21, template()).on()
	c := r.cluster(cp.addr(), generate.WithClusterDiscovery(false))

	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1"))
	c.apply(worker, c.config(configmachine.TypeWorker, "worker-1"))

	cp.until("answers", func(ctx context.Context) error {
		_, err := c.client(cp).Version(ctx)

		return err
	})
	time.Sleep(300 * time.Millisecond)
	require.Nil(t, c.serverCertificate(worker.addr()+":50000"))

	c.bootstrap(cp)
	worker.stage("running")
	nodesReady(r, c.kubernetes(cp).CoreV1().Nodes().List, "cp-1", "worker-1")
}

// A worker whose configuration names an endpoint where nothing is joins all the same, through KubePrism, which knows
// the control planes from the discovery service. Without one of the two it never does.
func TestWorkerWithTheWrongEndpoint(t *testing.T) {
	r := newHarness(t)
	cp := r.machine(11, template()).on()
	c := r.cluster(cp.addr())
	wrong := "cluster: {controlPlane: {endpoint: https://" + r.addr(99).String() + ":6443}}"

	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1"))

	balanced, lonely, blind := r.machine(21, template()).on(), r.machine(22, template()).on(),
		r.machine(23, template()).on()
	c.apply(balanced, c.config(configmachine.TypeWorker, "worker-1", wrong))
	c.apply(lonely, c.config(configmachine.TypeWorker, "worker-2", wrong,
		"machine: {features: {kubePrism: {enabled: false}}}"))
	c.apply(blind, c.config(configmachine.TypeWorker, "worker-3", wrong, "cluster: {discovery: {enabled: false}}"))

	c.bootstrap(cp)
	nodesReady(r, c.kubernetes(cp).CoreV1().Nodes().List, "cp-1", "worker-1")
	lonely.stage("running")

	time.Sleep(300 * time.Millisecond)
	require.False(t, lonely.status().Joined)
	require.False(t, blind.status().Joined)
}

// A control plane whose configuration names a wrong endpoint runs, and hands out a kubeconfig that leads nowhere.
func TestControlPlaneWithTheWrongEndpoint(t *testing.T) {
	r := newHarness(t)
	cp := r.machine(11, template()).on()
	c := r.cluster(r.addr(99).String())

	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1"))
	c.bootstrap(cp)
	cp.until("is ready", func(context.Context) error {
		if s := cp.status(); !s.Ready {
			return context.DeadlineExceeded
		}

		return nil
	})

	_, err := c.kubernetes(cp).CoreV1().Nodes().List(t.Context(), listOptions{})
	require.ErrorContains(t, err, r.addr(99).String()+":6443: connect: connection refused")
}

// An endpoint may be a name, if the network's DNS has it.
func TestEndpointByName(t *testing.T) {
	var r *harness

	r = newHarness(t, func(o *talos.Options) {
		o.Resolve = func(host string) []netip.Addr {
			if host == "api.lab" {
				return []netip.Addr{r.addr(11)}
			}

			return nil
		}
	})
	cp, worker := r.machine(11, template()).on(), r.machine(21, template()).on()
	c := r.cluster("api.lab")

	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1"))
	c.apply(worker, c.config(configmachine.TypeWorker, "worker-1"))
	c.bootstrap(cp)
	worker.ready()

	cert := c.serverCertificate(cp.addr() + ":6443")
	require.NotNil(t, cert)
	require.Contains(t, cert.DNSNames, "api.lab")
}

// What the machine configuration says about the node is in Kubernetes, as far as NodeRestriction lets a worker say it.
func TestNodeObject(t *testing.T) {
	r := newHarness(t)
	cp, worker, lost := r.machine(11, template()).on(), r.machine(21, template()).on(), r.machine(22, template()).on()
	c := r.cluster(cp.addr())

	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1", `machine: {nodeTaints: {tier: "db:NoExecute"}}`))
	c.apply(worker, c.config(configmachine.TypeWorker, "worker-1", `machine:
  nodeLabels: {tier: db}
  kubelet:
    extraArgs: {node-labels: "rack=1"}
    extraConfig: {registerWithTaints: [{key: gpu, value: "yes", effect: NoSchedule}]}`))
	c.apply(lost, c.config(configmachine.TypeWorker, "worker-2",
		`machine: {nodeLabels: {tier: db}, nodeTaints: {gpu: "yes:NoSchedule"}}`))
	c.bootstrap(cp)

	api := c.kubernetes(cp)
	nodesReady(r, api.CoreV1().Nodes().List, "cp-1", "worker-1", "worker-2")

	list, err := api.CoreV1().Nodes().List(t.Context(), listOptions{})
	require.NoError(t, err)

	first, second, third := list.Items[0], list.Items[1], list.Items[2]
	require.Contains(t, first.Labels, "node-role.kubernetes.io/control-plane")
	require.ElementsMatch(t, []string{"tier", "node-role.kubernetes.io/control-plane"},
		[]string{first.Spec.Taints[0].Key, first.Spec.Taints[1].Key})
	require.Equal(t, cp.addr(), first.Status.Addresses[0].Address)
	require.Equal(t, "Talos ("+talosVersion+")", first.Status.NodeInfo.OSImage)
	require.Equal(t, "v"+kubeVersion, first.Status.NodeInfo.KubeletVersion)

	require.NotContains(t, second.Labels, "node-role.kubernetes.io/control-plane")
	require.Equal(t, "db", second.Labels["tier"])
	require.Len(t, second.Spec.Taints, 1)
	require.Equal(t, "gpu", second.Spec.Taints[0].Key)
	require.Equal(t, "yes", second.Spec.Taints[0].Value)
	require.Equal(t, "1", second.Labels["rack"])

	require.Empty(t, third.Spec.Taints)
	require.NotContains(t, third.Labels, "tier", "they go in the request that is refused")
}

// Without a network plugin no node is Ready, and the plugin may come as an inline manifest.
func TestNetworkPlugin(t *testing.T) {
	const plugin = `cluster:
  network: {cni: {name: none}}
  inlineManifests:
  - name: cilium
    contents: |
      # the daemon set that writes /etc/cni/net.d
      apiVersion: apps/v1
      kind: DaemonSet
      metadata: {name: cilium, namespace: kube-system}
      spec:
        selector: {matchLabels: {k8s-app: cilium}}
        template:
          metadata: {labels: {k8s-app: cilium}}
          spec:
            hostNetwork: true
            tolerations: [{operator: Exists}]
            containers: [{name: agent, image: cilium}]
            volumes: [{name: cni, hostPath: {path: /etc/cni/net.d}}]
`

	r := newHarness(t)
	with, without := r.machine(11, template()).on(), r.machine(12, template()).on()
	a, b := r.cluster(with.addr()), r.cluster(without.addr())

	a.apply(with, a.config(configmachine.TypeControlPlane, "with", plugin))
	b.apply(without, b.config(configmachine.TypeControlPlane, "without", "cluster: {network: {cni: {name: none}}}"))
	a.bootstrap(with)
	b.bootstrap(without)

	nodesReady(r, a.kubernetes(with).CoreV1().Nodes().List, "with")
	without.until("joins", func(context.Context) error {
		if !without.status().Joined {
			return context.DeadlineExceeded
		}

		return nil
	})
	require.False(t, without.status().NodeReady)
}
