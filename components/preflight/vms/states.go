package vms

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/preflight/hosts"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/spec"
)

// CheckStates asks what the VMs of nodes run with, and what is left to be done on them.
func (c *Checker) CheckStates(ctx context.Context) error {
	var (
		nodes    = c.Plan.Nodes()
		vms      = make([]proxmoxapi.VM, len(nodes))
		settings = make([]*proxmoxapi.Settings, len(nodes))
		unread   = make([]error, len(nodes))
		group    errgroup.Group
	)

	group.SetLimit(checks.MaxReaders)

	for i, n := range nodes {
		at := slices.IndexFunc(c.VMs, func(v proxmoxapi.VM) bool {
			return v.ID == n.VMID && v.Name == n.Name &&
				!v.Container && !v.Template
		})
		if at < 0 || c.VMs[at].Unreachable {
			continue
		}

		vms[i] = c.VMs[at]

		group.Go(func() error {
			found, err := c.Proxmox.Settings(ctx, vms[i])
			settings[i], unread[i] = &found, err

			return nil
		})
	}

	_ = group.Wait() // each error is kept by its node

	for i, n := range nodes {
		switch {
		case settings[i] == nil:
		case unread[i] != nil:
			if err := c.warnUnreadable(n, unread[i]); err != nil {
				return err
			}
		default:
			if err := c.checkState(ctx, n, vms[i], *settings[i]); err != nil {
				return err
			}
		}
	}

	c.warnUnits()
	c.warnFirstBoot(nodes, settings)
	c.checkStaticAddresses(ctx, nodes, vms, settings)

	return errors.Join(c.checkMoves(ctx, nodes, vms, settings), c.checkCores(ctx, nodes, vms, settings),
		c.checkNICs(ctx, nodes, vms, settings), c.checkDatastores(ctx, nodes, vms, settings))
}

// warnUnits: VMs of releases without cpuUnits have what the provider wrote, ten times the weight of every other VM.
func (c *Checker) warnUnits() {
	for _, units := range slices.Sorted(maps.Keys(c.unstatedUnits)) {
		c.Warnings = append(c.Warnings, spec.Problem{
			Path: "defaults.cpuUnits", Rule: fmt.Sprintf("is not set, and these VMs have a CPU weight of %d "+
				"instead of %d, the weight of new VMs: %s", units, proxmoxapi.DefaultCPUUnits,
				checks.UpTo(c.unstatedUnits[units], 3)),
			Remedy: fmt.Sprintf("set %d to change it while they run, or %d to keep it and give it to new VMs, too",
				proxmoxapi.DefaultCPUUnits, units),
		})
	}
}

// warnUnreadable: nothing depends on these settings where nothing is left to be done.
func (c *Checker) warnUnreadable(n plan.Node, err error) error {
	if checks.EndChecks(err) {
		return err
	}

	c.Warnings = append(c.Warnings, spec.Problem{
		Path: "pools." + n.Pool, Rule: fmt.Sprintf("could not determine which settings wait for the restart of VM "+
			"%d, and whether its disks have the configured sizes: %v", n.VMID, err),
		Value: n.Name, Remedy: "run 'pulumi up' again when its host answers",
	})

	return nil
}

// checkState notes what is left to be done on one VM.
func (c *Checker) checkState(ctx context.Context, n plan.Node, v proxmoxapi.VM, settings proxmoxapi.Settings) error {
	var (
		state = proxmoxvm.State{Running: !v.Stopped}
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

	switch units := settings.CPUUnits(); {
	case n.CPUUnits == 0 && units != proxmoxapi.DefaultCPUUnits:
		c.unstatedUnits[units] = append(c.unstatedUnits[units], n.Name)
	case n.CPUUnits != 0 && units != n.CPUUnits:
		left = append(left, fmt.Sprintf("cpuunits %d to %d", units, n.CPUUnits))
	}

	if n.ResourcePool != "" && v.Pool != n.ResourcePool {
		// The same may be left again and again, with nothing on the VM that tells one time from the next.
		left = append(left, "pool "+time.Now().String())
	}

	pending, foreign := 0, []string(nil)

	for _, key := range settings.PendingKeys() {
		if !state.Running {
			break // They are taken with its start.
		}

		asked, there := plannedSettings(n)[key]

		if there && asked == firstValue(settings.Pending[key]) ||
			proxmoxvm.IsPlannedDisk(n, key, settings.Current[key], settings.Pending[key]) {
			pending++
			left = append(left, key+" "+settings.Pending[key])
		} else {
			foreign = append(foreign, key)
		}
	}

	if len(foreign) > 0 {
		c.Warnings = append(c.Warnings, spec.Problem{
			Path: "pools." + n.Pool, Rule: fmt.Sprintf("settings of VM %d on host %s wait for its restart: %s", v.ID, v.Host,
				strings.Join(foreign, ", ")), Value: n.Name,
			Remedy: fmt.Sprintf("restart the node when convenient, or revert them there ('qm set %d --revert %s'); "+
				"an update "+
				"that restarts the node applies them", v.ID,
				strings.Join(foreign, ",")),
		})
	}

	if pending > 0 {
		// The same may be left twice, with a restart in between.
		process, err := c.Proxmox.Process(ctx, v)
		if err != nil {
			return err
		}

		left = append(left, strconv.Itoa(process))
	}

	if len(left) > 0 {
		state.Mark = 1 + int(crc32.ChecksumIEEE([]byte(strings.Join(left, "\n")))%markSpan)
	}

	c.States[n.Name] = state

	return nil
}

// markSpan bounds marks, which are a number of seconds to the provider.
const markSpan = 10_000

// plannedSettings are the settings of a plan that take effect with a restart.
func plannedSettings(n plan.Node) map[string]string {
	return map[string]string{"cores": strconv.Itoa(n.Cores), "memory": strconv.Itoa(n.MemoryMiB), "cpu": n.CPUType}
}

// firstValue of a setting is its value without options: "host,flags=+aes", "cputype=host".
func firstValue(setting string) string {
	first, _, _ := strings.Cut(setting, ",")
	if _, value, ok := strings.Cut(first, "="); ok {
		return value
	}

	return first
}

// checkCores checks that a host has the processors of a VM that is to get more.
func (c *Checker) checkCores(ctx context.Context, nodes []plan.Node, vms []proxmoxapi.VM,
	settings []*proxmoxapi.Settings,
) error {
	var all []proxmoxapi.Host

	for i, n := range nodes {
		if settings[i] == nil || settings[i].Current == nil || settings[i].Current["cores"] == strconv.Itoa(n.Cores) {
			continue
		}

		if all == nil {
			found, err := c.Proxmox.Hosts(ctx)
			if err != nil {
				return err
			}

			all = found
		}

		for _, h := range all {
			if h.Name == vms[i].Host {
				hosts.Checker{Checker: c.Checker}.CheckCores(n, h)
			}
		}
	}

	return nil
}

// checkNICs checks the network interfaces of VMs that are to get another bridge or MTU: Proxmox VE unplugs an interface
// before it finds that it cannot plug it.
func (c *Checker) checkNICs(ctx context.Context, nodes []plan.Node, vms []proxmoxapi.VM,
	settings []*proxmoxapi.Settings,
) error {
	for i, n := range nodes {
		if !c.mayChange(n, vms[i], settings[i]) {
			continue
		}

		for at, nic := range n.NICs {
			is := proxmoxapi.Properties(settings[i].Current[fmt.Sprintf("net%d", at)])
			moves := is["bridge"] != nic.Bridge
			if !moves && (nic.MTU <= 1 || is["mtu"] == strconv.Itoa(nic.MTU)) {
				continue
			}

			bridges, err := c.BridgesOf(ctx, vms[i].Host)
			if errors.Is(err, proxmoxapi.ErrHostUnreachable) {
				continue // warned of
			} else if err != nil {
				return err
			}

			host := hosts.Checker{Checker: c.Checker}
			if moves {
				host.CheckBridge(n, nic, vms[i].Host, bridges)
			}

			host.CheckMTU(n, nic, vms[i].Host, bridges)
		}
	}

	return nil
}

// checkDatastores checks the datastores of disks that VMs are to get, or that are to move: a move begins with the VM
// shut down.
func (c *Checker) checkDatastores(ctx context.Context, nodes []plan.Node, vms []proxmoxapi.VM,
	settings []*proxmoxapi.Settings,
) error {
	for i, n := range nodes {
		if !c.mayChange(n, vms[i], settings[i]) {
			continue
		}

		for _, d := range n.Disks {
			if datastore, _, _ := strings.Cut(settings[i].Current[d.Interface], ":"); datastore == d.Datastore {
				continue
			}

			stores, err := c.StoresOf(ctx, vms[i].Host)
			if errors.Is(err, proxmoxapi.ErrHostUnreachable) {
				break // warned of
			} else if err != nil {
				return err
			}

			hosts.Checker{Checker: c.Checker}.CheckDatastore(stores, vms[i].Host, d.Datastore, "images",
				"pools."+n.Pool+".disk.datastore")
		}
	}

	return nil
}

// mayChange says that an update may change the VM of a node as it is: one that was moved by hand keeps its bridges and
// datastores until the state is refreshed.
func (c *Checker) mayChange(n plan.Node, v proxmoxapi.VM, settings *proxmoxapi.Settings) bool {
	return settings != nil && settings.Current != nil && v.Host == n.Host && !c.Plan.Teardown &&
		!c.Plan.Replaces(n.Name)
}
