package world_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/machine"
	"talos-proxmox/tests/lab/timeline"
	"talos-proxmox/tests/lab/world"
)

// image is what stands for an operating system image in these tests.
type image string

func (i image) CloneContent() machine.Content { return i }

// firmware boots anything and remembers what it found.
type firmware struct {
	mu    sync.Mutex
	boots []machine.Hardware
	// stubborn systems do not shut down.
	stubborn bool
	kills    int
}

type system struct{ *firmware }

func (f *firmware) PowerOn(hw machine.Hardware) machine.System {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.boots = append(f.boots, hw)

	return system{f}
}

func (f *firmware) last() machine.Hardware {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.boots[len(f.boots)-1]
}

func (f *firmware) count() (boots, kills int) {
	f.mu.Lock()
	defer f.mu.Unlock()

	return len(f.boots), f.kills
}

func (s system) Shutdown(ctx context.Context) error {
	if s.stubborn {
		<-ctx.Done()

		return ctx.Err()
	}

	return nil
}

func (s system) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kills++
}

func (s system) Agent() []machine.Interface { return []machine.Interface{{Name: "lo"}} }

var (
	root  = world.Caller{ID: "root@pam"}
	token = world.Caller{ID: "pulumi@pve!talos"}
)

// newWorld is a world of two hosts: tank and local on each for itself, nas shared, and the template 9000 on pve1.
func newWorld(t *testing.T, change ...func(*world.Options)) (*world.World, *firmware) {
	t.Helper()

	storages := []world.Storage{
		{Name: "tank", Type: "lvmthin", Content: []string{"images"}},
		{Name: "local", Type: "dir", Content: []string{"iso", "images", "snippets"}},
		{Name: "nas", Type: "nfs", Content: []string{"images", "iso"}},
	}

	f := &firmware{}
	o := world.Options{
		Firmware:    f,
		Credentials: world.Credentials{TokenID: token.ID, TokenSecret: "s", Username: root.ID, Password: "p"},
		Hosts: []world.Host{
			{Name: "pve1", Storages: append([]world.Storage{{Name: "zfs", Type: "zfspool", Content: []string{"images"}}},
				storages...)},
			{Name: "pve2", Storages: storages},
		},
	}

	for _, fn := range change {
		fn(&o)
	}

	w, err := world.New(o)
	require.NoError(t, err)
	t.Cleanup(w.Close)

	require.NoError(t, w.AddTemplate(world.Template{
		Name: "base", VMID: 9000, Host: "pve1", Storage: "tank", DiskGiB: 10,
		Content: image("talos"),
	}))
	require.NoError(t, w.AddFile("pve1", "local", "iso", "talos.iso", 100*world.MiB, image("iso")))

	return w, f
}

// ended waits for a task and returns its exit status.
func ended(t *testing.T, w *world.World, upid string, err error) string {
	t.Helper()
	require.NoError(t, err)

	node := strings.Split(upid, ":")[1]

	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		task, err := w.Task(node, upid)
		require.NoError(t, err)

		if !task.End.IsZero() {
			return task.ExitStatus
		}
	}

	require.FailNow(t, "the task does not end", upid)

	return ""
}

// done waits for a task that must succeed.
func done(t *testing.T, w *world.World, upid string, err error) {
	t.Helper()
	require.Equal(t, "OK", ended(t, w, upid, err))
}

// reboot restarts a VM through Proxmox VE, and waits for the task that starts it.
func reboot(t *testing.T, w *world.World, host string, id int) {
	t.Helper()

	upid, err := w.Reboot(token, host, id, nil)
	done(t, w, upid, err)

	v, err := w.VM(host, id)
	require.NoError(t, err)
	require.False(t, v.Running, "the task has ended, and the VM is off")

	require.Eventually(t, func() bool { v, err = w.VM(host, id); return err == nil && v.Running }, 10*time.Second,
		time.Millisecond)
}

func config(t *testing.T, w *world.World, host string, id int) map[string]any {
	t.Helper()

	conf, err := w.Config(host, id, false)
	require.NoError(t, err)

	return conf
}

// create makes a VM of the settings, "key value" each, on pve1.
func create(t *testing.T, w *world.World, id int, settings ...string) {
	t.Helper()

	upid, err := w.Create(token, "pve1", world.CreateRequest{VMID: id, Conf: settingsOf(settings)})
	done(t, w, upid, err)
}

func settingsOf(settings []string) map[string]string {
	conf := map[string]string{}

	for _, s := range settings {
		key, value, _ := strings.Cut(s, " ")
		conf[key] = value
	}

	return conf
}

func update(w *world.World, id int, settings ...string) error {
	return w.Update(token, "pve1", id, world.UpdateRequest{Conf: settingsOf(settings)})
}

func clone(t *testing.T, w *world.World, r world.CloneRequest) {
	t.Helper()

	upid, err := w.Clone(token, "pve1", 9000, r)
	done(t, w, upid, err)
}

func volumes(w *world.World) []string {
	var ids []string
	for _, v := range w.Snapshot().Volumes {
		ids = append(ids, v.ID)
	}

	return ids
}

func TestVMIDs(t *testing.T) {
	w, _ := newWorld(t)

	id, err := w.NextID(0)
	require.NoError(t, err)
	require.Equal(t, 100, id)

	id, err = w.NextID(4711)
	require.NoError(t, err)
	require.Equal(t, 4711, id)

	_, err = w.NextID(9000)
	require.EqualError(t, err, "Parameter verification failed. (vmid: VM 9000 already exists)")
}

func TestWhatIsNotThere(t *testing.T) {
	w, _ := newWorld(t)

	_, err := w.VM("pve1", 101)
	require.EqualError(t, err, "Configuration file 'nodes/pve1/qemu-server/101.conf' does not exist")

	_, err = w.Clone(token, "pve2", 9000, world.CloneRequest{NewID: 101})
	require.EqualError(t, err, "unable to find configuration file for VM 9000 on node 'pve2'")

	_, err = w.Start(token, "pve9", 101)
	require.EqualError(t, err,
		"hostname lookup 'pve9' failed - failed to get address info for: pve9: Name or service not known")

	// The calls that only start a task find out in the task.
	upid, err := w.Start(token, "pve1", 101)
	require.Equal(t, "Configuration file 'nodes/pve1/qemu-server/101.conf' does not exist", ended(t, w, upid, err))

	require.NoError(t, w.SetOffline("pve2", true))
	_, err = w.Start(token, "pve2", 101)
	require.EqualError(t, err, "No route to host")
}

func TestATaskThatIsMadeToFail(t *testing.T) {
	w, _ := newWorld(t)
	before := w.Snapshot()

	caller := token
	caller.Task = &world.TaskFault{Message: "disk full"}

	upid, err := w.Clone(caller, "pve1", 9000, world.CloneRequest{NewID: 401})
	require.Equal(t, "disk full", ended(t, w, upid, err))
	require.Equal(t, before, w.Snapshot(), "nothing is left of it")

	upid, err = w.Create(caller, "pve1", world.CreateRequest{VMID: 401, Conf: map[string]string{"scsi0": "tank:1"}})
	require.Equal(t, "disk full", ended(t, w, upid, err))
	require.Equal(t, before, w.Snapshot(), "nothing is left of it")

	caller.Task = &world.TaskFault{Message: "WARNINGS: 1", Late: true}
	upid, err = w.Clone(caller, "pve1", 9000, world.CloneRequest{NewID: 401})
	require.Equal(t, "WARNINGS: 1", ended(t, w, upid, err))

	_, err = w.VM("pve1", 401)
	require.NoError(t, err, "the clone is there all the same")

	log, err := w.TaskLog("pve1", upid)
	require.NoError(t, err)
	require.Equal(t, []string{
		"creating a clone of VM 9000 with ID 401", "clone of VM 9000 is complete", "TASK ERROR: WARNINGS: 1",
	}, log)
}

func TestAnInterruptedTaskLeavesNothing(t *testing.T) {
	w, _ := newWorld(t, func(o *world.Options) { o.Latencies.Clone = time.Hour })
	before := w.Snapshot()

	upid, err := w.Clone(token, "pve1", 9000, world.CloneRequest{NewID: 401})
	require.NoError(t, err)
	require.NoError(t, w.StopTask("pve1", upid))
	require.Equal(t, "interrupted by signal", ended(t, w, upid, nil))
	require.Equal(t, before, w.Snapshot())

	require.Len(t, w.Tasks("pve1"), 1)
	require.Empty(t, w.Tasks("pve2"))

	_, err = w.Task("pve1", "UPID:pve1:00000000:00000000:00000000:x::u@pam:")
	require.EqualError(t, err, "Parameter verification failed. (upid: no such task)")
	_, err = w.Task("pve1", "nonsense")
	require.EqualError(t, err, "Parameter verification failed. (upid: unable to parse worker upid)")
}

func TestTheChainOfOneVM(t *testing.T) {
	tl := timeline.New()
	w, f := newWorld(t, func(o *world.Options) {
		o.Timeline = tl
		o.Latencies = timeline.Latencies{
			Clone: 30 * time.Millisecond, Start: 20 * time.Millisecond,
			Stop: 10 * time.Millisecond,
		}
	})

	for _, id := range []int{401, 402} {
		clone(t, w, world.CloneRequest{NewID: id, Name: "cp"})
	}

	upid, err := w.Start(token, "pve1", 401)
	done(t, w, upid, err)

	hw := f.last()
	require.Equal(t, "start", hw.After.Name)

	boot, err := tl.Wait(t.Context(), "boot", "cp", 40*time.Millisecond, hw.After)
	require.NoError(t, err)
	hw.Advance(boot)

	upid, err = w.Stop(token, "pve1", 401)
	done(t, w, upid, err)

	// What the other VM did is not on the path.
	r := tl.Report()
	require.Equal(t, 100*time.Millisecond, r.CriticalPath)

	var chain []string
	for _, s := range r.Chain {
		chain = append(chain, s.Name)
	}
	require.Equal(t, []string{"clone", "start", "boot", "stop"}, chain)
}

// log is what a task has printed.
func log(t *testing.T, w *world.World, host, upid string) []string {
	t.Helper()

	lines, err := w.TaskLog(host, upid)
	require.NoError(t, err)

	return lines
}
