package talos_test

import (
	"bytes"
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"net"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	storageapi "github.com/siderolabs/talos/pkg/machinery/api/storage"
	"github.com/siderolabs/talos/pkg/machinery/client"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

// A node without configuration answers few probes, and little else.
func TestMaintenance(t *testing.T) {
	r := newHarness(t)
	v := r.machine(11, template()).on()
	v.stage("maintenance")

	api := v.insecure()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "node", v.addr())

	var disks *storageapi.DisksResponse

	v.until("answers", func(context.Context) (err error) {
		disks, err = api.Disks(ctx)

		return err
	})
	require.Len(t, disks.GetMessages(), 1)
	require.Equal(t, "/dev/sda", disks.GetMessages()[0].GetDisks()[0].GetDeviceName())
	require.EqualValues(t, 40*gib, disks.GetMessages()[0].GetDisks()[0].GetSize())
	require.True(t, disks.GetMessages()[0].GetDisks()[0].GetSystemDisk())

	list, err := safe.StateListAll[*block.Disk](ctx, api.COSI)
	require.NoError(t, err)
	require.Equal(t, 1, list.Len())

	// which machine it is, everybody may know
	shown, err := safe.StateGetByID[*hardware.SystemInformation](ctx, api.COSI, hardware.SystemInformationID)
	require.NoError(t, err)
	require.Equal(t, v.hw.UUID, shown.TypedSpec().UUID)

	// what a real node does not do in maintenance mode either is no gap of the lab's
	_, err = api.Kubeconfig(ctx)
	require.Equal(t, codes.Unimplemented, client.StatusCode(err))
	require.Equal(t, codes.Unimplemented, client.StatusCode(api.Bootstrap(ctx, &machineapi.BootstrapRequest{})))

	_, err = api.Version(ctx)
	require.Equal(t, codes.Unimplemented, client.StatusCode(err))

	// secret resources are for admins, and no caller is one here
	_, err = safe.StateListAll[*configres.MachineConfig](ctx, api.COSI)
	require.Equal(t, codes.PermissionDenied, client.StatusCode(err))
}

// A client that verifies what it speaks to finds the node's addresses in the certificate, also those that came after
// the service, and no known node behind it.
func TestMaintenanceCertificate(t *testing.T) {
	r := newHarness(t)
	v := r.machine(11, template()).on()
	v.maintained()

	conn, err := tls.Dial("tcp", net.JoinHostPort(v.addr(), "50000"),
		&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	require.NoError(t, err)
	require.NoError(t, conn.Close())

	shown := conn.ConnectionState().PeerCertificates[0]
	require.NoError(t, shown.VerifyHostname(v.addr()))
	require.NoError(t, shown.VerifyHostname("127.0.0.1"))

	_, err = tls.Dial("tcp", net.JoinHostPort(v.addr(), "50000"),
		&tls.Config{RootCAs: stdx509.NewCertPool(), NextProtos: []string{"h2"}})
	require.ErrorAs(t, err, new(stdx509.UnknownAuthorityError))
}

func TestMaintenanceRefusesConfiguration(t *testing.T) {
	r := newHarness(t)
	v := r.machine(11, template()).on()
	v.maintained()

	c, api := r.cluster(v.addr()), v.insecure()
	good := c.config(configmachine.TypeControlPlane, "cp-1")

	for name, tc := range map[string]struct {
		data []byte
		mode machineapi.ApplyConfigurationRequest_Mode
		want codes.Code
		text string
	}{
		"not valid": {
			data: bytes.ReplaceAll(good, []byte("disk: /dev/sda"), []byte("disk: ''")),
			want: codes.InvalidArgument, text: "install disk",
		},
		"no such key": {data: append([]byte("machina: {}\n"), good...), want: codes.Unknown, text: "machina"},
		"not YAML":    {data: []byte("\t:"), want: codes.Unknown, text: "failed to parse config"},
		"mode no-reboot": {
			data: good, mode: machineapi.ApplyConfigurationRequest_NO_REBOOT, want: codes.Unimplemented,
			text: "no-reboot",
		},
		"mode staged": {
			data: good, mode: machineapi.ApplyConfigurationRequest_STAGED, want: codes.Unimplemented,
			text: "staged",
		},
		"valid, mode auto": {data: good, mode: machineapi.ApplyConfigurationRequest_AUTO, want: codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			reply, err := api.ApplyConfiguration(t.Context(),
				&machineapi.ApplyConfigurationRequest{Data: tc.data, Mode: tc.mode, DryRun: true})
			require.Equal(t, tc.want, client.StatusCode(err), "%v", err)

			if tc.want != codes.OK {
				require.ErrorContains(t, err, tc.text)
			} else {
				require.Contains(t, reply.GetMessages()[0].GetModeDetails(), "maintenance mode and does not have a config yet")
			}
		})
	}

	require.Equal(t, "maintenance", v.status().Stage)
}

// A configuration without the machine's own part is taken, and the node goes on waiting for that.
func TestMaintenancePartialConfiguration(t *testing.T) {
	r := newHarness(t)
	v := r.machine(11, template()).on()
	c := r.cluster(v.addr())

	c.apply(v, []byte("apiVersion: v1alpha1\nkind: HostnameConfig\nauto: off\nhostname: early\n"))
	c.apply(v, c.config(configmachine.TypeControlPlane, "cp-1"))

	api := c.client(v)
	v.until("answers", func(ctx context.Context) error {
		_, err := api.Version(ctx)

		return err
	})
}

// Nothing answers where there is no address, and nothing boots where there is nothing to boot.
func TestNothingThere(t *testing.T) {
	r := newHarness(t)
	blank := r.machine(11, nil).on()
	homeless := r.machine(12, template())

	r.mu.Lock()
	delete(r.leases, homeless.hw.NICs[0].MAC)
	r.mu.Unlock()
	homeless.on()

	blank.stage("no bootable device")
	homeless.stage("maintenance")

	_, err := homeless.insecure().Disks(t.Context())
	require.Equal(t, codes.Unavailable, client.StatusCode(err))

	// an address that comes late is as good
	r.reserve(homeless)
	homeless.until("answers", func(ctx context.Context) error {
		_, err := homeless.insecure().Disks(ctx)

		return err
	})
}
