package components

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// lack is a privilege that the credentials lack.
type lack struct {
	plan.Privilege

	// paths where they lack it.
	paths []string
}

// lookForPrivileges holds that the credentials may do all that new nodes need, and delete those that leave. What nodes that are there need
// is a warning, and an error once something changes that needs it.
func (s *survey) lookForPrivileges(ctx context.Context) error {
	held, err := s.proxmox.Permissions(ctx)
	if err != nil {
		return err
	}

	for _, n := range s.plan.Nodes() {
		for _, needed := range s.plan.Privileges(n, 0) {
			if !s.absent[n.VMID] && !granted(held, needed) && !s.inVNet(needed) {
				s.found.lacking[n.Name] = append(s.found.lacking[n.Name], lack{needed, needed.Paths[:1]})
			}
		}
	}

	for _, there := range []bool{false, true} {
		for _, m := range s.lacking(held, there) {
			problem := m.problem()

			switch {
			case there:
				problem.Rule += ", which nodes that are there may need"
				s.warnings = append(s.warnings, problem)
			case m.Spare:
				s.warnings = append(s.warnings, problem)
			default:
				s.denied = true
				s.problems = append(s.problems, problem)
			}
		}
	}

	for _, v := range unplanned(s.vms, s.plan) {
		for _, name := range []string{"VM.Allocate", "VM.PowerMgmt"} {
			needed := plan.Privilege{Names: []string{name}, Paths: []string{fmt.Sprintf("/vms/%d", v.ID)}, For: "to remove " + v.Label()}
			if !granted(held, needed) && !onAnyPool(held, name) {
				s.problems = append(s.problems, lack{needed, needed.Paths}.problem())
			}
		}
	}

	return nil
}

// problem names a privilege that is missing.
func (m lack) problem() plan.Problem {
	return plan.Problem{
		Path: "proxmox", Rule: fmt.Sprintf("the credentials lack %s on %s, %s", strings.Join(m.Names, " or "), upTo(m.paths, 3), m.For),
		Remedy: fmt.Sprintf("run 'pveum role modify TalosProxmox -append -privs %s', with the name of the role, and see that they have it on that path", m.Names[0]),
	}
}

// onAnyPool says that a privilege is had on some resource pool: which one a VM is in that left the plan is not known.
func onAnyPool(held proxmoxapi.Permissions, name string) bool {
	for path := range held {
		if strings.HasPrefix(path, "/pool/") && held.On(path, name) {
			return true
		}
	}

	return false
}

// permits holds that the credentials may change these properties of the VM of a node.
func (f *Findings) permits(n plan.Node, changes []string) error {
	if f == nil {
		return nil
	}

	var problems plan.Problems

	for _, m := range f.lacking[n.Name] {
		if len(changes) > 0 && slices.ContainsFunc(m.Changes, func(c string) bool { return c == plan.AnyChange || slices.Contains(changes, c) }) {
			problem := m.problem()
			problem.Rule += fmt.Sprintf(", which the change of %s needs (%s)", n.Name, strings.Join(changes, ", "))
			problems = append(problems, problem)
		}
	}

	return problems.Err()
}

// lacking are the privileges that the nodes need which are there, or those which are not, and the credentials lack.
func (s *survey) lacking(held proxmoxapi.Permissions, there bool) []lack {
	var all []lack

	for _, n := range s.plan.Nodes() {
		if s.absent[n.VMID] == there {
			continue
		}

		template := 0
		if !there {
			template = s.found.templates[n.Name]
		}

		for _, p := range s.plan.Privileges(n, template) {
			if granted(held, p) || s.inVNet(p) {
				continue
			}

			i := slices.IndexFunc(all, func(m lack) bool { return m.For == p.For && slices.Equal(m.Names, p.Names) })
			if i < 0 {
				i, all = len(all), append(all, lack{Privilege: p})
			}

			if !slices.Contains(all[i].paths, p.Paths[0]) {
				all[i].paths = append(all[i].paths, p.Paths[0])
			}
		}
	}

	return all
}

func granted(held proxmoxapi.Permissions, p plan.Privilege) bool {
	if slices.ContainsFunc(p.Paths, func(path string) bool { return held.On(path, p.Names...) }) {
		return true
	}

	return len(p.Instead) > 0 && !slices.ContainsFunc(p.Instead, func(other plan.Privilege) bool { return !granted(held, other) })
}

// inVNet says that a privilege is about a network whose zone is not known here. Proxmox VE shows it to those only who may use it,
// or see it.
func (s *survey) inVNet(p plan.Privilege) bool {
	name, ok := strings.CutPrefix(p.Paths[0], "/sdn/zones/localnetwork/")
	name, _, _ = strings.Cut(name, "/")

	return ok && s.vnets[name]
}

// upTo names the first of a list, and how many there are beside.
func upTo(names []string, count int) string {
	if len(names) <= count {
		return strings.Join(names, ", ")
	}

	return fmt.Sprintf("%s and %d more", strings.Join(names[:count], ", "), len(names)-count)
}
