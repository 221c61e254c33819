package ubuntu

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"talos-proxmox/tests/lab/cloudinit"
	"talos-proxmox/tests/lab/journal"
)

const (
	cloudInitLog    = "/var/log/cloud-init-output.log"
	cloudInitStatus = "/run/cloud-init/status.json"
)

// setUp is cloud-init: the network at each boot, and the rest the first time that an instance boots. What is wrong with
// what it is given is an error.
func (s *system) setUp() error {
	if s.hw.CloudInit == nil {
		return errors.New("there is no cloud-init drive: the machine does not know who it is")
	}

	if err := s.network(); err != nil {
		return err
	}

	c := s.hw.CloudInit
	sum := sha256.Sum256([]byte(fmt.Sprint(c.UserData, c.Addresses, c.Hostname)))
	instance := hex.EncodeToString(sum[:])

	if s.on.instance == instance {
		s.startAgent()

		return s.startUnits()
	}

	s.on.instance = instance
	s.finished(false)

	config, err := cloudinit.Parse(c.UserData)
	if err == nil {
		err = s.apply(config)
	}

	s.finished(true, err)

	if err == nil {
		s.on.files.append(cloudInitLog, "Cloud-init v. 25.3 finished\n")
	}

	return err
}

// network takes the address that the drive states, or asks DHCP.
func (s *system) network() error {
	c := s.hw.CloudInit
	if c.Format != "nocloud" || len(s.hw.NICs) == 0 {
		return fmt.Errorf("cloud-init finds no data source: the drive is of format %s", c.Format)
	}

	address := c.Addresses[0]
	if !address.IsValid() {
		var leased bool
		if address, leased = s.fw.opts.Lease(s.hw.NICs[0]); !leased {
			return nil // it goes on without a network
		}
	}

	s.mu.Lock()
	s.address = address
	s.mu.Unlock()

	return nil
}

// finished writes how far cloud-init is (cloud-init: status.json).
func (s *system) finished(yes bool, errs ...error) {
	now, failed := "null", []string{}
	if yes {
		now = strconv.FormatInt(time.Now().Unix(), 10) + ".5"
	}

	for _, err := range errs {
		if err != nil {
			failed = append(failed, strconv.Quote(err.Error()))
		}
	}

	s.on.files.write(cloudInitStatus, fmt.Sprintf(
		`{"v1": {"datasource": "DataSourceNoCloud [seed=/dev/sr0]", "stage": null, `+
			`"modules-final": {"errors": [%s], "finished": %s, "start": 1.5}}}`, strings.Join(failed, ", "), now))
}

// apply does what the user data say: files, then packages, then commands.
func (s *system) apply(c *cloudinit.Config) error {
	if c.Hostname == "" || len(c.Users) == 0 {
		return errors.New("the user data name no host and no user: the machine could not be told apart, or logged in to")
	}

	for _, f := range c.Files {
		s.on.files.write(f.Path, f.Content)

		mode, err := strconv.ParseUint(f.Permissions, 8, 12)
		if err != nil {
			return fmt.Errorf("%s: permissions %q are not octal", f.Path, f.Permissions)
		}

		s.on.files.chmod(f.Path, mode)
	}

	for _, mirror := range c.Apt.Primary {
		if slices.Contains(mirror.Arches, "default") {
			s.on.files.write(aptSources, mirror.URI)

			break
		}
	}

	if c.PackageUpdate {
		if err := s.fetch(s.archive()); err != nil {
			// cloud-init logs it, and goes on.
			s.on.files.append(cloudInitLog, "E: Failed to fetch "+s.archive()+": "+err.Error()+"\n")

			c.Packages = nil
		}
	}

	if !s.impose("packages", s.fw.opts.Latencies.Services) {
		return s.ctx.Err()
	}

	s.on.files.write(dpkgStatus, strings.Join(c.Packages, "\n"))

	for _, words := range c.Commands {
		if err := s.command(words); err != nil {
			return err
		}
	}

	return nil
}

// command is one of runcmd.
func (s *system) command(words []string) error {
	switch {
	case slices.Equal(words, []string{"systemctl", "daemon-reload"}):
		return nil
	case slices.Equal(words, []string{"systemctl", "start", "qemu-guest-agent"}):
		s.startAgent()

		return nil
	case len(words) > 4 && slices.Equal(words[:4], []string{"systemctl", "enable", "--now", "--no-block"}):
		for _, name := range words[4:] {
			s.on.files.write(wanted+name, "")
		}

		return s.startUnits()
	default:
		return fmt.Errorf("the lab's machines do not know the command %s", strings.Join(words, " "))
	}
}

// startAgent starts the guest agent where it is installed.
func (s *system) startAgent() {
	there := s.installed("qemu-guest-agent")

	s.mu.Lock()
	defer s.mu.Unlock()
	s.agent = there
}

// fetch asks the world outside, or a mirror, for something. Their faults are planted in the journal.
func (s *system) fetch(address string) error {
	s.mu.Lock()
	connected := s.address.IsValid()
	s.mu.Unlock()

	if !connected {
		return errors.New("Could not resolve host")
	}

	face := journal.Guest
	if u, err := url.Parse(address); err == nil && strings.HasSuffix(u.Hostname(), ".lan") {
		face = journal.Mirror
	}

	fault := s.fw.opts.Journal.Enter(face, s.hw.Name, "GET "+address)
	if fault == nil {
		return nil
	}

	return errors.New(fault.Message)
}
