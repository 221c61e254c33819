package talos_test

import (
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"talos-proxmox/tests/lab/talos"
)

const (
	auto     = machineapi.ApplyConfigurationRequest_AUTO
	noReboot = machineapi.ApplyConfigurationRequest_NO_REBOOT
	reboot   = machineapi.ApplyConfigurationRequest_REBOOT
	staged   = machineapi.ApplyConfigurationRequest_STAGED
	try      = machineapi.ApplyConfigurationRequest_TRY
)

// What a change of each part of the configuration costs, as a dry run tells it beforehand.
func TestWhatNeedsAReboot(t *testing.T) {
	r := newHarness(t)
	c, cp := one(r)
	api := c.client(cp)
	began := time.Now()

	for patch, want := range map[string]machineapi.ApplyConfigurationRequest_Mode{
		"machine: {type: controlplane}":                   noReboot,
		"debug: true":                                     noReboot,
		"cluster: {allowSchedulingOnControlPlanes: true}": noReboot,
		"cluster: {apiServer: {image: 'registry.k8s.io/kube-apiserver:v1.34.3'}}":            noReboot,
		"machine: {certSANs: [a.lan]}":                                                       noReboot,
		"machine: {install: {image: 'ghcr.io/siderolabs/installer:v1.12.5'}}":                noReboot,
		"machine: {install: {extraKernelArgs: [quiet]}}":                                     noReboot,
		"machine: {network: {extraHostEntries: [{ip: 10.0.0.9, aliases: [registry]}]}}":      noReboot,
		"machine: {sysctls: {net.core.somaxconn: '65535'}}":                                  noReboot,
		"machine: {kubelet: {image: 'ghcr.io/siderolabs/kubelet:v1.34.3'}}":                  noReboot,
		"machine: {kubelet: {extraArgs: {max-pods: '150'}}}":                                 noReboot,
		"machine: {kernel: {modules: [{name: nvidia}]}}":                                     noReboot,
		"machine: {registries: {mirrors: {docker.io: {endpoints: ['https://mirror.lan']}}}}": noReboot,
		"machine: {nodeLabels: {tier: db}}":                                                  noReboot,
		"machine: {nodeTaints: {tier: 'db:NoSchedule'}}":                                     noReboot,
		"machine: {features: {kubePrism: {enabled: true, port: 7446}}}":                      noReboot,
		"machine: {time: {servers: [time.lan]}}":                                             noReboot,
		"apiVersion: v1alpha1\nkind: WatchdogTimerConfig\ndevice: /dev/watchdog0":            noReboot,

		"machine: {env: {A: b}}": reboot,
		"machine: {files: [{content: x, permissions: 0o644, path: /var/x, op: create}]}": reboot,
		"machine: {udev: {rules: ['SUBSYSTEM==\"drm\"']}}":                               reboot,
		"machine: {features: {diskQuotaSupport: false}}":                                 reboot,
		"machine: {sysctls: {a.b: c}, env: {A: b}}":                                      reboot,
	} {
		data := c.config(configmachine.TypeControlPlane, "cp-1", patch)

		reply, err := api.ApplyConfiguration(t.Context(),
			&machineapi.ApplyConfigurationRequest{Data: data, Mode: auto, DryRun: true})
		require.NoError(t, err, patch)
		require.Equal(t, want, reply.GetMessages()[0].GetMode(), patch)

		for _, mode := range []machineapi.ApplyConfigurationRequest_Mode{noReboot, try} {
			reply, err = api.ApplyConfiguration(t.Context(),
				&machineapi.ApplyConfigurationRequest{Data: data, Mode: mode, DryRun: true})
			if want == reboot {
				require.Equal(t, codes.InvalidArgument, client.StatusCode(err), patch)
				require.ErrorContains(t, err, "this config change can't be applied in immediate mode\ndiff:\n", patch)

				continue
			}

			require.NoError(t, err, patch)
			require.Equal(t, mode, reply.GetMessages()[0].GetMode())
		}
	}

	require.Empty(t, r.happened(began), "a dry run changes nothing")
}

// A staged configuration waits for the next reboot, whoever asks for it; until then the node has the one before.
func TestStagedConfiguration(t *testing.T) {
	r := newHarness(t)
	c, cp := one(r)
	began, before := time.Now(), cp.bootID(c)
	data := c.config(configmachine.TypeControlPlane, "cp-1", "machine: {env: {A: b}}",
		"machine: {sysctls: {net.core.somaxconn: '65535'}}")

	apply := func(mode machineapi.ApplyConfigurationRequest_Mode) *machineapi.ApplyConfiguration {
		reply, err := c.client(cp).ApplyConfiguration(t.Context(),
			&machineapi.ApplyConfigurationRequest{Data: data, Mode: mode})
		require.NoError(t, err)

		return reply.GetMessages()[0]
	}

	reply := apply(staged)
	require.Equal(t, staged, reply.GetMode())
	require.Equal(t, "Staged configuration to be applied after the next reboot", reply.GetModeDetails())
	require.NotContains(t, cp.active(c), "somaxconn")
	require.Contains(t, cp.stored(), "somaxconn")

	// it would still take a reboot
	dry, err := c.client(cp).ApplyConfiguration(t.Context(),
		&machineapi.ApplyConfigurationRequest{Data: data, Mode: auto, DryRun: true})
	require.NoError(t, err)
	require.Equal(t, reboot, dry.GetMessages()[0].GetMode())

	require.NoError(t, c.client(cp).Reboot(t.Context()))
	cp.rebooted(c, before)
	cp.ready()
	require.Contains(t, cp.active(c), "somaxconn")

	// and now nothing
	require.Equal(t, noReboot, apply(auto).GetMode())

	data = c.config(configmachine.TypeControlPlane, "cp-1", "machine: {sysctls: {net.core.somaxconn: '4096'}}",
		"machine: {env: {A: b}}")
	require.Equal(t, noReboot, apply(auto).GetMode())

	before = cp.bootID(c)
	data = c.config(configmachine.TypeControlPlane, "cp-1")
	reply = apply(auto)
	require.Equal(t, reboot, reply.GetMode())
	require.Contains(t, reply.GetModeDetails(),
		"Applied configuration with a reboot: this config change can't be applied in immediate mode")
	cp.rebooted(c, before)
	cp.ready()

	require.Equal(t, []string{"vm-11: stage", "vm-11: reboot", "vm-11: apply", "vm-11: reboot (for its configuration)"},
		r.happened(began))
}

// active is the configuration that a node runs with.
func (v *vm) active(c *cluster) string {
	v.Helper()

	cfg, err := safe.StateGetByID[*configres.MachineConfig](v.Context(), c.client(v).COSI, configres.ActiveID)
	require.NoError(v, err)
	data, err := cfg.Provider().Bytes()
	require.NoError(v, err)

	return string(data)
}

// stored is the configuration on a node's disk.
func (v *vm) stored() string {
	v.Helper()

	installed, ok := v.hw.Disks[0].Content().(*talos.Installed)
	require.True(v, ok)

	return string(installed.Config)
}
