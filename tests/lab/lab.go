// Package lab runs a stand-in for a Proxmox VE installation and what runs on it, on loopback, so real that the
// published provider plugins work against it. One world (hosts, VMs, storages, tasks) is behind it; tests plant faults
// in its journal, compare its snapshots, and read from its timeline how long a run had to take.
package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"talos-proxmox/tests/lab/factory"
	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/pve"
	"talos-proxmox/tests/lab/sshd"
	"talos-proxmox/tests/lab/timeline"
	"talos-proxmox/tests/lab/world"
)

// Lab is a running lab.
type Lab struct {
	network     *Reservation
	endpoint    string
	credentials Credentials
	journal     *journal.Journal
	timeline    *timeline.Timeline
	world       *world.World
	server      *pve.Server
	factory     *factory.Factory
	web         *web
	login       SSH
	ssh         map[string]netip.AddrPort
	shells      []*sshd.Server
	leases      leases
	stop        func() bool
	close       sync.Once
	closed      error
}

// Start starts a lab, which is ready when Start returns and runs until Close or the end of the context.
func Start(ctx context.Context, c Config) (*Lab, error) {
	if c.Network == nil {
		var err error
		if c.Network, err = ReserveNetwork(blockBits); err != nil {
			return nil, err
		}
	}

	// From here on the network is the lab's, to be given back whatever happens.
	listener, err := c.Network.listener()
	if err != nil {
		return nil, err
	}

	l := &Lab{
		network: c.Network, endpoint: "https://" + listener.Addr().String(), credentials: c.Credentials,
		journal: &journal.Journal{}, timeline: timeline.New(),
	}

	if l.credentials == (Credentials{}) {
		l.credentials = world.NewCredentials()
	}

	if err := l.start(c, listener); err != nil {
		return nil, errors.Join(err, l.Close())
	}

	l.stop = context.AfterFunc(ctx, func() { _ = l.shut() })

	return l, nil
}

func (l *Lab) start(c Config, listener net.Listener) error {
	hosts := withAddresses(c.Hosts, l.network)
	options := world.Options{
		Version: c.Version,
		Hosts:   hosts, Credentials: l.credentials, Timeline: l.timeline, Latencies: c.Latencies,
		HAGroups: c.HAGroups, Broadcast: c.Broadcast,
	}

	l.leases = leases{free: c.DHCP}
	l.leases.reserve(c.Reservations)

	var err error
	if l.web, err = l.serveFactory(c); err != nil {
		return fmt.Errorf("the lab's Image Factory: %w", err)
	}

	if c.Firmware != nil {
		options.Firmware = c.Firmware(Services{
			Network: l.network.Network(), DHCP: l.leases.find, Factory: l.factory, Journal: l.journal, Timeline: l.timeline,
			Latencies: c.Latencies,
		})
	}

	if l.world, err = world.New(options); err != nil {
		return fmt.Errorf("the lab's hosts: %w", err)
	}

	for _, id := range c.Pools {
		if err := l.world.CreatePool(id, ""); err != nil {
			return fmt.Errorf("the lab's pool %q: %w", id, err)
		}
	}

	for _, t := range c.Templates {
		if err := l.world.AddTemplate(t); err != nil {
			return fmt.Errorf("the lab's template %q: %w", t.Name, err)
		}
	}

	for _, f := range c.Files {
		if err := l.addFile(c.Hosts, f); err != nil {
			return fmt.Errorf("the lab's file %s:iso/%s: %w", f.Storage, f.Name, err)
		}
	}

	if err := l.serveSSH(c, hosts); err != nil {
		return fmt.Errorf("the SSH servers of the lab's hosts: %w", err)
	}

	server := pve.New(l.world, l.journal, l.timeline)

	if err := server.Serve(listener); err != nil {
		return err
	}

	l.server = server

	return nil
}

// withAddresses gives hosts without an address one at the upper end of the network, where no node lies.
func withAddresses(hosts []Host, network *Reservation) []Host {
	out := append([]Host(nil), hosts...)

	for i := range out {
		if !out[i].Address.IsValid() && i < 200 {
			first := network.Network().Addr().As4()
			out[i].Address = netip.AddrFrom4([4]byte{first[0], first[1], 255, byte(253 - i)})
		}
	}

	return out
}

// Close ends everything that runs in the lab and gives its network back.
func (l *Lab) Close() error {
	if l.stop != nil {
		l.stop()
	}

	return l.shut()
}

func (l *Lab) shut() error {
	l.close.Do(func() {
		var all []error

		if l.server != nil {
			all = append(all, l.server.Close())
		}

		for _, s := range l.shells {
			all = append(all, s.Close())
		}

		if l.world != nil {
			l.world.Close()
		}

		if l.web != nil {
			all = append(all, l.web.close())
		}

		l.closed = errors.Join(append(all, l.network.Close())...)
	})

	return l.closed
}

// Endpoint is the URL of Proxmox VE.
func (l *Lab) Endpoint() string { return l.endpoint }

// Credentials are what Proxmox VE accepts.
func (l *Lab) Credentials() Credentials { return l.credentials }

// Network is the loopback network that everything in the lab is on.
func (l *Lab) Network() netip.Prefix { return l.network.Network() }

// World is the state of Proxmox VE.
func (l *Lab) World() *world.World { return l.world }

// Journal knows every call, and takes faults.
func (l *Lab) Journal() *journal.Journal { return l.journal }

// Timeline knows how long a run had to take.
func (l *Lab) Timeline() *timeline.Timeline { return l.timeline }

// Reserve adds DHCP reservations, for machines that are yet to boot.
func (l *Lab) Reserve(reservations map[string]netip.Addr) { l.leases.reserve(reservations) }
