package checks

import (
	"context"

	"talos-proxmox/components/proxmoxapi"
)

// CanAsk says that a host may be asked what it has for new nodes. Of the others it is known that they do not answer.
func (c *Checker) CanAsk(host string) bool { return c.Unreachable[host] == nil && !c.Unavailable[host] }

// StoresOf are the datastores of a host, by name. It is asked once; the error is that of Proxmox.Stores.
func (c *Checker) StoresOf(ctx context.Context, host string) (map[string]proxmoxapi.Store, error) {
	return once(ctx, c.stores, host, c.Proxmox.Stores)
}

// BridgesOf are the bridges of a host. It is asked once; the error is that of Proxmox.Bridges.
func (c *Checker) BridgesOf(ctx context.Context, host string) ([]proxmoxapi.Bridge, error) {
	return once(ctx, c.bridges, host, c.Proxmox.Bridges)
}

// once asks a host what it was not asked yet.
func once[T any](ctx context.Context, known map[string]T, host string,
	ask func(ctx context.Context, host string) (T, error),
) (T, error) {
	if found, asked := known[host]; asked {
		return found, nil
	}

	found, err := ask(ctx, host)
	if err == nil {
		known[host] = found
	}

	return found, err
}
