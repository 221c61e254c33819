package removal

import (
	"context"
	"fmt"

	"talos-proxmox/components/rollout"
)

// tolerateIfForced is what becomes of a step of a removal that has failed. A node that is named in
// lifecycle.forceRemove is removed nevertheless, by the next stronger step, and that is said; of any other, the error
// says that there is this way.
func (r *Removals) tolerateIfForced(ctx context.Context, l leavingNode, failed error, stronger string) error {
	switch {
	case failed == nil:
		return nil
	case ctx.Err() != nil:
		return failed
	case !l.forced:
		return rollout.SuggestForce(failed)
	default:
		r.Warn(fmt.Sprintf("%s: %v: %s, because it is named in lifecycle.forceRemove", l.Name, failed, stronger))

		return nil
	}
}
