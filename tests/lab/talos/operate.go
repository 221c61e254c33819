package talos

import (
	"context"
	"time"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/state/protobuf/server"
	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	storageapi "github.com/siderolabs/talos/pkg/machinery/api/storage"
	timeapi "github.com/siderolabs/talos/pkg/machinery/api/time"
	"google.golang.org/grpc"
)

// retry is how soon a node tries again what depends on others.
const retry = 100 * time.Millisecond

// serveAPI runs apid: from the moment the node has certificates, again with new ones when the configuration changes.
func (n *node) serveAPI(ctx context.Context) {
	n.services.set("apid", statePreparing, "Waiting for api certificates", nil)

	if n.controlPlane() {
		n.services.set("trustd", statePreparing, "Waiting for trustd certificates", nil)
	}

	if !n.awaitIdentity(ctx) {
		return
	}

	front := newFront(n, n.serverTLS(), func(s *grpc.Server) {
		m := &machined{node: n}
		machineapi.RegisterMachineServiceServer(s, m)
		clusterapi.RegisterClusterServiceServer(s, &clusterService{node: n})
		storageapi.RegisterStorageServiceServer(s, &storaged{node: n})
		timeapi.RegisterTimeServiceServer(s, clock{node: n})
		n.registerLifecycle(s)
		cosiv1alpha1.RegisterStateServer(s, server.NewState(n.guarded()))
	})
	defer front.close()

	n.mu.Lock()
	n.front = front
	n.mu.Unlock()

	n.services.start("apid")

	if n.controlPlane() {
		n.background(n.serveTrustd)
		n.services.start("trustd")
	}

	n.background(func(ctx context.Context) { n.renewIdentity(ctx, front) })
	n.serve(ctx, apidPort, front.listen)
}

// awaitIdentity gets the first certificates; a worker's wait for a control plane.
func (n *node) awaitIdentity(ctx context.Context) bool {
	said := ""

	for {
		id, err := n.newIdentity(ctx)
		if err == nil {
			n.mu.Lock()
			n.identity = id
			n.mu.Unlock()

			return true
		}

		if err.Error() != said {
			said = err.Error()
			n.sys.log("no certificate for the API yet: %v", err)
		}

		if !pause(ctx, retry) {
			return false
		}
	}
}

func (n *node) newIdentity(ctx context.Context) (*identity, error) {
	if len(n.addresses()) == 0 {
		return nil, errNoAddress
	}

	if n.has(ClockUnset) {
		return nil, errNoTime
	}

	if n.controlPlane() {
		return n.issueIdentity()
	}

	return n.requestIdentity(ctx)
}

// renewIdentity issues new certificates when the names in them or the CA changed.
func (n *node) renewIdentity(ctx context.Context, front *front) {
	made := n.identityInputs()

	for {
		changed := n.kick.next()

		if now := n.identityInputs(); now != made {
			id, err := n.newIdentity(ctx)
			if err == nil {
				made = now

				n.mu.Lock()
				n.identity = id
				n.mu.Unlock()
				front.flush()
			} else if !pause(ctx, retry) {
				return
			} else {
				continue
			}
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// identityInputs is what the certificates depend on, to compare.
func (n *node) identityInputs() string {
	ips, dns, fqdn := n.certNames()
	s := fqdn + string(n.acceptedCAs())

	for _, ip := range ips {
		s += ip.String()
	}

	for _, name := range dns {
		s += name
	}

	return s
}

// pause waits, and reports false when the context ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()

	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// runServices is the boot sequence after the API: container runtime, kubelet, and on control planes etcd and
// Kubernetes.
func (n *node) runServices(ctx context.Context) {
	n.services.set("cri", statePreparing, "Running pre state", nil)
	n.services.set("kubelet", "Waiting", `Waiting for service "cri" to be "up"`, nil)

	if n.controlPlane() {
		n.services.set("etcd", "Waiting", `Waiting for service "cri" to be "up"`, nil)
	}

	if !n.wait("services", n.fw.opts.Latencies.Services) {
		return
	}

	n.services.start("cri")
	n.background(n.runExtensions)
	n.background(n.superviseKubelet)

	if n.controlPlane() {
		n.services.set("etcd", statePreparing, "Running pre state", nil)
		n.background(n.runEtcd)
	}

	n.background(n.runKubelet)
	n.background(n.runPods)
	n.background(n.finishBoot)
}

// finishBoot ends the boot sequence once all services are up: a control plane without etcd is booting all along.
func (n *node) finishBoot(ctx context.Context) {
	for {
		changed := n.kick.next()
		up := n.services.running("apid") && n.services.running("kubelet")

		if n.controlPlane() {
			up = up && n.services.running("etcd") && n.etcdHealth() == ""
		}

		if up {
			n.setStage(StageRunning)
			n.announce("boot", "", machineapi.SequenceEvent_STOP)

			return
		}

		select {
		case <-changed:
		case <-time.After(retry):
		case <-ctx.Done():
			return
		}
	}
}
