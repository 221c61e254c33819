package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/upgradepath"
	"talos-proxmox/components/wait"
)

// waitingForJoinError is why a node is not taken down before others have joined that this update sets up. It is not
// waited for that with the limiter: what is set up may need it.
type waitingForJoinError struct{ error }

// Unwrap returns the reason.
func (e waitingForJoinError) Unwrap() error { return e.error }

// IsWaitingForJoin says that a node is not taken down only because others have yet to join that this update sets up.
func IsWaitingForJoin(err error) bool { return errors.As(err, new(waitingForJoinError)) }

// WaitHealthy waits until a check holds. What has failed for three times lifecycle.settleTimeout is the error: another
// node may just be rejoining. One for which IsWaitingForJoin holds is one at once.
func WaitHealthy(ctx context.Context, p *plan.Plan, progress wait.Reporter, what string,
	check func(context.Context) error,
) error {
	grace := wait.GracePeriod{Bound: 3 * p.SettleTimeout}

	return wait.Until(ctx, p.ReadyTimeout, progress, func(context.Context) error {
		err := check(ctx)
		if err == nil || IsWaitingForJoin(err) || grace.Expired() {
			return err
		}

		return wait.For("%s: %v", what, err)
	})
}

// WaitKubernetes waits for a control plane that answers.
func WaitKubernetes(
	ctx context.Context, p *plan.Plan, progress wait.Reporter, connect func(context.Context) (*kubeapi.Client, error),
) (kube *kubeapi.Client, err error) {
	err = wait.Until(ctx, p.ReadyTimeout, progress, func(context.Context) (err error) {
		if kube, err = connect(ctx); err != nil {
			return wait.For("%v", err)
		}

		return nil
	})

	return kube, err
}

// CheckEtcd says why a control plane may not be taken down, by the members of etcd and the planned control planes.
func (s Scope) CheckEtcd(members []etcd.Member, name string, e impact.Effect) error {
	var planned []string
	for _, n := range s.Plan.ControlPlanes() {
		planned = append(planned, n.Name)
	}

	err := etcd.CheckDisruption(members, planned, name, e)

	missing := etcd.MissingError{}
	if !errors.As(err, &missing) {
		return err
	}

	if s.allJoin(missing.Names) && !s.isAddressAwaited(name) {
		return waitingForJoinError{err}
	}

	return missingError{err}
}

// isAddressAwaited says that other nodes' configuration contains this control plane's address, which is known only
// after its VM has changed; waiting for them here would deadlock.
func (s Scope) isAddressAwaited(name string) bool {
	first := s.Plan.ControlPlanes()[0]

	return first.Name == name && !first.Address.IsValid() && (s.Plan.K3s != nil || s.Plan.Endpoint == "")
}

// missingError says that a node is not taken down because others are missing, and for no other reason. What this update
// changes may be what lets those join.
type missingError struct{ error }

// Unwrap returns the reason.
func (e missingError) Unwrap() error { return e.error }

// CheckWorkers checks that one more worker may be unavailable, by what Kubernetes says of the others. One that an
// operator has cordoned takes no pods either. What this program has cordoned is the limiter's business. A worker that
// Kubernetes does not know is unavailable if its VM exists or it is being replaced; one that is created for the first
// time has taken no pods yet.
func (s Scope) CheckWorkers(nodes []kubeapi.Node, name string) error {
	var notReady, cordoned, missing []string

	for _, n := range s.Plan.Nodes() {
		i := slices.IndexFunc(nodes, func(found kubeapi.Node) bool { return found.Name == n.Name })

		switch {
		case n.Role == spec.RoleControlPlane || n.Name == name:
		case i < 0:
			if s.isMissing(n) {
				missing = append(missing, n.Name)
			}
		case !nodes[i].Ready:
			notReady = append(notReady, n.Name)
		case nodes[i].Cordoned && !nodes[i].Ours:
			cordoned = append(cordoned, n.Name)
		}
	}

	if len(notReady)+len(cordoned)+len(missing) < s.Plan.MaxUnavailable {
		return nil
	}

	err := fmt.Errorf("%d of the workers may be unavailable (lifecycle.upgrade.maxUnavailable), and %s",
		s.Plan.MaxUnavailable, unavailableText(notReady, cordoned, missing))

	// Of those that are missing, only what this update sets up is worth waiting for.
	stay := slices.DeleteFunc(slices.Clone(missing), func(name string) bool { return s.allJoin([]string{name}) })
	if len(notReady)+len(cordoned)+len(stay) < s.Plan.MaxUnavailable {
		return waitingForJoinError{err}
	}

	if len(notReady)+len(cordoned) < s.Plan.MaxUnavailable {
		return missingError{err}
	}

	return err
}

// isMissing says that a worker that Kubernetes does not know is unavailable, and not yet to come for the first time.
// One in lifecycle.forceRemove is known to be dead: the operator does without it.
func (s Scope) isMissing(n plan.Node) bool {
	if s.Plan.DeclaredDead(n.Name) {
		return false
	}

	return s.Plan.Replaces(n.Name) || s.Inventory != nil && s.Inventory.Exists(n)
}

// allJoin says that all of some planned nodes are set up in this update, while others wait.
func (s Scope) allJoin(names []string) bool {
	for _, n := range s.Plan.Nodes() {
		if slices.Contains(names, n.Name) && !s.joins(n) {
			return false
		}
	}

	return true
}

// joins says that a node is set up in this update, while others wait. A K3s server that is replaced is not: it waits
// for the servers before it. Nor is one whose VM cannot be deleted, because its host does not answer.
func (s Scope) joins(n plan.Node) bool {
	switch {
	case s.Limiter != nil && s.Limiter.isJoining(n.Name):
		return true
	case s.Inventory == nil || s.Inventory.AbsentVMIDs() == nil:
		return false
	case s.Inventory.AbsentVMIDs()[n.VMID]:
		return true
	case !s.Plan.Replaces(n.Name) || s.Plan.K3s != nil && n.Role == spec.RoleControlPlane:
		return false
	}

	found, known := s.Inventory.VM(n.VMID)

	return !known || !found.VM.Unreachable
}

// unavailableText names workers that are not ready, those that an operator has cordoned, and those that Kubernetes does
// not know.
func unavailableText(notReady, cordoned, missing []string) string {
	var texts []string

	if len(notReady) > 0 {
		texts = append(texts, "these are not ready: "+joinSorted(notReady))
	}

	if len(cordoned) > 0 {
		texts = append(texts, "these are cordoned: "+joinSorted(cordoned)+
			" (not by this program: uncordon them with kubectl, or raise the limit)")
	}

	if len(missing) > 0 {
		texts = append(texts, "these are not in Kubernetes: "+joinSorted(missing)+
			" (to let them join first, undo the other changes, run 'pulumi up', then make the other changes "+
			"again; what does not join is named in lifecycle.replace, and also in lifecycle.forceRemove if it does not "+
			"answer, or taken out of the configuration)")
	}

	return strings.Join(texts, ", and ")
}

func joinSorted(names []string) string {
	return strings.Join(slices.Sorted(slices.Values(names)), ", ")
}

// ControlPlaneVersions are the versions of Kubernetes that the state has of control planes, by node, as they become
// known in a run. Of one that --target or --exclude leaves out, it is the version before the run: the engine does not
// tell the program of these flags.
type ControlPlaneVersions map[string]*wait.Future[string]

// NewControlPlaneVersions returns those of a plan, of which none is known yet.
func NewControlPlaneVersions(p *plan.Plan) ControlPlaneVersions {
	versions := ControlPlaneVersions{}
	for _, n := range p.ControlPlanes() {
		versions[n.Name] = wait.NewFuture[string]()
	}

	return versions
}

// CheckNotNewer refuses a worker that would run a newer Kubernetes than a control plane. Resources depend on each other
// so that control planes come first, and a run with --target or --exclude passes over that. The key is that of the
// version.
func (v ControlPlaneVersions) CheckNotNewer(ctx context.Context, s Scope, n plan.Node, key, wanted string) error {
	if n.Role == spec.RoleControlPlane {
		return nil
	}

	timeout := s.Plan.NodeTimeout
	if s.DryRun {
		timeout = wait.RequestTimeout
	}

	absent := s.Inventory.AbsentVMIDs()

	for _, controlPlane := range s.Plan.ControlPlanes() {
		if absent[controlPlane.VMID] {
			continue // it is new: no API server runs there yet
		}

		version, known := v[controlPlane.Name].Get(ctx, timeout)

		switch {
		case known && !upgradepath.Older(version, wanted):
		case known:
			return spec.Problem{
				Path: key,
				Rule: fmt.Sprintf("%s is not changed: control plane %s stays at %s, and workers never run a newer version",
					n.Name, controlPlane.Name, version),
				Value:  wanted,
				Remedy: "run 'pulumi up' without --target and --exclude, or let the flag include the control planes",
			}
		case !s.DryRun:
			return fmt.Errorf("%s is not changed: could not determine the version of control plane %s within %s; "+
				"run 'pulumi up' without --target and --exclude", n.Name, controlPlane.Name, timeout)
		}
	}

	return nil
}
