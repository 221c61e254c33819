package hosts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// clockSkew is how far the clock of a host may be from ours. A VM begins with the clock of its host, and a certificate
// that is made here holds from now on.
const clockSkew = time.Minute

// checkClock warns where a host that is to have new VMs has another time. Credentials that may not ask for it see
// nothing.
func (c Checker) checkClock(ctx context.Context, host string) error {
	at, err := c.Proxmox.Time(ctx, host)

	switch {
	case errors.Is(err, proxmoxapi.ErrRefused), errors.Is(err, proxmoxapi.ErrHostUnreachable):
		return nil
	case err != nil:
		// Nothing needs it.
		c.Warnings = append(c.Warnings, spec.Problem{Path: "proxmox.hosts", Rule: fmt.Sprintf("its clock was not "+
			"checked: %v", err), Value: host})

		return nil
	}

	off, word := time.Until(at), "ahead of"
	if off < 0 {
		off, word = -off, "behind"
	}

	if off > clockSkew {
		c.Warnings = append(c.Warnings, spec.Problem{
			Path: "proxmox.hosts", Rule: fmt.Sprintf("has a clock that is %s %s this machine's: nodes may reject "+
				"certificates that are issued here", off.Round(time.Minute), word),
			Value: host, Remedy: "correct the time of both ('chronyc tracking')",
		})
	}

	return nil
}
