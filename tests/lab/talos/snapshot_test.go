package talos_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// snapshot is what a node's etcd stores.
func (c *cluster) snapshot(v *vm) []byte {
	c.Helper()

	stream, err := c.client(v).EtcdSnapshot(c.Context(), &machineapi.EtcdSnapshotRequest{})
	require.NoError(c, err)
	data, err := io.ReadAll(stream)
	require.NoError(c, err)
	require.NoError(c, stream.Close())

	return data
}

func note(t *testing.T, api kubernetes.Interface, name string) {
	t.Helper()

	_, err := api.CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// wipe makes a control plane forget its etcd.
func (c *cluster) wipe(v *vm) {
	c.Helper()

	before := v.bootID(c)
	require.NoError(c, c.client(v).ResetGeneric(c.Context(), &machineapi.ResetRequest{
		Reboot: true, SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{{Label: "EPHEMERAL", Wipe: true}},
	}))
	v.rebooted(c, before)
}

// recover uploads a snapshot as soon as the node takes it.
func (c *cluster) recover(v *vm, data []byte) {
	c.Helper()
	v.until("takes the snapshot", func(ctx context.Context) error {
		_, err := c.client(v).EtcdRecover(ctx, bytes.NewReader(data))

		return err
	})
}

// A snapshot is a database that etcd's tools read, and its hash.
func TestSnapshot(t *testing.T) {
	r := newHarness(t)
	c, cps := three(r, "", nil)
	api := c.kubernetes(cps[0])
	note(t, api, "kept")

	data := c.snapshot(cps[1])
	database, sum := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	require.Zero(t, len(database)%512)

	hash := sha256.Sum256(database)
	require.Equal(t, hash[:], sum)

	path := filepath.Join(t.TempDir(), "db")
	require.NoError(t, os.WriteFile(path, database, 0o600))
	db, err := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true})
	require.NoError(t, err)

	defer db.Close()

	require.NoError(t, db.View(func(tx *bolt.Tx) error {
		require.Equal(t, "3.6.0", string(tx.Bucket([]byte("meta")).Get([]byte("storageVersion"))))
		_, value := tx.Bucket([]byte("key")).Cursor().Last()
		require.Contains(t, string(value), "/registry/")

		return nil
	}))

	// a database needs no quorum to be read
	cps[0].off()
	cps[2].off()
	require.NotEmpty(t, c.snapshot(cps[1]))
}

// A cluster that lost its quorum comes back with what it had when the snapshot was taken.
func TestRecoverFromSnapshot(t *testing.T) {
	r := newHarness(t)
	worker := r.machine(21, template()).on()
	c, cps := three(r, "", nil)
	c.apply(worker, c.config(configmachine.TypeWorker, "worker-1"))

	api := c.kubernetes(cps[0])
	nodesReady(r, api.CoreV1().Nodes().List, "cp-1", "cp-2", "cp-3", "worker-1")
	note(t, api, "kept")

	data := c.snapshot(cps[0])
	note(t, api, "lost")

	before := c.memberIDs(cps[0])

	// two of three are lost with their disks, and the third cannot go on alone
	for _, v := range cps[1:] {
		v.off()
		v.hw.Disks[0].Write(template())
	}

	c.wipe(cps[0])

	// what is not right does not start
	bootstrap := func(in *machineapi.BootstrapRequest) {
		r.until("bootstraps", func(ctx context.Context) error { return c.client(cps[0]).Bootstrap(ctx, in) })
	}
	failed := func(text string) {
		r.until("etcd fails", func(context.Context) error {
			if _, state := service(t, c.client(cps[0]), "etcd"); state != "Failed" {
				return errors.New(state)
			}

			return r.saw(text)
		})
	}

	bootstrap(&machineapi.BootstrapRequest{RecoverEtcd: true})
	failed("/var/lib/etcd.snapshot: no such file or directory")

	c.recover(cps[0], data[:len(data)-sha256.Size])
	bootstrap(&machineapi.BootstrapRequest{RecoverEtcd: true})
	failed("snapshot missing hash but --skip-hash-check=false")

	broken := bytes.Clone(data)
	broken[len(broken)/2] ^= 1
	c.recover(cps[0], broken)
	bootstrap(&machineapi.BootstrapRequest{RecoverEtcd: true})
	failed("expected sha256")

	c.recover(cps[0], data)
	bootstrap(&machineapi.BootstrapRequest{RecoverEtcd: true})

	for i, v := range cps[1:] {
		v.on()
		c.apply(v, c.config(configmachine.TypeControlPlane, fmt.Sprintf("cp-%d", i+2)))
	}

	for _, v := range append(cps, worker) {
		v.ready()
	}

	nodesReady(r, api.CoreV1().Nodes().List, "cp-1", "cp-2", "cp-3", "worker-1")

	_, err := api.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
	require.NoError(t, err)

	_, err = api.CoreV1().ConfigMaps("default").Get(t.Context(), "lost", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err))

	after := c.memberIDs(cps[0])
	require.Len(t, after, 3)
	require.NotEqual(t, before, after)

	err = c.client(cps[1]).Bootstrap(t.Context(), &machineapi.BootstrapRequest{RecoverEtcd: true})
	require.Equal(t, codes.AlreadyExists, client.StatusCode(err))

	_, err = c.client(worker).EtcdRecover(t.Context(), bytes.NewReader(data))
	require.Equal(t, codes.Unimplemented, client.StatusCode(err))
}

// The copy of a database, which has no hash, is taken by who says so.
func TestRecoverWithoutHash(t *testing.T) {
	r := newHarness(t)
	c, cp := one(r)
	note(t, c.kubernetes(cp), "kept")

	data := c.snapshot(cp)
	c.wipe(cp)
	c.recover(cp, data[:len(data)-sha256.Size])
	r.until("bootstraps", func(ctx context.Context) error {
		return c.client(cp).Bootstrap(ctx, &machineapi.BootstrapRequest{RecoverEtcd: true, RecoverSkipHashCheck: true})
	})
	cp.ready()

	_, err := c.kubernetes(cp).CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
	require.NoError(t, err)
}
