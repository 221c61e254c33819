package rollout

import (
	"fmt"

	"talos-proxmox/components/etcd"
)

// ToDestroy are the two steps that take a whole cluster away.
const ToDestroy = "to destroy the whole cluster, set lifecycle.teardown to true and run 'pulumi up', " +
	"then 'pulumi destroy'"

// RefuseRemoval is why the machine of a node that stays is not taken away: the cluster is being destroyed, or something
// else wants a new VM.
func RefuseRemoval(name string) error {
	return fmt.Errorf("%s is in the configuration, and its machine is not taken away; to recreate it, name it in "+
		"lifecycle.replace; %s", name, ToDestroy)
}

// SuggestForce adds to why a step of a removal has failed how the node is removed nevertheless.
func SuggestForce(failed error) error {
	return fmt.Errorf(
		"%w; if the node is broken, name it in lifecycle.forceRemove, and it is removed without that", failed)
}

// PreviewRemoval evaluates a removal by the members of etcd as they are now. Too few members are an error. What is
// unhealthy now may be healthy when the node is removed, so that is a warning.
func PreviewRemoval(name string, d etcd.MemberRemoval, warn func(string)) error {
	if err := d.CheckQuorum(); err != nil {
		return fmt.Errorf("%s is not removed: %w", name, err)
	}

	if err := d.Evaluate(); err != nil {
		warn(fmt.Sprintf("as it is now, %s would not be removed: %v", name, err))
	}

	return nil
}
