package proxmoxvm

import "sync"

// AddressBook holds the addresses of nodes as they become known, for hooks that are about several of them.
type AddressBook struct {
	mu     sync.Mutex
	byName map[string]string
}

// Set enters the address of a node.
func (b *AddressBook) Set(name, address string) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.byName == nil {
		b.byName = map[string]string{}
	}

	b.byName[name] = address
}

// Get returns the address of a node; "" while it is not known.
func (b *AddressBook) Get(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.byName[name]
}
