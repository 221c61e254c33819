package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/wait"
)

// WaitRemovable waits until etcd can do without a member for good. Members on their way into etcd are waited for. Any
// other reason why it cannot is the error once it has lasted for lifecycle.settleTimeout.
func WaitRemovable(
	ctx context.Context,
	p *plan.Plan,
	progress wait.Reporter,
	askEtcd func() (removal etcd.MemberRemoval, joining string, err error),
) error {
	grace := wait.GracePeriod{Bound: p.SettleTimeout}

	return wait.Until(ctx, p.ReadyTimeout, progress, func(context.Context) error {
		// Each member may take its time to answer.
		removal, joining, err := askEtcd()
		if err == nil {
			if joining != "" {
				grace.Reset()

				return wait.For("%s", joining)
			}

			if err := removal.CheckQuorum(); err != nil {
				return err
			}

			err = removal.Evaluate()
		}

		if err == nil || grace.Expired() {
			return err
		}

		return wait.For("etcd: %v", err)
	})
}

// ToDestroy are the two steps that delete a whole cluster.
const ToDestroy = "to destroy the whole cluster, set lifecycle.teardown to true and run 'pulumi up', " +
	"then 'TALOS_PROXMOX_DESTROY=1 pulumi destroy --run-program'"

// RefuseRemoval is why the machine of a node that stays is not deleted: the cluster is being destroyed, or something
// else wants a new VM.
func RefuseRemoval(name string) error {
	return fmt.Errorf("%s is in the configuration, so its machine is not removed; to recreate it, name it in "+
		"lifecycle.replace; %s", name, ToDestroy)
}

// SuggestForce adds to why a step of a removal has failed how the node is removed nevertheless.
func SuggestForce(failed error) error {
	return fmt.Errorf(
		"%w; if the node is broken, name it in lifecycle.forceRemove to remove it without this step", failed)
}

// ExplainPartialRemoval adds to why a removal has failed what the node has left already, and what helps: none of it is
// taken back.
func ExplainPartialRemoval(failed error, planned bool, left ...string) error {
	if failed == nil || len(left) == 0 {
		return failed
	}

	advice := "run 'pulumi up' again to complete its removal; to keep the node instead, put it back into the " +
		"configuration and name it in lifecycle.replace, which recreates it"
	if planned {
		advice = "run 'pulumi up' again to complete its replacement"
	}

	return fmt.Errorf("%w. It has already left %s: %s", failed, strings.Join(left, " and "), advice)
}

// CheckNode compares the machine that Kubernetes has a node on with those that the state has had for it, by SMBIOS
// UUID; an empty one says nothing. A node that is ready on another machine belongs to a newer copy of the state. One
// that is not ready may be left of a machine that was recreated and has not joined: that is vmidentity.ErrUnknown.
func CheckNode(n kubeapi.Node, uuids ...string) error {
	var ours []string

	for _, uuid := range uuids {
		if strings.EqualFold(uuid, n.Machine) {
			return nil
		}

		if uuid != "" && !slices.Contains(ours, uuid) {
			ours = append(ours, uuid)
		}
	}

	if n.Machine == "" || len(ours) == 0 {
		return nil
	}

	why := fmt.Sprintf("Kubernetes has %s on the machine with SMBIOS UUID %s, and the state on %s", n.Name, n.Machine,
		strings.Join(ours, " or "))
	if n.Ready {
		return fmt.Errorf("%s: another copy of the state has replaced it, and it is not touched. Use the newest state", why)
	}

	return fmt.Errorf("%w: %s", vmidentity.ErrUnknown, why)
}

// PreviewRemoval evaluates a removal by the members of etcd as they are now. Too few members are an error. What is
// unhealthy now may be healthy when the node is removed, so that is a warning.
func PreviewRemoval(name string, removal etcd.MemberRemoval, warn func(string)) error {
	if err := removal.CheckQuorum(); err != nil {
		return fmt.Errorf("%s is not removed: %w", name, err)
	}

	if err := removal.Evaluate(); err != nil {
		warn(fmt.Sprintf("in the current state of etcd, %s would not be removed: %v", name, err))
	}

	return nil
}
