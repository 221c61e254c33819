package ubuntu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Where systemd keeps its units, and which of them are enabled.
const (
	units  = "/etc/systemd/system/"
	wanted = units + "multi-user.target.wants/"
)

// unit is what the lab heeds of a unit file.
type unit map[string][]string

// keys are those of unit files that the lab knows.
var keys = []string{
	"Description", "Documentation", "Wants", "After", "ConditionPathExists", "StartLimitIntervalSec", "Type", "ExecStart",
	"Restart", "RestartSec",
	"RestartPreventExitStatus", "StandardOutput", "StandardError", "WantedBy", "PathChanged", "Unit",
}

func (s *system) unit(name string) (unit, error) {
	text, there := s.on.files.read(units + name)
	if !there {
		return nil, fmt.Errorf("Unit file %s does not exist.", name) // systemd's words
	}

	u := unit{}

	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "[") {
			continue
		}

		key, value, ok := strings.Cut(line, "=")
		if !ok || !slices.Contains(keys, key) {
			return nil, fmt.Errorf("%s: the lab's systemd does not know %q", name, line)
		}

		u[key] = append(u[key], value)
	}

	return u, nil
}

func (u unit) get(key string) string {
	if len(u[key]) == 0 {
		return ""
	}

	return u[key][0]
}

// startUnits starts what is enabled, in the background.
func (s *system) startUnits() error {
	var errs []error

	for _, path := range s.on.files.under(wanted) {
		name := strings.TrimPrefix(path, wanted)

		switch {
		case name == "k3s.service", name == "k3s-agent.service":
			s.work.Go(func() { s.keepK3s(name) })
		case strings.HasSuffix(name, ".path"):
			// Something has to happen first: see changed.
			_, err := s.unit(name)
			errs = append(errs, err)
		default:
			errs = append(errs, s.start(name))
		}
	}

	return errors.Join(errs...)
}

// start starts a unit in the background, unless it runs.
func (s *system) start(name string) error {
	u, err := s.unit(name)
	if err != nil {
		return err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.units[name] || s.ctx.Err() != nil {
		return nil
	}

	s.units[name] = true

	s.work.Go(func() {
		s.oneshot(u)

		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.units, name)
	})

	return nil
}

// changed starts what waits for a file to be changed. Who writes it while that runs is not heard, as systemd would not
// hear it.
func (s *system) changed(path string) error {
	var errs []error

	for _, link := range s.on.files.under(wanted) {
		name := strings.TrimPrefix(link, wanted)
		if !strings.HasSuffix(name, ".path") {
			continue
		}

		u, err := s.unit(name)
		if err == nil && u.get("PathChanged") == path {
			err = s.start(u.get("Unit"))
		}

		errs = append(errs, err)
	}

	return errors.Join(errs...)
}

// again is how soon the lab's systemd restarts what has failed, whatever RestartSec says: time is the lab's.
const again = 200 * time.Millisecond

// oneshot runs a unit until it succeeds, or fails for good.
func (s *system) oneshot(u unit) {
	if path, negated := strings.CutPrefix(u.get("ConditionPathExists"), "!"); negated {
		if _, there := s.on.files.read(path); there {
			return
		}
	}

	log, _ := strings.CutPrefix(u.get("StandardOutput"), "append:")

	for s.ctx.Err() == nil {
		status := s.execute(u.get("ExecStart"), log)

		if status == 0 || u.get("Restart") != "on-failure" ||
			slices.Contains(strings.Fields(u.get("RestartPreventExitStatus")), fmt.Sprint(status)) {
			return
		}

		select {
		case <-time.After(again):
		case <-s.ctx.Done():
		}
	}
}
