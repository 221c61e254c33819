package talosapi

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
)

// Members are the nodes of a cluster as the first of the targets that answers knows them, each with its first address.
// A node that does not answer itself is among them for a while. Without discovery, a node knows only itself.
func Members(ctx context.Context, targets []Target, c Credentials) ([]Target, error) {
	var errs []error

	for _, t := range targets {
		var found []Target

		err := with(ctx, t, c, func(ctx context.Context, api *client.Client) error {
			members, err := safe.StateListAll[*cluster.Member](ctx, api.COSI)
			if err != nil {
				return err
			}

			for m := range members.All() {
				if addresses := m.TypedSpec().Addresses; len(addresses) > 0 {
					found = append(found, Target{Name: m.TypedSpec().Hostname, Address: addresses[0].String()})
				}
			}

			return nil
		})
		if err == nil {
			return found, nil
		}

		// its words are enough
		errs = append(errs, fmt.Errorf("%s (%s) does not report the members of the cluster: "+
			"%s", t.Name, t.Address, brief(err)))
	}

	return nil, errors.Join(errs...)
}

// MACs are the hardware addresses of a node's network interfaces, as Proxmox VE writes them.
func MACs(ctx context.Context, t Target, c Credentials) ([]string, error) {
	var found []string

	err := with(ctx, t, c, func(ctx context.Context, api *client.Client) error {
		links, err := safe.StateListAll[*network.LinkStatus](ctx, api.COSI)
		if err != nil {
			return err
		}

		for l := range links.All() {
			if mac := l.TypedSpec().HardwareAddr.String(); mac != "" {
				found = append(found, strings.ToUpper(mac))
			}
		}

		return nil
	})
	if err != nil {
		// its words are enough
		return nil, fmt.Errorf("%s (%s) does not report its network interfaces: %s", t.Name, t.Address, brief(err))
	}

	return found, nil
}
