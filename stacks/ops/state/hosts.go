package state

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"talos-proxmox/components/proxmoxapi"
)

// vmLister lists the VMs of a host as the host knows them; *proxmoxapi.Client does.
type vmLister interface {
	VMsOn(ctx context.Context, host string) ([]proxmoxapi.VM, error)
}

// checkHosts checks that the hosts of VMs answer: for some time, the cluster repeats what it knew of a host that went
// down, and a refresh reads each VM on its host.
func checkHosts(ctx context.Context, hosts vmLister, vms []proxmoxapi.VM) error {
	names := map[string][]string{}
	for _, v := range vms {
		names[v.Host] = append(names[v.Host], v.Label())
	}

	var (
		asked = slices.Sorted(maps.Keys(names))
		errs  = make([]error, len(asked))
		done  sync.WaitGroup
	)

	for i, host := range asked {
		done.Go(func() {
			_, err := hosts.VMsOn(ctx, host)
			if errors.Is(err, proxmoxapi.ErrHostUnreachable) {
				err = fmt.Errorf("host %s does not answer, and has %s: start it; 'up --refresh=false' changes other nodes "+
					"meanwhile", host, strings.Join(names[host], ", "))
			}

			errs[i] = err
		})
	}

	done.Wait()

	return errors.Join(errs...)
}
