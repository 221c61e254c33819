package world

import "talos-proxmox/tests/lab/machine"

// agentEnabled tells whether the machine has the port for the guest agent.
func agentEnabled(conf map[string]string) bool {
	p, ok := parseProperties(conf["agent"], "enabled")

	return ok && p["enabled"] == "1"
}

// SilenceAgent lets the guest agent of a VM say nothing any more, or speak again. The VM runs as before, and need not
// exist yet.
func (w *World) SilenceAgent(id int, silent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent[id] = silent
}

// GuestFile has the guest agent of a VM read a file.
func (w *World) GuestFile(host string, id int, path string) (string, error) {
	files, err := w.guest(host, id)
	if err != nil {
		return "", err
	}

	text, err := files.ReadFile(path)

	return text, agentError(err)
}

// WriteGuestFile has the guest agent of a VM write a file.
func (w *World) WriteGuestFile(host string, id int, path, text string) error {
	files, err := w.guest(host, id)
	if err != nil {
		return err
	}

	return agentError(files.WriteFile(path, text))
}

func agentError(err error) error {
	if err == nil {
		return nil
	}

	return failf("Agent error: %s", err.Error())
}

// guest is what runs in a VM whose guest agent answers.
func (w *World) guest(host string, id int) (machine.Files, error) {
	if _, err := w.Interfaces(host, id); err != nil {
		return nil, err
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	v, err := w.find(host, id)

	switch {
	case err != nil:
		return nil, err
	case v.run == nil:
		return nil, failf("VM %d is not running", id)
	}

	files, ok := v.run.system.(machine.Files)
	if !ok {
		return nil, failf("Agent error: Command guest-file-open has been disabled")
	}

	return files, nil
}

// Interfaces asks the guest agent of a VM for its network interfaces.
func (w *World) Interfaces(host string, id int) ([]machine.Interface, error) {
	w.mu.Lock()

	v, err := w.find(host, id)
	if err == nil {
		switch {
		case v.conf["agent"] == "":
			err = failf("No QEMU guest agent configured")
		case v.run == nil:
			err = failf("VM %d is not running", id)
		case !v.run.agent || w.silent[id]:
			err = failf("QEMU guest agent is not running")
		}
	}

	var r *run
	if err == nil {
		r = v.run
	}
	w.mu.Unlock()

	if err != nil {
		return nil, err
	}

	<-r.ready

	if list := r.system.Agent(); list != nil {
		return list, nil
	}

	return nil, failf("QEMU guest agent is not running")
}
