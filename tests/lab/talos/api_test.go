package talos_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	clusterres "github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"talos-proxmox/tests/lab/journal"
)

// small is a control plane and a worker, configured and not bootstrapped.
func small(r *harness) (c *cluster, cp, worker *vm) {
	r.Helper()

	cp, worker = r.machine(11, template()).on(), r.machine(21, template()).on()
	c = r.cluster(cp.addr())
	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1"))
	c.apply(worker, c.config(configmachine.TypeWorker, "worker-1"))

	for _, v := range []*vm{cp, worker} {
		v.until("answers", func(ctx context.Context) error {
			_, err := c.client(v).Version(ctx)

			return err
		})
	}

	return c, cp, worker
}

func TestOnlyTheClustersOwnClients(t *testing.T) {
	r := newHarness(t)
	c, cp, _ := small(r)

	// no certificate at all
	_, err := cp.insecure().Disks(t.Context())
	require.Equal(t, codes.Unavailable, client.StatusCode(err))

	// one of another cluster, which trusts this node's CA
	stranger := r.cluster(cp.addr())
	own := *c.conf.Contexts[c.conf.Context]
	own.Crt, own.Key = stranger.conf.Contexts["lab"].Crt, stranger.conf.Contexts["lab"].Key
	api, err := client.New(t.Context(), client.WithConfigContext(&own), client.WithEndpoints(cp.addr()))
	require.NoError(t, err)
	defer api.Close()

	_, err = api.Version(t.Context())
	require.Equal(t, codes.Unavailable, client.StatusCode(err))
}

func TestRoles(t *testing.T) {
	r := newHarness(t)
	c, cp, worker := small(r)

	reader := c.withRoles(cp, role.MakeSet(role.Reader))

	for _, ctx := range []context.Context{t.Context(), client.WithNode(t.Context(), worker.addr())} {
		_, err := reader.Version(ctx)
		require.NoError(t, err)
		require.Equal(t, codes.PermissionDenied, client.StatusCode(reader.Reboot(ctx)))

		_, err = safe.StateListAll[*network.HostnameStatus](ctx, reader.COSI)
		require.NoError(t, err)
	}
}

// withRoles is a client whose certificate a node issued.
func (c *cluster) withRoles(v *vm, roles role.Set) *client.Client {
	c.Helper()

	reply, err := c.client(v).GenerateClientConfiguration(c.Context(), &machineapi.GenerateClientConfigurationRequest{
		Roles: roles.Strings(), CrtTtl: durationpb.New(time.Hour),
	})
	require.NoError(c, err)
	conf, err := clientconfig.FromBytes(reply.GetMessages()[0].GetTalosconfig())
	require.NoError(c, err)
	api, err := client.New(c.Context(), client.WithConfig(conf), client.WithEndpoints(v.addr()))
	require.NoError(c, err)
	c.Cleanup(func() { _ = api.Close() })

	return api
}

func TestForwarding(t *testing.T) {
	r := newHarness(t)
	c, cp, worker := small(r)
	api := c.client(cp)

	// one node: unary, stream, resources
	ctx := client.WithNode(t.Context(), worker.addr())

	version, err := api.Version(ctx)
	require.NoError(t, err)
	require.Equal(t, talosVersion, version.GetMessages()[0].GetVersion().GetTag())

	host, err := safe.StateGetByID[*network.HostnameStatus](ctx, api.COSI, network.HostnameID)
	require.NoError(t, err)
	require.Equal(t, "worker-1", host.TypedSpec().Hostname)

	stream, err := api.Read(ctx, "/proc/sys/kernel/random/boot_id")
	require.NoError(t, err)
	require.NoError(t, stream.Close())

	// several nodes: one message each, with the node's name
	ctx = client.WithNodes(t.Context(), cp.addr(), worker.addr())

	hosts, err := api.MachineClient.Hostname(ctx, empty())
	require.NoError(t, err)
	require.Len(t, hosts.GetMessages(), 2)

	for i, want := range []struct{ node, host string }{{cp.addr(), "cp-1"}, {worker.addr(), "worker-1"}} {
		require.Equal(t, want.node, hosts.GetMessages()[i].GetMetadata().GetHostname())
		require.Equal(t, want.host, hosts.GetMessages()[i].GetHostname())
	}

	_, err = safe.StateListAll[*network.HostnameStatus](ctx, api.COSI)
	require.Equal(t, codes.InvalidArgument, client.StatusCode(err))

	// by name, and not beyond loopback
	version, err = api.Version(client.WithNode(t.Context(), "worker-1"))
	require.NoError(t, err)
	require.Len(t, version.GetMessages(), 1)
	_, err = api.Version(client.WithNode(t.Context(), "192.0.2.1"))
	require.ErrorContains(t, err, "network is unreachable")
	_, err = api.Version(client.WithNode(t.Context(), "missing.lan"))
	require.ErrorContains(t, err, "no such host")

	// one of several is not there
	missing := r.addr(99).String()
	_, err = api.Memory(client.WithNodes(t.Context(), cp.addr(), missing))
	require.ErrorContains(t, err, missing)

	// a worker speaks for itself only
	api = c.client(worker)
	_, err = api.Version(client.WithNode(t.Context(), worker.addr()))
	require.NoError(t, err)
	_, err = api.Version(client.WithNode(t.Context(), cp.addr()))
	require.Equal(t, codes.PermissionDenied, client.StatusCode(err))
	require.ErrorContains(t, err, "no request forwarding")
}

func TestWorkersSayWhatTheyAreNot(t *testing.T) {
	r := newHarness(t)
	c, _, worker := small(r)
	api := c.client(worker)

	_, err := api.Kubeconfig(t.Context())
	require.ErrorContains(t, err, "only available on control plane nodes")
	worker.until("refuses to bootstrap for good", func(ctx context.Context) error {
		err := api.Bootstrap(ctx, &machineapi.BootstrapRequest{})
		require.Equal(t, codes.FailedPrecondition, client.StatusCode(err))

		if client.Status(err).Message() == "bootstrap is not available yet" {
			return err
		}

		require.ErrorContains(t, err, "can only be performed on a control plane node")

		return nil
	})
}

// The discovery service shows the members to each other.
func TestMembers(t *testing.T) {
	r := newHarness(t)
	c, cp, worker := small(r)
	api := c.client(cp)

	r.until("members are known", func(ctx context.Context) error {
		list, err := safe.StateListAll[*clusterres.Member](ctx, api.COSI)
		if err != nil {
			return err
		}

		got := map[string]string{}
		for m := range list.All() {
			got[m.Metadata().ID()] = m.TypedSpec().Addresses[0].String()
		}

		if len(got) != 2 {
			return context.DeadlineExceeded
		}

		require.Equal(t, map[string]string{"cp-1": cp.addr(), "worker-1": worker.addr()}, got)

		return nil
	})
}

// A sysctl of the configuration is in force.
func TestKernelParameters(t *testing.T) {
	r := newHarness(t)
	cp := r.machine(11, template()).on()
	c := r.cluster(cp.addr())
	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1", "machine: {sysctls: {vm.max_map_count: '262144'}}"))

	r.until("it is set", func(ctx context.Context) error {
		got, err := safe.StateGetByID[*runtimeres.KernelParamStatus](ctx, c.client(cp).COSI, "proc.sys.vm.max_map_count")
		if err == nil {
			require.Equal(t, "262144", got.TypedSpec().Current)
		}

		return err
	})
}

// What the lab does not do, and a real node does, is recorded.
func TestUnknownMethods(t *testing.T) {
	r := newHarness(t)
	c, cp, worker := small(r)

	_, err := c.client(cp).MachineClient.Containers(client.WithNode(t.Context(), worker.addr()),
		&machineapi.ContainersRequest{})
	require.Equal(t, codes.Unimplemented, client.StatusCode(err))
	require.ErrorContains(t, r.journal.Unknown(), "talos vm-21 /machine.MachineService/Containers")

	*r.journal = journal.Journal{}
}

func TestLiveConfiguration(t *testing.T) {
	r := newHarness(t)
	c, cp, _ := small(r)
	api := c.client(cp)

	before := cp.bootID(c)
	labelled := c.config(configmachine.TypeControlPlane, "cp-1", "machine: {nodeLabels: {tier: db}}")

	// a dry run tells and does nothing
	reply, err := api.ApplyConfiguration(t.Context(), &machineapi.ApplyConfigurationRequest{
		Data: labelled, Mode: machineapi.ApplyConfigurationRequest_AUTO, DryRun: true,
	})
	require.NoError(t, err)
	require.Equal(t, machineapi.ApplyConfigurationRequest_NO_REBOOT, reply.GetMessages()[0].GetMode())
	require.Contains(t, reply.GetMessages()[0].GetModeDetails(), "tier: db")

	reply, err = api.ApplyConfiguration(t.Context(),
		&machineapi.ApplyConfigurationRequest{Data: labelled, Mode: machineapi.ApplyConfigurationRequest_AUTO})
	require.NoError(t, err)
	require.Equal(t, "Applied configuration without a reboot", reply.GetMessages()[0].GetModeDetails())
	require.Equal(t, before, cp.bootID(c))

	// environment variables need a reboot
	other := c.config(configmachine.TypeControlPlane, "cp-1", "machine: {nodeLabels: {tier: db}, env: {A: b}}")

	_, err = api.ApplyConfiguration(t.Context(),
		&machineapi.ApplyConfigurationRequest{Data: other, Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT})
	require.Equal(t, codes.InvalidArgument, client.StatusCode(err))
	require.ErrorContains(t, err, "can't be applied in immediate mode")

	reply, err = api.ApplyConfiguration(t.Context(),
		&machineapi.ApplyConfigurationRequest{Data: other, Mode: machineapi.ApplyConfigurationRequest_AUTO})
	require.NoError(t, err)
	require.Equal(t, machineapi.ApplyConfigurationRequest_REBOOT, reply.GetMessages()[0].GetMode())
	cp.rebooted(c, before)

	// a try is taken back
	_, err = c.client(cp).ApplyConfiguration(t.Context(), &machineapi.ApplyConfigurationRequest{
		Data:           c.config(configmachine.TypeControlPlane, "tried", "machine: {env: {A: b}}"),
		Mode:           machineapi.ApplyConfigurationRequest_TRY,
		TryModeTimeout: durationpb.New(3 * time.Second),
	})
	require.NoError(t, err)
	cp.hostname(c, "tried")
	cp.hostname(c, "cp-1")
}

// hostname waits for a node to be called so.
func (v *vm) hostname(c *cluster, want string) {
	v.Helper()

	api := c.client(v)
	v.until("is called "+want, func(ctx context.Context) error {
		got, err := api.MachineClient.Hostname(ctx, empty())
		if err == nil && got.GetMessages()[0].GetHostname() != want {
			err = errors.New("it is called " + got.GetMessages()[0].GetHostname())
		}

		return err
	})
}
