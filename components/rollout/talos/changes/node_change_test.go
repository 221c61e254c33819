package changes

import (
	"testing"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/impact"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
)

// TestDefaultInstaller: nodes of which no extensions are set keep those that they have, though their installer is
// the Image Factory's from Talos 1.14 on.
func TestDefaultInstaller(t *testing.T) {
	for name, c := range map[string]struct {
		image plan.BootImage
		want  bool
	}{
		"nothing is set":          {plan.BootImage{}, true},
		"a schematic":             {plan.BootImage{SchematicID: "aa"}, false},
		"extensions":              {plan.BootImage{Extensions: []string{"iscsi-tools"}}, false},
		"an image of a factory's": {plan.BootImage{FactoryURL: "https://factory.talos.dev"}, false},
	} {
		n := plan.Node{Name: "a-1", Pool: "a"}
		r := &Changes{Cluster: &cluster.Cluster{}}
		r.Plan = &plan.Plan{Pools: []plan.PlannedPool{{Name: "a", Image: c.image, Nodes: []plan.Node{n}}}}

		assert.Equal(t, c.want, r.defaultInstaller(n), name)
	}
}

// TestEncryptionOfRunningNodes: nodes of either role keep what their volumes were created with. The remedy is one that
// the cluster can follow: the only control plane, or one of two, is not replaced.
func TestEncryptionOfRunningNodes(t *testing.T) {
	const refused = "cluster.encryption: does not change on a node that runs: its volume STATE was created without " +
		"encryption, and Talos would not open it at the next boot (given: nodeID); put the key, or the patch that sets it, " +
		"back; or name all nodes of the cluster in lifecycle.replace in the same update, none of which may be in the list " +
		"already"

	for name, c := range map[string]struct {
		role          spec.Role
		controlPlanes int
		refused       string
	}{
		"a worker":               {spec.RoleWorker, 3, refused},
		"a control plane":        {spec.RoleControlPlane, 3, refused},
		"the only control plane": {spec.RoleControlPlane, 1, refused + "; with fewer than three control planes, add some with the former value before that"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Changes{Cluster: &cluster.Cluster{}}
			r.Plan = &plan.Plan{Pools: []plan.PlannedPool{{
				Role: spec.RoleControlPlane, Nodes: make([]plan.Node, c.controlPlanes),
			}}}

			change := nodeChange{node: plan.Node{Role: c.role}, wanted: machineConfiguration(t, "---\napiVersion: v1alpha1\n"+
				"kind: VolumeConfig\nname: STATE\nencryption: { provider: luks2, keys: [{ slot: 0, nodeID: {} }] }\n")}
			running := talosapi.System{Configuration: machineConfiguration(t, "")}

			assert.EqualError(t, r.checkRunning(t.Context(), change, running), c.refused)

			running.Configuration = change.wanted
			assert.NoError(t, r.checkRunning(t.Context(), change, running))
		})
	}
}

func machineConfiguration(t *testing.T, documents string) talosconfig.Provider {
	t.Helper()

	cfg, err := configloader.NewFromBytes([]byte("version: v1alpha1\nmachine: { type: worker }\ncluster: {}\n" + documents))
	require.NoError(t, err)

	return cfg
}

// TestWarnOfRunning: a warning that holds for all nodes is shown once, and none of a change that is not made.
func TestWarnOfRunning(t *testing.T) {
	var warned []string

	r := &Changes{Cluster: &cluster.Cluster{}}
	r.Warn = func(message string) { warned = append(warned, message) }

	controlPlane := func(disabled string) talosconfig.Provider {
		cfg, err := configloader.NewFromBytes([]byte("version: v1alpha1\nmachine: { type: controlplane }\n" +
			"cluster: { proxy: { disabled: " + disabled + " } }\n"))
		require.NoError(t, err)

		return cfg
	}
	change := nodeChange{wanted: controlPlane("true")}
	found := evaluation{running: talosapi.System{Configuration: controlPlane("false")}}

	blocked := found
	blocked.blocked = assert.AnError
	r.warnOfRunning(change, blocked)

	unknown := evaluation{NodeImpact: impact.NodeImpact{Effect: impact.EffectUnknown}}
	r.warnOfRunning(change, unknown)
	assert.Empty(t, warned)

	r.warnOfRunning(change, found)
	r.warnOfRunning(change, found)
	require.Len(t, warned, 1)
	assert.Contains(t, warned[0], "kubectl --namespace kube-system delete daemonset kube-proxy")
}
