package guests

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/machine"
)

// firmware says what happens, and keeps one file in each guest.
type firmware struct{ happened chan string }

type system struct {
	fw    firmware
	hw    machine.Hardware
	files map[string]string
}

func (f firmware) PowerOn(hw machine.Hardware) machine.System {
	f.happened <- fmt.Sprintf("%d on %s on", hw.VMID, hw.Host)

	return &system{f, hw, map[string]string{"/etc/name": hw.Name}}
}

func (s *system) Shutdown(context.Context) error { return nil }
func (s *system) Kill()                          { s.fw.happened <- fmt.Sprintf("%d off", s.hw.VMID) }
func (s *system) Agent() []machine.Interface     { return nil }

func (s *system) ReadFile(path string) (string, error) {
	if text, there := s.files[path]; there {
		return text, nil
	}

	return "", os.ErrNotExist
}

func (s *system) WriteFile(path, text string) error {
	s.fw.happened <- path + " is " + text
	s.files[path] = text

	return nil
}

// TestGuests follows a guest through its life, as the hook of a stand-in tells it.
func TestGuests(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	fw := firmware{make(chan string, 10)}

	g, err := Start(Options{
		Dir: dir, Firmware: fw, Files: []string{"/etc/name", "/run/order"}, Log: func(line string) { t.Error(line) },
	})
	require.NoError(t, err)

	expect := func(what string) {
		t.Helper()

		select {
		case got := <-fw.happened:
			require.Equal(t, what, got)
		case <-time.After(time.Minute):
			t.Fatal("nothing happens; expected: " + what)
		}
	}

	// The stand-in: a shell that calls the hook as QEMU's own command line says.
	standIn := exec.Command("sh", "-c", `"$0"/hook started 401 pve; sleep 60 & wait; :`, dir,
		"-id", "401", "-name", "cp-1", "-smbios", "type=1,uuid=1874a07d-1cfb-442c-8a66-666d01cdf52b")
	require.NoError(t, standIn.Start())

	t.Cleanup(func() {
		_ = standIn.Process.Kill()
		_ = standIn.Wait()
	})
	expect("401 on pve on")

	hook := func(event, host string) {
		t.Helper()
		require.NoError(t, exec.Command(filepath.Join(dir, "hook"), event, "401", host).Run())
	}

	copied := filepath.Join(dir, "401.root", "etc", "name")
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(copied)

		return err == nil && string(text) == "cp-1"
	}, time.Minute, 10*time.Millisecond, "the agent reads what is in the guest")

	require.NoError(t, os.MkdirAll(filepath.Join(dir, "401.root", "run"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "401.root", "run", "order"), []byte("upgrade"), 0o600))
	expect("/run/order is upgrade")

	hook("reset", "pve")
	expect("401 off")
	expect("401 on pve on")

	hook("stopped", "pve2") // where it is not
	hook("stopped", "pve")
	expect("401 off")
	require.NoError(t, g.Close())

	entries, err := os.ReadDir(dir)
	require.NoError(t, err)

	for _, e := range entries {
		require.False(t, strings.HasPrefix(e.Name(), "hook"), "the hook is gone")
	}
}
