package world_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/world"
)

func TestPower(t *testing.T) {
	w, f := newWorld(t)
	create(t, w, 100, "scsi0 tank:1")

	running := func() bool {
		v, err := w.VM("pve1", 100)
		require.NoError(t, err)

		return v.Running
	}

	_, err := w.Reboot(token, "pve1", 100, nil)
	require.EqualError(t, err, "VM 100 not running")
	upid, err := w.Shutdown(token, "pve1", 100, world.ShutdownRequest{})
	done(t, w, upid, err)

	upid, err = w.Start(token, "pve1", 100)
	done(t, w, upid, err)
	require.True(t, running())

	upid, err = w.Start(token, "pve1", 100)
	require.Equal(t, "VM 100 already running", ended(t, w, upid, err))

	_, err = w.Destroy(token, "pve1", 100, world.DestroyRequest{Unreferenced: true})
	require.EqualError(t, err, "VM 100 is running - destroy failed")

	upid, err = w.Reset(token, "pve1", 100)
	done(t, w, upid, err)
	require.True(t, running())

	upid, err = w.Shutdown(token, "pve1", 100, world.ShutdownRequest{})
	done(t, w, upid, err)
	require.False(t, running())

	boots, kills := f.count()
	require.Equal(t, []int{2, 2}, []int{boots, kills})
}

// TestStartInTheMiddleOfAReboot: a VM that is about to be started, and is started meanwhile, is not started twice. While
// the clean-up takes it for one that has not stopped, no other task can work on it.
func TestStartInTheMiddleOfAReboot(t *testing.T) {
	w, _ := newWorld(t)
	create(t, w, 100, "scsi0 tank:1")

	start := func() {
		upid, err := w.Start(token, "pve1", 100)
		done(t, w, upid, err)
	}
	starts := func() (n int) {
		for _, task := range w.Tasks("") {
			if task.Type == "qmstart" {
				n++
			}
		}

		return n
	}

	start()

	upid, err := w.Reboot(token, "pve1", 100, nil)
	done(t, w, upid, err)
	start()
	require.Equal(t, 2, starts())

	time.Sleep(3 * time.Second)

	upid, err = w.Stop(token, "pve1", 100)
	require.Equal(t, "can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout", ended(t, w, upid, err))
	require.Equal(t, 2, starts())

	// One that is left alone is started.
	create(t, w, 101, "scsi0 tank:1")
	upid, err = w.Start(token, "pve1", 101)
	done(t, w, upid, err)
	upid, err = w.Reboot(token, "pve1", 101, nil)
	done(t, w, upid, err)
	require.Eventually(t, func() bool { return starts() == 4 }, 10*time.Second, 50*time.Millisecond)
}

func TestAGuestThatDoesNotShutDown(t *testing.T) {
	w, f := newWorld(t)
	f.stubborn = true
	create(t, w, 100, "scsi0 tank:1")
	upid, err := w.Start(token, "pve1", 100)
	done(t, w, upid, err)

	soon := 10 * time.Millisecond

	upid, err = w.Shutdown(token, "pve1", 100, world.ShutdownRequest{Timeout: &soon})
	require.Equal(t, "VM quit/powerdown failed - got timeout", ended(t, w, upid, err))
	_, kills := f.count()
	require.Zero(t, kills)

	upid, err = w.Shutdown(token, "pve1", 100, world.ShutdownRequest{Timeout: &soon, Force: true})
	done(t, w, upid, err)
	_, kills = f.count()
	require.Equal(t, 1, kills)
}

func TestTheGuestGoesOffByItself(t *testing.T) {
	w, f := newWorld(t)
	create(t, w, 100, "scsi0 tank:1", "agent 1")
	upid, err := w.Start(token, "pve1", 100)
	done(t, w, upid, err)

	list, err := w.Interfaces("pve1", 100)
	require.NoError(t, err)
	require.Len(t, list, 1)

	first := f.last()
	first.Poweroff()
	require.Eventually(t, func() bool { v, err := w.VM("pve1", 100); return err == nil && !v.Running }, 5e9, 1e6)

	_, err = w.Interfaces("pve1", 100)
	require.EqualError(t, err, "VM 100 is not running")

	// What a machine asks for after its end is ignored.
	upid, err = w.Start(token, "pve1", 100)
	done(t, w, upid, err)
	first.Poweroff()
	first.Reset()
	time.Sleep(20 * time.Millisecond)

	v, err := w.VM("pve1", 100)
	require.NoError(t, err)
	require.True(t, v.Running)
	boots, _ := f.count()
	require.Equal(t, 2, boots)
}

func TestTheAgentOfAVMWithoutOne(t *testing.T) {
	w, _ := newWorld(t)
	create(t, w, 100, "scsi0 tank:1")
	_, err := w.Interfaces("pve1", 100)
	require.EqualError(t, err, "No QEMU guest agent configured")

	// A machine gets the agent's port with its next start.
	upid, err := w.Start(token, "pve1", 100)
	done(t, w, upid, err)
	require.NoError(t, update(w, 100, "agent 1"))
	_, err = w.Interfaces("pve1", 100)
	require.EqualError(t, err, "No QEMU guest agent configured")

	reboot(t, w, "pve1", 100)
	_, err = w.Interfaces("pve1", 100)
	require.NoError(t, err)
}

func TestABridgeThatIsNotThere(t *testing.T) {
	w, _ := newWorld(t)
	create(t, w, 100, "net0 virtio,bridge=vmbr7")
	upid, err := w.Start(token, "pve1", 100)
	require.Equal(t, "start failed: QEMU exited with code 1", ended(t, w, upid, err))

	log, err := w.TaskLog("pve1", upid)
	require.NoError(t, err)
	require.Contains(t, log, "bridge 'vmbr7' does not exist")
}

// Everybody pulls at one VM at the same time. Whatever comes of it, power-ons and power cuts alternate and nothing is
// left behind.
func TestManyHandsOnOnePowerButton(t *testing.T) {
	w, f := newWorld(t)
	create(t, w, 100, "scsi0 tank:1")

	var wait sync.WaitGroup

	for range 8 {
		wait.Go(func() {
			for range 25 {
				var upid string
				var err error

				switch rand.IntN(6) {
				case 0:
					upid, err = w.Start(token, "pve1", 100)
				case 1:
					upid, err = w.Stop(token, "pve1", 100)
				case 2:
					upid, err = w.Shutdown(token, "pve1", 100, world.ShutdownRequest{})
				case 3:
					upid, err = w.Reset(token, "pve1", 100)
				case 4:
					if boots, _ := f.count(); boots > 0 {
						f.last().Reset()
					}
				default:
					err = update(w, 100, "cores 2")
				}

				if err == nil && upid != "" {
					ended(t, w, upid, nil)
				}
			}
		})
	}

	wait.Wait()

	upid, err := w.Stop(token, "pve1", 100)
	done(t, w, upid, err)
	require.Eventually(t, func() bool { boots, kills := f.count(); return boots == kills }, 5e9, 1e6)

	upid, err = w.Destroy(token, "pve1", 100, world.DestroyRequest{Unreferenced: true})
	done(t, w, upid, err)
}

// TestBroadcast: the cluster learns of a VM, and of its power, with the broadcasts of its host; the host itself knows at
// once.
func TestBroadcast(t *testing.T) {
	w, err := world.New(world.Options{
		Hosts: []world.Host{{Name: "pve", Bridges: []string{"vmbr0"}}}, Broadcast: time.Hour,
	})
	require.NoError(t, err)
	t.Cleanup(w.Close)

	root := world.Caller{ID: "root@pam"}
	require.Empty(t, w.Heard(root))

	upid, err := w.Create(root, "pve", world.CreateRequest{VMID: 401, Conf: map[string]string{"name": "late"}})
	require.NoError(t, err)
	require.Equal(t, "OK", ended(t, w, upid, err))

	heard := w.Heard(root)
	require.Len(t, heard, 1)
	require.True(t, heard[0].Unheard)
	require.Empty(t, heard[0].Name)
	require.Equal(t, "late", w.VMs(root, "pve")[0].Name)
}
