package etcd

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/spec"
)

// MemberRemoval is the removal of members from etcd, checked as a whole before the first of them leaves.
type MemberRemoval struct {
	// Members are all that there are.
	Members []Member
	// Leaving are the names of the members to remove.
	Leaving []string
	// Dead are the names of members declared dead: their health does not matter.
	Dead []string
}

// Evaluate says why the members may not leave, nil when the first of them may. At no instant of what it allows is etcd
// below its quorum, whatever the order, as long as no other member fails.
func (d MemberRemoval) Evaluate() error {
	if err := d.CheckQuorum(); err != nil || !slices.ContainsFunc(d.Members, d.leaves) {
		return err
	}

	return d.checkHealth()
}

// CheckQuorum says whether enough voting members stay, however they are.
func (d MemberRemoval) CheckQuorum() error {
	voters := Voters(d.Members)
	remaining := Voters(slices.DeleteFunc(slices.Clone(d.Members), d.leaves))

	switch need := QuorumSize(voters); {
	case voters == 0:
		return spec.Blocked("etcd has no voting member", "make sure that the cluster is up")
	case !slices.ContainsFunc(d.Members, d.leaves):
		return nil
	case remaining == 0:
		return spec.Blocked(
			"the last control plane cannot be removed: etcd would be lost with it",
			"add two control planes first, then replace or remove it; or, to destroy the whole cluster, set "+
				"lifecycle.teardown to true and run 'pulumi up', then 'TALOS_PROXMOX_DESTROY=1 pulumi destroy --run-program'",
		)
	case remaining < need:
		return spec.Blocked(fmt.Sprintf("%d of the %d members of etcd would stay, and %d are needed",
			remaining, voters, need), AtMost(voters))
	default:
		return nil
	}
}

// AtMost says what to do instead where too many of so many members would leave.
func AtMost(voters int) string {
	if most := voters - QuorumSize(voters); most > 0 {
		return fmt.Sprintf("remove at most %d at a time", most)
	}

	return "add a control plane first"
}

// checkHealth are the members in whose state no other may leave.
func (d MemberRemoval) checkHealth() error {
	var rules []string

	remedy := "repair it first, then run 'pulumi up' again"

	for _, m := range d.Members {
		switch {
		case m.alarm() != nil && !d.leaves(m):
			return m.alarm()
		case m.Learner && !d.leaves(m):
			rules = append(rules, m.String()+" is joining etcd and has no vote yet")
		case m.Problem != "" && !(d.leaves(m) && slices.Contains(d.Dead, m.Name)):
			rules = append(rules, fmt.Sprintf("the etcd member %s is not healthy (%s)", m, m.Problem))

			if d.leaves(m) {
				remedy = "repair it first, or, if it is dead, name it in lifecycle.forceRemove; then run 'pulumi up' again"
			}
		}
	}

	if voters, healthy := votes(d.Members); healthy < QuorumSize(voters) {
		return spec.Blocked(
			fmt.Sprintf("%d of the %d members of etcd are healthy, and %d are needed: etcd cannot remove a "+
				"member", healthy, voters,
				QuorumSize(voters)),
			"start one again, or restore a snapshot",
		)
	}

	if len(rules) == 0 {
		return nil
	}

	return spec.Blocked(strings.Join(rules, ", "), remedy)
}

func (d MemberRemoval) leaves(m Member) bool {
	return m.Name != "" && slices.Contains(d.Leaving, m.Name)
}
