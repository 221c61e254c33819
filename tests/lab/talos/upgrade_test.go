package talos_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/tests/lab/talos"
)

var installer = "factory.talos.dev/metal-installer/" + schematicID + ":v1.12.5"

func (c *cluster) upgrade(v *vm, image string, opts ...client.UpgradeOption) error {
	_, err := c.client(v).UpgradeWithOptions(c.Context(),
		append([]client.UpgradeOption{client.WithUpgradeImage(image)}, opts...)...)

	return err
}

// version is what a node runs, with its schematic.
func (c *cluster) version(v *vm) (version, schematic string) {
	c.Helper()

	reply, err := c.client(v).Version(c.Context())
	require.NoError(c, err)

	list, err := safe.StateListAll[*runtime.ExtensionStatus](c.Context(), c.client(v).COSI)
	require.NoError(c, err)

	for e := range list.All() {
		if e.TypedSpec().Metadata.Name == "schematic" {
			schematic = e.TypedSpec().Metadata.Version
		}
	}

	return reply.GetMessages()[0].GetVersion().GetTag(), schematic
}

// happened are the events since a time, boots aside.
func (r *harness) happened(since time.Time) []string {
	var out []string

	for _, h := range r.fw.Events(since) {
		if h.Kind != talos.Booted {
			out = append(out, h.String())
		}
	}

	return out
}

// A cluster is upgraded node by node: version, schematic and extensions change, configuration and membership stay.
func TestUpgrade(t *testing.T) {
	r := newHarness(t, withAgent)
	c, cps := three(r, "", []string{"cluster: {allowSchedulingOnControlPlanes: true}"})
	api := c.kubernetes(cps[0])
	nodesReady(r, api.CoreV1().Nodes().List, "cp-1", "cp-2", "cp-3")

	ids, began := c.memberIDs(cps[0]), time.Now()

	for i, v := range cps {
		before := v.bootID(c)

		var opts []client.UpgradeOption
		if i == 1 {
			opts = append(opts, client.WithUpgradeRebootMode(machineapi.UpgradeRequest_POWERCYCLE))
		}

		require.NoError(t, c.upgrade(v, installer, opts...))
		v.rebooted(c, before)
		v.ready()
		nodesReady(r, api.CoreV1().Nodes().List, "cp-1", "cp-2", "cp-3")

		version, schematic := c.version(v)
		require.Equal(t, "v1.12.5", version)
		require.Equal(t, schematicID, schematic)

		_, state := service(t, c.client(v), "ext-qemu-guest-agent")
		require.Equal(t, "Running", state)

		node, err := api.CoreV1().Nodes().Get(t.Context(), fmt.Sprintf("cp-%d", i+1), metav1.GetOptions{})
		require.NoError(t, err)
		require.False(t, node.Spec.Unschedulable)
		require.Equal(t, "Talos (v1.12.5)", node.Status.NodeInfo.OSImage)
	}

	require.Equal(t, ids, c.memberIDs(cps[0]))

	lowest, _ := r.fw.LowestQuorum(began)
	require.Equal(t, 0, lowest.Margin())
	require.Equal(t, "vm-11: etcd stops (upgrade)", lowest.Cause)
	require.Equal(t, []string{
		"vm-11: upgrade (v1.12.4 to v1.12.5 aaaaaaaa)", "vm-12: upgrade (v1.12.4 to v1.12.5 aaaaaaaa)",
		"vm-13: upgrade (v1.12.4 to v1.12.5 aaaaaaaa)",
	}, r.happened(began))

	outages := r.fw.Outages(began)
	require.Len(t, outages, 3)

	most, _ := talos.MostDown(outages)
	require.Equal(t, 1, most)
	require.Equal(t, "upgrade", outages[2].Why)
	require.Equal(t, "controlplane", outages[2].Role)
	require.False(t, outages[2].To.IsZero())
}

func TestMostDown(t *testing.T) {
	t.Parallel()

	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	most, when := talos.MostDown([]talos.Outage{
		{From: at(1), To: at(3)},
		{From: at(3), To: at(6)},
		{From: at(4), To: at(5)},
		{From: at(9)},
	})
	require.Equal(t, 2, most)
	require.Equal(t, at(4), when)
}

// What is asked in vain is refused before anything happens.
func TestUpgradeRefused(t *testing.T) {
	r := newHarness(t, withAgent, func(o *talos.Options) {
		o.Release = func(version string) bool { return version != "v1.12.99" }
	})
	c, cps := three(r, "", nil)
	ids, began := c.memberIDs(cps[0]), time.Now()

	r.fw.Withdraw("installer:v1.12.6")

	for image, want := range map[string]string{
		"factory.talos.dev/metal-installer/" + strings.Repeat("b", 64) + ":v1.12.5": "not found",
		"ghcr.io/siderolabs/installer:v1.12.99":                                     "not found",
		"ghcr.io/siderolabs/installer:v1.12.6":                                      "failed to pull image",
		"ghcr.io/siderolabs/kubelet:v1.34.2": "installer help returned non-zero " +
			"exit. assuming invalid installer",
		"Not An Image": "failed to parse image reference",
	} {
		err := c.upgrade(cps[0], image)
		require.ErrorContains(t, err, fmt.Sprintf("error validating installer image %q: ", image))
		require.ErrorContains(t, err, want)
	}

	r.fw.Break("vm-13", talos.EtcdCutOff)
	require.ErrorContains(t, c.upgrade(cps[0], installer), fmt.Sprintf(
		"error validating etcd for upgrade: etcd member %016x is not healthy; all members must be healthy to perform an "+
			"upgrade: context deadline exceeded", ids["cp-3"]))
	r.fw.Mend("vm-13", talos.EtcdCutOff)

	require.NoError(t, c.leave(cps[2]))
	require.ErrorContains(t, c.upgrade(cps[0], installer),
		"etcd member count(2) is insufficient to maintain quorum if upgrade commences")
	require.Equal(t, []string{"vm-13: leave etcd"}, r.happened(began))

	// what is forced is done
	before := cps[0].bootID(c)
	require.NoError(t, c.upgrade(cps[0], installer, client.WithUpgradeForce(true)))
	cps[0].rebooted(c, before)
	cps[0].ready()
}

// An upgrade that does not come to its end leaves the node with what it had.
func TestFailedUpgrades(t *testing.T) {
	for name, tc := range map[string]struct {
		fault talos.Fault
		image string
		said  string
		kind  string
	}{
		"installer fails": {
			talos.InstallerFails, installer, "the installer failed",
			`upgrade failed (task "upgrade" failed: exit code 1)`,
		},
		"falls back": {talos.UpgradeFallsBack, installer, "going back to v1.12.4", "fall back (v1.12.5 aaaaaaaa to v1.12.4)"},
		"too far": {
			"", "ghcr.io/siderolabs/installer:v1.9.5", "host version 1.12.4 is too new to downgrade to Talos 1.9.5",
			`upgrade failed (task "upgrade" failed: exit code 1)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newHarness(t, withAgent)
			c, cp := one(r)
			began, before := time.Now(), cp.bootID(c)

			if tc.fault != "" {
				r.fw.Break("vm-11", tc.fault)
			}

			require.NoError(t, c.upgrade(cp, tc.image))
			cp.rebooted(c, before)
			cp.ready()

			version, schematic := c.version(cp)
			require.Equal(t, "v1.12.4", version)
			require.Empty(t, schematic)
			require.NoError(t, r.saw(tc.said))
			require.Len(t, r.happened(began), 2)
			require.Equal(t, "vm-11: "+tc.kind, r.happened(began)[1])
		})
	}
}

// A node that hangs does not answer until it is repaired and its machine is reset.
func TestNeverReturns(t *testing.T) {
	r := newHarness(t, withAgent)
	c, cp := one(r)
	began := time.Now()

	r.fw.Break("vm-11", talos.NeverReturns)
	require.NoError(t, c.upgrade(cp, installer))
	cp.stage(talos.StageHalted)
	require.Nil(t, c.serverCertificate(cp.addr()+":50000"))
	require.True(t, r.fw.Outages(began)[0].To.IsZero())

	r.fw.Mend("vm-11", talos.NeverReturns)
	cp.off()
	cp.on()
	cp.ready()

	version, _ := c.version(cp)
	require.Equal(t, "v1.12.5", version)
	r.until("the outage ends", func(context.Context) error {
		if r.fw.Outages(began)[0].To.IsZero() {
			return errors.New("it lasts")
		}

		return nil
	})
}

// A staged upgrade waits for the reboot, and a rollback goes back.
func TestStagedUpgradeAndRollback(t *testing.T) {
	r := newHarness(t, withAgent)
	c, cp := one(r)
	before := cp.bootID(c)

	require.ErrorContains(t, c.client(cp).Rollback(t.Context()), "no previous system")
	require.NoError(t, c.upgrade(cp, installer, client.WithUpgradeStage(true)))
	cp.rebooted(c, before)
	cp.ready()

	version, _ := c.version(cp)
	require.Equal(t, "v1.12.5", version)

	before = cp.bootID(c)
	require.NoError(t, c.client(cp).Rollback(t.Context()))
	cp.rebooted(c, before)
	cp.ready()

	version, schematic := c.version(cp)
	require.Equal(t, "v1.12.4", version)
	require.Empty(t, schematic)
}

func TestImages(t *testing.T) {
	r := newHarness(t)
	worker := r.machine(21, template()).on()
	cp := r.machine(11, template()).on()
	c := r.cluster(cp.addr())
	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1"))
	c.apply(worker, c.config(configmachine.TypeWorker, "worker-1"))
	c.bootstrap(cp)
	cp.ready()
	worker.ready()

	list := func(v *vm, ns common.ContainerdNamespace) (names []string) {
		stream, err := c.client(v).ImageList(t.Context(), ns)
		require.NoError(t, err)

		for {
			image, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return names
			}

			require.NoError(t, err)

			names = append(names, image.GetName())
		}
	}

	require.Equal(t, []string{"ghcr.io/siderolabs/kubelet:v1.34.2"}, list(worker, common.ContainerdNamespace_NS_SYSTEM))
	require.NoError(t, c.client(cp).ImagePull(t.Context(), common.ContainerdNamespace_NS_CRI,
		"registry.k8s.io/kube-apiserver:v1.35.0"))
	require.NoError(t, c.client(cp).ImagePull(t.Context(), common.ContainerdNamespace_NS_CRI,
		"registry.k8s.io/kube-apiserver:v1.35.0"))
	require.Equal(t, []string{
		"registry.k8s.io/kube-apiserver:v1.34.2", "registry.k8s.io/kube-apiserver:v1.35.0",
		"registry.k8s.io/kube-controller-manager:v1.34.2",
		"registry.k8s.io/kube-scheduler:v1.34.2",
	}, list(cp, common.ContainerdNamespace_NS_CRI))

	r.fw.Withdraw("kubelet:v1.35.9")

	err := c.client(cp).ImagePull(t.Context(), common.ContainerdNamespace_NS_SYSTEM, "ghcr.io/siderolabs/kubelet:v1.35.9")
	require.Equal(t, codes.NotFound, client.StatusCode(err))
	require.ErrorContains(t, err, `error pulling image: failed to pull image "ghcr.io/siderolabs/kubelet:v1.35.9"`)

	r.fw.Publish("kubelet:v1.35.9")
	require.NoError(t, c.client(cp).ImagePull(t.Context(), common.ContainerdNamespace_NS_SYSTEM,
		"ghcr.io/siderolabs/kubelet:v1.35.9"))

	err = c.client(cp).ImagePull(t.Context(), common.ContainerdNamespace_NS_UNKNOWN, "pause")
	require.Equal(t, codes.InvalidArgument, client.StatusCode(err))
}

// install runs an installer by the service of Talos 1.13, and returns what it ended with.
func (c *cluster) install(v *vm, image string) (int32, error) {
	instance := &common.ContainerdInstance{
		Driver: common.ContainerDriver_CONTAINERD, Namespace: common.ContainerdNamespace_NS_SYSTEM,
	}

	pull, err := c.client(v).ImageClient.Pull(c.Context(), &machineapi.ImageServicePullRequest{
		Containerd: instance, ImageRef: image,
	})
	for err == nil {
		_, err = pull.Recv()
	}

	if !errors.Is(err, io.EOF) {
		return 0, err
	}

	upgrade, err := c.client(v).LifecycleClient.Upgrade(c.Context(), &machineapi.LifecycleServiceUpgradeRequest{
		Containerd: instance, Source: &machineapi.InstallArtifactsSource{ImageName: image},
	})
	require.NoError(c, err)

	for {
		step, err := upgrade.Recv()
		if err != nil {
			return 0, err
		}

		if end, ok := step.GetProgress().GetResponse().(*machineapi.LifecycleServiceInstallProgress_ExitCode); ok {
			return end.ExitCode, nil
		}
	}
}

// speaksTLS12 tells whether the API server of a node speaks TLS 1.2.
func (c *cluster) speaksTLS12(v *vm) bool {
	conn, err := tls.Dial("tcp", v.addr()+":6443",
		&tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}) //nolint:gosec // on purpose
	if err != nil {
		return false
	}

	require.NoError(c, conn.Close())

	return true
}

// Talos 1.13 installs a system while it runs, and boots into it when it is told to. Earlier versions do not know the call.
// From 1.14 on, the API server speaks TLS 1.3 only.
func TestLifecycleService(t *testing.T) {
	later := "factory.talos.dev/metal-installer/" + schematicID + ":v1.13."

	r := newHarness(t, withAgent)
	c, cp := one(r)

	_, err := c.install(cp, later+"5")
	require.Equal(t, codes.Unimplemented, client.StatusCode(err))

	before := cp.bootID(c)
	require.NoError(t, c.upgrade(cp, later+"5"))
	cp.rebooted(c, before)
	cp.ready()

	began, before := time.Now(), cp.bootID(c)

	r.fw.Break("vm-11", talos.InstallerFails)

	code, err := c.install(cp, later+"9")
	require.NoError(t, err)
	require.EqualValues(t, 1, code)
	r.fw.Mend("vm-11", talos.InstallerFails)

	_, err = c.install(cp, "ghcr.io/siderolabs/installer:v1.14.1")
	require.Equal(t, codes.NotFound, client.StatusCode(err), "Talos does not publish it")

	code, err = c.install(cp, later+"9")
	require.NoError(t, err)
	require.Zero(t, code)
	require.Equal(t, before, cp.bootID(c), "it goes on with what it runs")
	// The outage before ends a moment after the node is ready.
	require.Empty(t, slices.DeleteFunc(r.fw.Outages(began), func(o talos.Outage) bool { return o.From.Before(began) }))

	version, _ := c.version(cp)
	require.Equal(t, "v1.13.5", version)

	require.NoError(t, c.client(cp).Reboot(t.Context()))
	cp.rebooted(c, before)
	cp.ready()

	version, schematic := c.version(cp)
	require.Equal(t, "v1.13.9", version)
	require.Equal(t, schematicID, schematic)
	require.Equal(t, []string{
		"vm-11: install (v1.13.5 aaaaaaaa to v1.13.9 aaaaaaaa)",
		`vm-11: upgrade failed (task "upgrade" failed: exit code 1)`,
		"vm-11: install (v1.13.5 aaaaaaaa to v1.13.9 aaaaaaaa)", "vm-11: upgrade (v1.13.5 aaaaaaaa to v1.13.9 aaaaaaaa)",
	}, r.happened(began))

	require.True(t, c.speaksTLS12(cp))

	before = cp.bootID(c)
	code, err = c.install(cp, "factory.talos.dev/metal-installer/"+schematicID+":v1.14.1")
	require.NoError(t, err)
	require.Zero(t, code)
	require.NoError(t, c.client(cp).Reboot(t.Context()))
	cp.rebooted(c, before)
	cp.ready()
	require.False(t, c.speaksTLS12(cp))

	// It knows no mode that reboots, and does not say what waits for a reboot.
	apply := &machineapi.ApplyConfigurationRequest{
		Data: c.config(configmachine.TypeControlPlane, "cp-1", "machine: {env: {A: b}}"), DryRun: true, Mode: reboot,
	}

	_, err = c.client(cp).ApplyConfiguration(t.Context(), apply)
	require.Equal(t, codes.Unimplemented, client.StatusCode(err))

	apply.Mode = auto
	reply, err := c.client(cp).ApplyConfiguration(t.Context(), apply)
	require.NoError(t, err)
	require.Equal(t, noReboot, reply.GetMessages()[0].GetMode())
}
