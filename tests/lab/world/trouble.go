package world

import "slices"

// What comes over an installation from outside, and stays until it is taken away.

// Fill takes all room from a datastore, on all hosts, or gives it back.
func (w *World) Fill(storage string, full bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.full[storage] = full
}

// LoseQuorum makes the files of the cluster read-only, or writable again: too few hosts see each other. What runs goes
// on.
func (w *World) LoseQuorum(lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noQuorum = lost
}

// Quorate says whether the files of the cluster can be written.
func (w *World) Quorate() bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	return !w.noQuorum
}

// RevokeToken takes an API token away. The function that it returns brings it back, with what it may do.
func (w *World) RevokeToken(id string) (restore func()) {
	w.mu.Lock()
	defer w.mu.Unlock()

	secret := w.access.tokens[id]
	delete(w.access.tokens, id)

	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.access.tokens[id] = secret
	}
}

// RevokePrivilege takes a privilege from a user or token, wherever it has it. The function that it returns gives it
// back.
func (w *World) RevokePrivilege(id, privilege string) (restore func()) {
	w.mu.Lock()
	defer w.mu.Unlock()

	before := w.access.grants[id]
	now := map[string][]string{}

	for path, privileges := range before {
		now[path] = slices.DeleteFunc(slices.Clone(privileges), func(p string) bool { return p == privilege })
	}

	w.access.grants[id] = now

	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.access.grants[id] = before
	}
}

// RestorePower brings a host back whose power was cut, and starts the VMs on it that start with their host.
func (w *World) RestorePower(name string) error {
	if err := w.SetOffline(name, false); err != nil {
		return err
	}

	w.mu.Lock()

	var begun []int

	for _, id := range sortedKeys(w.vms) {
		if v := w.vms[id]; v.host == name && v.run == nil && intOf(v.conf, "onboot", 0) == 1 {
			begun = append(begun, id)
		}
	}
	w.mu.Unlock()

	for _, id := range begun {
		if _, err := w.Start(Caller{ID: superuser}, name, id); err != nil {
			return err
		}
	}

	return nil
}
