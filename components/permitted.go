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

// lookForPrivileges holds that the credentials may do all that nodes need. What nodes that are there need is asked for when they
// are changed or removed, so that it only is a warning.
func (s *survey) lookForPrivileges(ctx context.Context) error {
	held, err := s.proxmox.Permissions(ctx)
	if err != nil {
		return err
	}

	for _, there := range []bool{false, true} {
		for _, m := range s.lacking(held, there) {
			problem := plan.Problem{
				Path: "proxmox", Rule: fmt.Sprintf("the credentials lack %s on %s, %s", strings.Join(m.Names, " or "), upTo(m.paths, 3), m.For),
				Remedy: fmt.Sprintf("run 'pveum role modify TalosProxmox -append -privs %s', with the name of the role, and see that they have it on that path", m.Names[0]),
			}

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

	return nil
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
