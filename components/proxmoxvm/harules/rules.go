// Package harules keeps the rules of high availability that place the VMs of a pool: the provider has no resource for
// them.
package harules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/wait"
)

// Proxmox is what rules are read from and written to; *proxmoxapi.Client implements it.
type Proxmox interface {
	VMs(ctx context.Context) ([]proxmoxapi.VM, error)
	HAComments(ctx context.Context) (map[string]string, error)
	HARules(ctx context.Context) ([]proxmoxapi.HARule, error)
	SetHARule(ctx context.Context, rule proxmoxapi.HARule) error
	DeleteHARule(ctx context.Context, name string) error
}

// Rules keep the rules of high availability as the plan says. The provider has none.
type Rules struct {
	Plan     *plan.Plan
	Proxmox  Proxmox
	Progress wait.Reporter
	// Alone says that the plan has one node only, and its pool may have others.
	Alone bool

	mu sync.Mutex
}

// Apply is a hook that runs after the HA resource of a node was made or changed. Proxmox VE takes VMs out of rules
// itself when they leave high availability.
func (h *Rules) Apply(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	id, is := strings.CutPrefix(hookutil.String(args.NewInputs, "resourceId"), "vm:")
	if !is {
		return nil
	}

	vmid, err := strconv.Atoi(id)
	if err != nil {
		return err
	}

	_, n, there := vmidentity.NodeByVMID(h.Plan, vmid)
	if !there {
		return fmt.Errorf("VM %d is not in the plan: its high-availability rules are not changed", vmid)
	}

	// Rules are read, changed and written, and nodes are made side by side.
	h.mu.Lock()
	defer h.mu.Unlock()

	comments, err := h.Proxmox.HAComments(ctx)
	if err != nil {
		return err
	}

	whole := h.Plan
	if h.Alone {
		whole = nil
	}

	var errs []error

	for _, wanted := range WantedRules(n, MembersOf(n, whole, comments)) {
		errs = append(errs, h.set(ctx, n, wanted, comments))
	}

	if n.HAGroup != "" {
		errs = append(errs, h.join(ctx, n))
	}

	return errors.Join(errs...)
}

// set makes, changes or removes a rule. One that has VMs of others, or another comment, belongs to others.
func (h *Rules) set(ctx context.Context, n plan.Node, wanted proxmoxapi.HARule, comments map[string]string) error {
	find := func() (is proxmoxapi.HARule, there bool, err error) {
		if is, there, err = h.find(ctx, wanted.Name); there {
			err = h.checkOurs(ctx, n, is, wanted, comments)
		}

		return is, there, err
	}

	is, there, err := find()

	switch {
	case there && is.Comment != wanted.Comment && len(wanted.Resources) == 0:
		return nil
	case err != nil:
		return err
	case !there && len(wanted.Resources) == 0:
		return nil
	case len(wanted.Resources) == 0:
		h.Progress("high availability: rule " + wanted.Name + " is removed")

		return h.Proxmox.DeleteHARule(ctx, wanted.Name)
	case there && SameRule(is, wanted):
		return nil
	}

	if wanted.Kind == proxmoxapi.HANodes {
		if err := h.leaveOthers(ctx, n, wanted.Name, wanted.Resources); err != nil {
			return err
		}
	}

	// Each change gives the rules another digest, and another may have changed this one.
	if is, _, err = find(); err != nil {
		return err
	}

	wanted.Digest = is.Digest
	h.Progress(fmt.Sprintf("high availability: rule %s is set for %s", wanted.Name, strings.Join(wanted.Resources, ", ")))

	if err := h.Proxmox.SetHARule(ctx, wanted); err != nil {
		return fmt.Errorf("the rule %s of high availability cannot be set: %w", wanted.Name, err)
	}

	return nil
}

// find reads a rule.
func (h *Rules) find(ctx context.Context, name string) (proxmoxapi.HARule, bool, error) {
	rules, err := h.Proxmox.HARules(ctx)

	at := slices.IndexFunc(rules, func(r proxmoxapi.HARule) bool { return r.Name == name })
	if err != nil || at < 0 {
		return proxmoxapi.HARule{}, false, err
	}

	return rules[at], true, nil
}

// leaveOthers takes VMs out of all rules but one that say on which hosts they run: Proxmox VE has each in one of these
// at most, and says of a second only that it is invalid. Nothing else of a rule of others changes.
func (h *Rules) leaveOthers(ctx context.Context, n plan.Node, but string, vms []string) error {
	rules, err := h.Proxmox.HARules(ctx)
	if err != nil {
		return err
	}

	isOne := func(r string) bool { return slices.Contains(vms, r) }
	holds := func(r proxmoxapi.HARule) bool {
		return r.Name != but && Places(r) && slices.ContainsFunc(r.Resources, isOne)
	}

	for _, listed := range rules {
		if !holds(listed) {
			continue
		}

		// What is written is what was read with its digest: an operator may change the rule meanwhile.
		rule, _, err := h.find(ctx, listed.Name)
		if err != nil {
			return err
		}

		if !holds(rule) {
			continue
		}

		switch rule.Resources = slices.DeleteFunc(slices.Clone(rule.Resources), isOne); {
		case len(rule.Resources) > 0:
			h.Progress(fmt.Sprintf("high availability: rule %s keeps %s", rule.Name, strings.Join(rule.Resources, ", ")))

			err = h.Proxmox.SetHARule(ctx, rule)
		case Made(rule, n):
			h.Progress("high availability: rule " + rule.Name + " is removed")

			err = h.Proxmox.DeleteHARule(ctx, rule.Name)
		default:
			err = fmt.Errorf("%s: a rule of high availability cannot be without VMs, and this rule does not belong "+
				"to this cluster: %s",
				strings.Join(vms, ", "), RemoveRule(rule.Name))
		}

		if err != nil {
			return fmt.Errorf("rule %s of high availability: %w", rule.Name, err)
		}
	}

	return nil
}

// RemoveRule says how to remove a rule.
func RemoveRule(name string) string {
	return fmt.Sprintf("run 'ha-manager rules remove %s' on a host, then 'pulumi up' again", name)
}

// checkOurs checks that a rule has only VMs of the cluster: those of the plan, and those whose comment or tags say so,
// which may be about to leave. The comments of a cluster of the same name that is not of this kind read alike; its tags
// do not.
func (h *Rules) checkOurs(ctx context.Context, n plan.Node, is, wanted proxmoxapi.HARule, comments map[string]string,
) error {
	others := slices.DeleteFunc(slices.Clone(is.Resources), func(resource string) bool {
		return slices.ContainsFunc(h.Plan.Nodes(), func(n plan.Node) bool { return SID(n) == resource })
	})

	if len(others) > 0 {
		vms, err := h.Proxmox.VMs(ctx)
		if err != nil {
			return err
		}

		others = slices.DeleteFunc(others, func(resource string) bool {
			at := slices.IndexFunc(vms, func(v proxmoxapi.VM) bool { return fmt.Sprintf("vm:%d", v.ID) == resource })
			if at >= 0 && vmidentity.OfCluster(vms[at], h.Plan) {
				return true
			}

			return strings.HasPrefix(comments[resource], clusterComment(n)) &&
				(at < 0 || !vmidentity.OfNamesake(vms[at], h.Plan))
		})
	}

	if len(others) > 0 || is.Comment != wanted.Comment || is.Kind != wanted.Kind {
		return fmt.Errorf("the rule %s of high availability does not belong to this cluster (comment %q, VMs %s): "+
			"it is not changed; rename or remove it", is.Name, is.Comment, strings.Join(is.Resources, ", "))
	}

	return nil
}

// join puts the VM of a node into the rule that its group has become. Nothing else of that rule changes: it is the
// operator's.
func (h *Rules) join(ctx context.Context, n plan.Node) error {
	name := GroupRule(n.HAGroup)

	rule, there, err := h.find(ctx, name)

	switch {
	case err != nil:
		return err
	case !there:
		return fmt.Errorf("there is no rule %s of high availability: %s is kept running on any host", name, n.Name)
	case slices.Contains(rule.Resources, SID(n)):
		return nil
	}

	if err := h.leaveOthers(ctx, n, name, []string{SID(n)}); err != nil {
		return err
	}

	if rule, _, err = h.find(ctx, name); err != nil {
		return err
	}

	rule.Resources = append(slices.Clone(rule.Resources), SID(n))
	h.Progress(fmt.Sprintf("high availability: %s joins rule %s", n.Name, rule.Name))

	return h.Proxmox.SetHARule(ctx, rule)
}
