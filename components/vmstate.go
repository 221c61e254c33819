package components

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/wait"
)

// VMState is what Proxmox VE says of the VM of a node that has one.
type VMState struct {
	// Running: the provider, which looks while a VM restarts, may have noted that it is off, and would start what runs.
	Running bool
	// Disks are those that the VM has, by their place in the plan. The program makes them larger, not the provider, whose state may be that
	// of before.
	Disks []int
	// Mark is another one for each thing that is left to be done on the VM and that the provider does not do; 0: nothing is.
	Mark int
}

// vmState is what is known of the VM of a node.
func (f *Findings) vmState(n plan.Node) VMState {
	if f == nil {
		return VMState{}
	}

	return f.states[n.Name]
}

// readers bounds how many VMs are looked at at once.
const readers = 8

// lookForStates asks what the VMs of nodes run with, and what is left to be done on them.
func (s *survey) lookForStates(ctx context.Context) error {
	var (
		nodes    = s.plan.Nodes()
		vms      = make([]proxmoxapi.VM, len(nodes))
		settings = make([]*proxmoxapi.Settings, len(nodes))
		unread   = make([]error, len(nodes))
		group    errgroup.Group
	)

	group.SetLimit(readers)

	for i, n := range nodes {
		at := slices.IndexFunc(s.vms, func(v proxmoxapi.VM) bool { return v.ID == n.VMID && v.Name == n.Name && !v.Container && !v.Template })
		if at < 0 || s.vms[at].Silent {
			continue
		}

		vms[i] = s.vms[at]

		group.Go(func() error {
			found, err := s.proxmox.Settings(ctx, vms[i])
			settings[i], unread[i] = &found, err

			return nil
		})
	}

	_ = group.Wait() // each error is kept by its node

	for i, n := range nodes {
		switch {
		case settings[i] == nil:
		case unread[i] != nil:
			if err := s.unreadable(n, unread[i]); err != nil {
				return err
			}
		default:
			if err := s.look(ctx, n, vms[i], *settings[i]); err != nil {
				return err
			}
		}
	}

	return s.lookForCores(ctx, nodes, vms, settings)
}

// unreadable: nothing depends on these settings where nothing is left to be done.
func (s *survey) unreadable(n plan.Node, err error) error {
	if errors.Is(err, proxmoxapi.ErrUnreachable) || errors.Is(err, proxmoxapi.ErrOffline) || errors.Is(err, proxmoxapi.ErrRefused) {
		return err
	}

	s.warnings = append(s.warnings, plan.Problem{
		Path: "pools." + n.Pool, Rule: fmt.Sprintf("what waits for the restart of VM %d, and whether its disks are as large as stated, is not known: %v", n.VMID, err),
		Value: n.Name, Remedy: "run 'pulumi up' again when its host answers",
	})

	return nil
}

// look notes what is left to be done on one VM.
func (s *survey) look(ctx context.Context, n plan.Node, v proxmoxapi.VM, settings proxmoxapi.Settings) error {
	var (
		state = VMState{Running: !v.Stopped}
		left  []string
	)

	for i, d := range n.Disks {
		has := settings.Disk(d.Interface)
		if has == 0 || has > d.SizeGiB {
			continue
		}

		state.Disks = append(state.Disks, i)

		if has < d.SizeGiB {
			left = append(left, fmt.Sprintf("%s %d", d.Interface, d.SizeGiB))
		}
	}

	owed, foreign := 0, []string(nil)

	for _, key := range settings.PendingKeys() {
		if !state.Running {
			break // They are taken with its start.
		}

		if asked, there := stated(n)[key]; there && asked == firstOf(settings.Pending[key]) {
			owed++
			left = append(left, key+" "+settings.Pending[key])
		} else {
			foreign = append(foreign, key)
		}
	}

	if len(foreign) > 0 {
		s.warnings = append(s.warnings, plan.Problem{
			Path: "pools." + n.Pool, Rule: fmt.Sprintf("settings of VM %d on host %s wait for its restart: %s", v.ID, v.Host, strings.Join(foreign, ", ")), Value: n.Name,
			Remedy: fmt.Sprintf("restart the node when it suits, or take them back there ('qm set %d --revert %s'); an update that restarts the node applies them", v.ID,
				strings.Join(foreign, ",")),
		})
	}

	if owed > 0 {
		// The same may be left twice, with a restart in between.
		process, err := s.proxmox.Process(ctx, v)
		if err != nil {
			return err
		}

		left = append(left, strconv.Itoa(process))
	}

	if len(left) > 0 {
		state.Mark = 1 + int(crc32.ChecksumIEEE([]byte(strings.Join(left, "\n")))%markSpan)
	}

	s.found.states[n.Name] = state

	return nil
}

// markSpan bounds marks, which are a number of seconds to the provider.
const markSpan = 10_000

// stated are the settings of a plan that take effect with a restart.
func stated(n plan.Node) map[string]string {
	return map[string]string{"cores": strconv.Itoa(n.Cores), "memory": strconv.Itoa(n.MemoryMiB), "cpu": n.CPUType}
}

// firstOf a setting is its value without options: "host,flags=+aes", "cputype=host".
func firstOf(setting string) string {
	first, _, _ := strings.Cut(setting, ",")
	if _, value, ok := strings.Cut(first, "="); ok {
		return value
	}

	return first
}

// lookForCores holds that a host has the processors of a VM that is to get more: Proxmox VE takes any number, and does not start the VM.
func (s *survey) lookForCores(ctx context.Context, nodes []plan.Node, vms []proxmoxapi.VM, settings []*proxmoxapi.Settings) error {
	var hosts []proxmoxapi.Host

	for i, n := range nodes {
		if settings[i] == nil || settings[i].Current == nil || settings[i].Current["cores"] == strconv.Itoa(n.Cores) {
			continue
		}

		if hosts == nil {
			found, err := s.proxmox.Hosts(ctx)
			if err != nil {
				return err
			}

			hosts = found
		}

		for _, h := range hosts {
			if h.Name == vms[i].Host && h.CPUs > 0 && n.Cores > h.CPUs {
				s.problems.Add("pools."+n.Pool+".cores", fmt.Sprintf("must be at most %d, the processors of host %s: a VM with more does not start", h.CPUs, h.Name),
					strconv.Itoa(n.Cores), "lower it, or place the node elsewhere")
			}
		}
	}

	return nil
}

// startGrace is how long Proxmox VE may take to start a VM that it has shut down for a restart.
const startGrace = 20 * time.Second

// holdRunning holds that a VM runs, with all that was asked for. Proxmox VE starts it after the task of its restart has ended, which the
// provider does not wait for, and tells nobody why it does not.
func (r *restarts) holdRunning(ctx context.Context, n plan.Node, restarted bool) error {
	v, there, err := r.proxmox.Find(ctx, n.VMID)
	if err != nil || !there {
		return err
	}

	if restarted {
		// A wait that is in vain is no error: the start below says why.
		_ = wait.Until(ctx, r.grace, r.say, func(ctx context.Context) (string, error) {
			if process, err := r.proxmox.Process(ctx, v); err != nil || process == 0 {
				return fmt.Sprintf("waiting for Proxmox VE to start VM %d", v.ID), err
			}

			return "", nil
		})
	}

	process, err := r.proxmox.Process(ctx, v)
	if err != nil {
		return err
	}

	if process == 0 {
		if err := r.identities.still(ctx, n); err != nil {
			return fmt.Errorf("VM %d is off, and is not started: %w", v.ID, err)
		}

		if err := r.proxmox.Start(ctx, v); err != nil {
			if again, asked := r.proxmox.Process(ctx, v); asked != nil || again == 0 {
				return fmt.Errorf("VM %d does not start: %w", v.ID, err)
			}
		}
	}

	if !restarted {
		return nil
	}

	settings, err := r.proxmox.Settings(ctx, v)
	if err == nil && len(settings.Pending) > 0 {
		err = fmt.Errorf("VM %d runs, and these of its settings still wait for a restart: %s", v.ID, strings.Join(settings.PendingKeys(), ", "))
	}

	return err
}

// grow makes the disks of a VM as large as the plan says, while it runs: the provider would write all options of its disks, restart it for
// that, and lose the size on the way. It runs in previews, too.
func (r *restarts) grow(ctx context.Context, n plan.Node) error {
	if r.ctx.DryRun() {
		short, cancel := context.WithTimeout(ctx, wait.Ask)
		defer cancel()

		ctx = short
	}

	v, there, err := r.proxmox.Find(ctx, n.VMID)
	if err != nil || !there {
		return err
	}

	if v.Name != n.Name {
		return fmt.Errorf("VM %d on host %s is %q, not %s: its disks are left alone", v.ID, v.Host, v.Name, n.Name)
	}

	settings, err := r.proxmox.Settings(ctx, v)
	if err != nil {
		return err
	}

	for _, d := range n.Disks {
		has := settings.Disk(d.Interface)
		if has == 0 || has >= d.SizeGiB {
			continue
		}

		message := fmt.Sprintf("%s: disk %s grows from %d to %d GiB; the VM runs on", n.Name, d.Interface, has, d.SizeGiB)
		if r.ctx.DryRun() {
			if err := r.ctx.Log.Info(message, nil); err != nil {
				return err
			}

			continue
		}

		r.say(message)

		if err := r.proxmox.Resize(ctx, v, d.Interface, d.SizeGiB); err != nil {
			return fmt.Errorf("disk %s of VM %d on host %s cannot grow to %d GiB: %w", d.Interface, v.ID, v.Host, d.SizeGiB, err)
		}

		after, err := r.proxmox.Settings(ctx, v)
		if err != nil {
			return err
		}

		if now := after.Disk(d.Interface); now < d.SizeGiB {
			return fmt.Errorf("disk %s of VM %d on host %s was made larger, and its configuration says %d in place of %d GiB. Run 'qm disk rescan --vmid %d' there, "+
				"then 'pulumi up' again", d.Interface, v.ID, v.Host, now, d.SizeGiB, v.ID)
		}
	}

	return nil
}
