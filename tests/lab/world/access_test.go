package world_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/world"
)

func TestWhoIsLetIn(t *testing.T) {
	w, _ := newWorld(t)

	require.NoError(t, w.VerifyToken(token.ID, "s"))
	require.EqualError(t, w.VerifyToken(token.ID, "x"), "Authentication failed!")
	require.EqualError(t, w.VerifyToken("root@pam!b", "x"), "Authentication failed!")

	_, err := w.Login(root.ID, "x")
	require.EqualError(t, err, "authentication failure")

	ticket, err := w.Login(root.ID, "p")
	require.NoError(t, err)

	who, err := w.VerifyTicket(ticket.Ticket, "", false)
	require.NoError(t, err)
	require.Equal(t, root.ID, who)

	_, err = w.VerifyTicket(ticket.Ticket, "", true)
	require.EqualError(t, err, "Permission denied - invalid csrf token")
	_, err = w.VerifyTicket("PVE:x", ticket.CSRF, true)
	require.EqualError(t, err, "Authentication failed!")
}

// The privileges that the life of a clone takes, one missing at a time.
func TestEachPrivilegeIsNeeded(t *testing.T) {
	needed := map[string][]string{
		"/vms": {
			"VM.Allocate", "VM.Audit", "VM.Clone", "VM.Config.CPU", "VM.Config.Disk", "VM.Config.Memory", "VM.Config.Network",
			"VM.Config.Options",
			"VM.Config.HWType", "VM.Config.CDROM", "VM.PowerMgmt",
		},
		"/storage/tank":           {"Datastore.AllocateSpace"},
		"/sdn/zones/localnetwork": {"SDN.Use"},
	}

	life := func(t *testing.T, without string) error {
		t.Helper()

		w, _ := newWorld(t)
		caller := world.Caller{ID: "pulumi@pve!least"}
		w.AddToken(caller.ID, "s")

		for path, list := range needed {
			var granted []string
			for _, p := range list {
				if p != without {
					granted = append(granted, p)
				}
			}
			w.Grant(caller.ID, path, granted...)
		}

		if err := w.Require(caller, "/vms/9000", "VM.Clone"); err != nil {
			return err
		}

		upid, err := w.Clone(caller, "pve1", 9000, world.CloneRequest{NewID: 401, Full: yes()})
		if err != nil {
			return err
		}
		done(t, w, upid, nil)

		for _, setting := range []string{
			"cores 4", "memory 4096", "onboot 1", "serial0 socket", "ide3 none,media=cdrom", "scsi1 tank:1",
			"net0 virtio,bridge=vmbr0",
		} {
			err := w.Update(caller, "pve1", 401, world.UpdateRequest{Conf: settingsOf([]string{setting})})
			if err != nil {
				return err
			}
		}

		if err := w.Require(caller, "/vms/401", "VM.PowerMgmt"); err != nil {
			return err
		}

		if len(w.VMs(caller, "")) == 0 {
			return errors.New("sees no VM")
		}

		return nil
	}

	require.NoError(t, life(t, ""))

	for _, list := range needed {
		for _, p := range list {
			err := life(t, p)
			require.Error(t, err, p)

			var refused *world.Error
			if errors.As(err, &refused) {
				require.Equal(t, 403, refused.Code)

				// Of a VM that is to be made it does not say what is missing.
				want := `^Permission check failed \(/.*` + p
				if p == "VM.Allocate" {
					want = `^Permission check failed$`
				}

				require.Regexp(t, want, refused.Reason)
			} else {
				require.Equal(t, "VM.Audit", p)
			}
		}
	}
}

// TestWhyATokenIsRefused: version 8 says it.
func TestWhyATokenIsRefused(t *testing.T) {
	w, _ := newWorld(t, func(o *world.Options) { o.Version = world.Version8 })

	require.NoError(t, w.VerifyToken(token.ID, "s"))
	require.EqualError(t, w.VerifyToken(token.ID, "x"), "invalid token value!")
	require.EqualError(t, w.VerifyToken("root@pam!b", "x"), "no such token 'b' for user 'root@pam'")
	require.EqualError(t, w.VerifyToken("a@pve!b", "x"), "no such user ('a@pve')")

	_, err := w.VerifyTicket("PVE:x", "", true)
	require.EqualError(t, err, "permission denied - invalid PVE ticket")
}

func TestAGrantFurtherDownDecides(t *testing.T) {
	w, _ := newWorld(t)
	caller := world.Caller{ID: "u@pve"}

	w.Grant(caller.ID, "/", "VM.Audit")
	require.NoError(t, w.Require(caller, "/vms/9000", "VM.Audit"))
	w.Grant(caller.ID, "/vms/9000")
	require.EqualError(t, w.Require(caller, "/vms/9000", "VM.Audit", "VM.Console"),
		"Permission check failed (/vms/9000, VM.Audit|VM.Console)")

	// Members of a pool have what is granted on the pool.
	require.NoError(t, w.CreatePool("talos", ""))
	require.NoError(t, w.UpdatePool("talos", world.PoolUpdate{VMs: []string{"9000"}}))
	w.Grant(caller.ID, "/pool/talos", "VM.Audit")
	require.NoError(t, w.Require(caller, "/vms/9000", "VM.Audit"))

	want := map[string][]string{"/pool/talos": {"VM.Audit"}, "/vms/9000": {"VM.Audit"}}
	for _, path := range []string{"/", "/access", "/access/groups", "/nodes", "/pool", "/sdn", "/storage", "/vms"} {
		want[path] = []string{"VM.Audit"}
	}

	require.Equal(t, want, w.Permissions(caller.ID))
	require.Equal(t, []string{"VM.Audit"}, w.PermissionsOn(caller.ID, "/vms/9001"))

	// What was taken away on a path is not listed.
	w.Grant(caller.ID, "/storage/tank")
	require.Equal(t, want, w.Permissions(caller.ID))
	require.Empty(t, w.PermissionsOn(caller.ID, "/storage/tank"))
}

func TestPools(t *testing.T) {
	w, _ := newWorld(t)

	require.NoError(t, w.CreatePool("talos", "nodes"))
	require.EqualError(t, w.CreatePool("talos", ""), "create pool failed: pool 'talos' already exists")
	require.Error(t, w.CreatePool("1 x", ""))

	require.NoError(t, w.CreatePool("other", ""))
	require.NoError(t, w.UpdatePool("talos", world.PoolUpdate{VMs: []string{"9000"}, Storages: []string{"tank"}}))
	require.EqualError(t, w.UpdatePool("talos", world.PoolUpdate{VMs: []string{"9000"}}),
		"update pools failed: VM 9000 is already a pool member")
	require.EqualError(t, w.UpdatePool("other", world.PoolUpdate{VMs: []string{"9000"}}),
		"update pools failed: VM 9000 belongs already to pool 'talos' and 'allow-move' is not set")
	require.EqualError(t, w.DeletePool("talos"), "delete pool failed: pool 'talos' is not empty (contains VM 9000)")

	p, err := w.Pool("talos")
	require.NoError(t, err)
	require.Equal(t, world.PoolInfo{ID: "talos", Comment: "nodes", VMs: []int{9000}, Storages: []string{"tank"}}, p)

	require.NoError(t, w.UpdatePool("other", world.PoolUpdate{VMs: []string{"9000"}, AllowMove: true}))
	require.NoError(t, w.UpdatePool("other", world.PoolUpdate{VMs: []string{"9000"}, Delete: true}))
	require.NoError(t, w.DeletePool("other"))
	require.NoError(t, w.DeletePool("talos"))
	require.EqualError(t, w.DeletePool("talos"), "delete pool failed: pool 'talos' does not exist")
	require.Empty(t, w.Pools(token))
}
