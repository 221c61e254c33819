package changes

import (
	"net"
	"net/http/httptest"
	"testing"
	"time"

	cosi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"github.com/cosi-project/runtime/pkg/state/protobuf/server"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/rollout/talos/talostest"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// TestRestartOfUnreachable: control planes that are not reached may have their quorum. Only VMs that are off are known
// to be of none.
func TestRestartOfUnreachable(t *testing.T) {
	for name, c := range talostest.UnknownQuorum {
		t.Run(name, func(t *testing.T) {
			cluster := talostest.Unreachable(c.Off...)
			restarts := &Restarts{Changes: &Changes{Cluster: cluster}}
			err := restarts.checkUnreachable(t.Context(), nodeChange{
				node: cluster.Plan.ControlPlanes()[0], Target: talosapi.Target{Name: "c-1"},
			})

			if c.Why == "" {
				require.NoError(t, err)

				return
			}

			require.ErrorContains(t, err, c.Why)
			require.ErrorContains(t, err, "make sure that this machine reaches the control planes")
		})
	}
}

// serveMaintenance serves a machine in maintenance mode that shows a UUID.
func serveMaintenance(t *testing.T, address, uuid string) {
	t.Helper()

	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(address, "50000"))
	require.NoError(t, err)

	certificate := httptest.NewTLSServer(nil)
	defer certificate.Close()

	shown := hardware.NewSystemInformation(hardware.SystemInformationID)
	shown.TypedSpec().UUID = uuid

	resources := state.WrapCore(namespaced.NewState(inmem.Build))
	require.NoError(t, resources.Create(t.Context(), shown))

	s := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&certificate.TLS.Certificates[0])))
	machineapi.RegisterMachineServiceServer(s, machineapi.UnimplementedMachineServiceServer{})
	cosi.RegisterStateServer(s, server.NewState(resources))

	go s.Serve(listener) //nolint:errcheck // it ends with the test

	t.Cleanup(s.Stop)
}

// TestInClusterWithForeignMachine: a machine in maintenance mode at the address of a node is believed only if it is
// the node's VM. Another one does not make the restart of the VM one that no cluster notices.
func TestInClusterWithForeignMachine(t *testing.T) {
	const address, uuid = "127.0.99.71", "110ec58a-a0f2-4ac4-8393-c866d813b8d1"

	serveMaintenance(t, address, "110EC58A-A0F2-4AC4-8393-C866D813B8D1")

	inCluster := func(uuid string, controlPlanes int) bool {
		cluster := talostest.Unreachable()
		cluster.Plan.Pools[0].Nodes = cluster.Plan.Pools[0].Nodes[:controlPlanes]
		cluster.Addresses.Set("c-1", address)

		restarts := &Restarts{Changes: &Changes{Cluster: cluster}}

		return restarts.inCluster(t.Context(), nodeChange{
			node: cluster.Plan.ControlPlanes()[0], Target: talosapi.Target{Name: "c-1", Address: address, UUID: uuid},
		})
	}

	assert.False(t, inCluster(uuid, 3), "its own VM")
	assert.True(t, inCluster("6c84fb90-12c4-11e1-840d-7b25c5ee775a", 3))
	assert.True(t, inCluster("6c84fb90-12c4-11e1-840d-7b25c5ee775a", 1), "the only control plane")
}

// TestStaysReady: a worker whose Talos API alone is unreachable is ready in Kubernetes, and its pods are drained. One
// that is not ready, or not there, is restarted as it is.
func TestStaysReady(t *testing.T) {
	node := func(name string, ready corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
		}
	}
	kube := kubeapi.Of(fake.NewClientset(node("w-1", corev1.ConditionTrue), node("w-2", corev1.ConditionUnknown)))

	for name, want := range map[string]bool{"w-1": true, "w-2": false, "w-3": false} {
		ready, err := staysReady(t.Context(), kube, name, &wait.GracePeriod{}, time.Minute, func(string) {})
		require.NoError(t, err)
		assert.Equal(t, want, ready, name)
	}
}
