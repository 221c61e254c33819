package world

import "talos-proxmox/tests/lab/machine"

// agentEnabled tells whether the machine has the port for the guest agent.
func agentEnabled(conf map[string]string) bool {
	p, ok := parseProperties(conf["agent"], "enabled")

	return ok && p["enabled"] == "1"
}

// SilenceAgent lets the guest agent of a VM say nothing any more, or speak again. The VM runs as before, and need not exist yet.
func (w *World) SilenceAgent(id int, silent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent[id] = silent
}

// GuestFile has the guest agent of a VM read a file.
func (w *World) GuestFile(host string, id int, path string) (string, error) {
	if _, err := w.Interfaces(host, id); err != nil {
		return "", err
	}

	w.mu.Lock()
	v, err := w.find(host, id)

	var r *run
	if err == nil {
		r = v.run
	}
	w.mu.Unlock()

	if err != nil {
		return "", err
	}

	if r == nil {
		return "", failf("VM %d is not running", id)
	}

	reader, ok := r.system.(machine.Reader)
	if !ok {
		return "", failf("Agent error: Command guest-file-open has been disabled")
	}

	text, err := reader.ReadFile(path)
	if err != nil {
		return "", failf("Agent error: %s", err.Error())
	}

	return text, nil
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
