package ubuntu

import (
	"fmt"
	"strings"
	"time"
)

// behind is how far a clock is that [Firmware.SetClockBehind] sets.
const behind = 5 * time.Hour

// SetClockBehind sets the clock of a machine, by the name of its VM, five hours back, or right again.
func (f *Firmware) SetClockBehind(node string, wrong bool) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.behind == nil {
		f.behind = map[string]bool{}
	}

	f.behind[node] = wrong
}

// now is what the clock of the machine shows.
func (s *system) now() time.Time {
	s.fw.mu.Lock()
	defer s.fw.mu.Unlock()

	if s.fw.behind[s.hw.Name] {
		return time.Now().Add(-behind)
	}

	return time.Now()
}

// running is the machine of a name, and its K3s.
func (f *Firmware) running(node string) (*system, *service, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	for _, s := range f.systems {
		if s.hw.Name != node {
			continue
		}

		s.mu.Lock()
		defer s.mu.Unlock()

		if s.service == nil {
			return s, nil, fmt.Errorf("K3s does not run on %s", node)
		}

		return s, s.service, nil
	}

	return nil, nil, fmt.Errorf("there is no machine %s", node)
}

// ExpireCertificates lets the certificates of a node expire, as when its K3s has run for a year: its kubelet is not
// known any more, and a server shows one that has expired. K3s renews them when it starts.
func (f *Firmware) ExpireCertificates(node string) error {
	_, k, err := f.running(node)
	if err != nil {
		return err
	}

	k.mu.Lock()
	server, cluster := k.server, k.cluster
	k.mu.Unlock()

	cluster.kube.NodeLost(k.config.NodeName)

	if server == nil {
		return nil
	}

	return server.api.Expire()
}

// Run runs a command on a machine, as an operator who has logged in: "sudo systemctl restart k3s".
func (f *Firmware) Run(node, command string) error {
	s, k, err := f.running(node)
	if err != nil {
		return err
	}

	name, restart := strings.CutPrefix(command, "sudo systemctl restart ")
	if !restart || name == "k3s" && k.role != "controlplane" || name == "k3s-agent" && k.role != "worker" {
		return fmt.Errorf("%s: the lab's machines do not know the command", command)
	}

	if code := s.restartK3s(name + ".service"); code != 0 {
		return fmt.Errorf("%s: exit status %d", command, code)
	}

	return nil
}
