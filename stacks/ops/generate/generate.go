// Package generate writes the stack file of a cluster that stands: made by hand, by another tool, or by this program
// whose file is lost. Proxmox VE tells the machines, the Talos API what runs in them. What neither tells is noted, and
// nothing is changed.
package generate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/talosapi"
)

// Proxmox is what is asked of Proxmox VE; *proxmoxapi.Client answers it.
type Proxmox interface {
	VMs(ctx context.Context) ([]proxmoxapi.VM, error)
	Config(ctx context.Context, vm proxmoxapi.VM) (proxmoxapi.VMConfig, error)
	Mappings(ctx context.Context) (map[string][]proxmoxapi.Mapped, error)
}

// Stack writes the stack file of what stands.
func Stack(ctx context.Context, o Options) (*Result, error) {
	proxmox, err := proxmoxapi.New(o.Access)
	if err != nil {
		return nil, err
	}

	machines, err := vms(ctx, proxmox, o)
	if err != nil {
		return nil, err
	}

	bundle, err := identify(ctx, machines, o)
	if err != nil {
		return nil, err
	}

	mappings, err := proxmox.Mappings(ctx)
	if err != nil {
		return nil, err
	}

	w := &writer{options: o, machines: machines, bundle: bundle, mappings: mappings}

	return w.write()
}

// vms are the machines of the cluster on Proxmox VE, by their VMIDs.
func vms(ctx context.Context, proxmox Proxmox, o Options) ([]*machine, error) {
	if (o.Tag == "") == (o.VMIDs == "") {
		return nil, errors.New("say which VMs are the cluster's: either --tag or --vmids")
	}

	ranges, err := rangesIn(o.VMIDs)
	if err != nil {
		return nil, err
	}

	all, err := proxmox.VMs(ctx)
	if err != nil {
		return nil, err
	}

	var found []*machine

	for _, v := range all {
		meant := slices.Contains(v.Tags, o.Tag) ||
			slices.ContainsFunc(ranges, func(r [2]int) bool { return r[0] <= v.ID && v.ID <= r[1] })
		if v.Template || v.Container || !meant {
			continue
		}

		config, err := proxmox.Config(ctx, v)
		if err != nil {
			return nil, err
		}

		// The cluster's list has the name of a VM ten seconds after it was created, and its configuration at once.
		v.Name = cmp.Or(v.Name, config.Settings["name"])
		found = append(found, &machine{vm: v, settings: config.Settings})
	}

	if len(found) == 0 {
		return nil, fmt.Errorf("no VM that the credentials may see has the tag or one of the VMIDs %q", o.Tag+o.VMIDs)
	}

	slices.SortFunc(found, func(a, b *machine) int { return a.vm.ID - b.vm.ID })

	return found, nil
}

// rangesIn reads "401-449,501".
func rangesIn(text string) ([][2]int, error) {
	var found [][2]int

	for _, part := range strings.FieldsFunc(text, func(c rune) bool { return c == ',' }) {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}

		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)

		if err := errors.Join(err1, err2); err != nil || from > to {
			return nil, fmt.Errorf("--vmids: %q is not a range, such as 401-449", part)
		}

		found = append(found, [2]int{from, to})
	}

	return found, nil
}

// identify finds out which VM is which node of the cluster, by the hardware addresses, and reads what each runs. It
// returns the cluster's secrets.
func identify(ctx context.Context, machines []*machine, o Options) (*secrets.Bundle, error) {
	// Talos' own Open creates a file that is not there.
	text, err := os.ReadFile(o.Talosconfig)
	if err != nil {
		return nil, err
	}

	config, err := clientconfig.FromBytes(text)
	if err != nil {
		return nil, err
	}

	selected, there := config.Contexts[config.Context]
	if !there {
		return nil, fmt.Errorf("%s has no context that is selected", o.Talosconfig)
	}

	credentials := talosapi.Credentials{CA: selected.CA, Certificate: selected.Crt, Key: selected.Key}

	var ask []talosapi.Target

	for _, address := range append([]string{o.ControlPlane}, append(selected.Endpoints, selected.Nodes...)...) {
		if address != "" && !slices.ContainsFunc(ask, func(t talosapi.Target) bool { return t.Address == address }) {
			ask = append(ask, talosapi.Target{Name: "control plane", Address: address})
		}
	}

	if len(ask) == 0 {
		return nil, fmt.Errorf("%s has no endpoint: name a control plane with --control-plane", o.Talosconfig)
	}

	bundle, err := talosapi.Secrets(ctx, ask, credentials, nil)
	if err != nil {
		return nil, err
	}

	members, err := talosapi.Members(ctx, ask, credentials)
	if err != nil {
		return nil, err
	}

	for _, t := range append(members, ask...) {
		if err := assign(ctx, machines, t, credentials); err != nil {
			return nil, err
		}
	}

	for _, m := range machines {
		if m.config == nil {
			return nil, fmt.Errorf("VM %d (%s) on host %s is not a node that answers: start it, or leave it out of --tag and "+
				"--vmids. Where nodes do not "+
				"discover each other, name all their addresses as nodes in the talosconfig", m.vm.ID, m.vm.Name, m.vm.Host)
		}
	}

	return bundle, nil
}

// assign finds the machine that a node runs in.
func assign(ctx context.Context, machines []*machine, t talosapi.Target, c talosapi.Credentials) error {
	address, err := netip.ParseAddr(t.Address)
	if err != nil {
		return nil //nolint:nilerr // a name stands for some address, which is among the others
	}

	macs, err := talosapi.MACs(ctx, t, c)
	if err != nil {
		return nil //nolint:nilerr // a member that is gone, or a virtual address; a machine without a node is said
	}

	for _, m := range machines {
		if m.config != nil || !slices.ContainsFunc(macs,
			func(mac string) bool { return strings.Contains(strings.ToUpper(m.settings["net0"]), mac) }) {
			continue
		}

		if m.system, err = talosapi.Ask(ctx, t, c); err != nil {
			return fmt.Errorf("%s (%s): %w", t.Name, t.Address, err)
		}

		m.address, m.config = address, m.system.Configuration
	}

	return nil
}
