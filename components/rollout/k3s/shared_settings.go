package k3s

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/components/k3sconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// howToShare names where the documents say how these settings are changed.
const howToShare = "stacks/docs/k3s.md, Change settings that all servers share"

// CheckSharedSettings checks that the servers that this run creates, or recreates, will join the others: K3s refuses a
// server whose settings differ, when the one that it replaces is gone already. What the others have is read from their
// machines, for operators may have changed it by hand. Warnings name those that cannot be read.
func (c *Cluster) CheckSharedSettings(ctx context.Context, created []plan.Node) (problems, warnings spec.Problems) {
	others := c.serversToJoin(created)
	if len(created) == 0 || len(others) == 0 {
		return nil, nil
	}

	planned := k3sconfig.PlannedSharedSettings(c.Plan)
	found := map[string][]string{} // what servers have, by setting

	for _, server := range others {
		var have k3sconfig.SharedSettings

		text, err := c.configurationOf(ctx, server)
		if err == nil {
			have, err = k3sconfig.ReadSharedSettings(text)
		}

		if err != nil {
			warnings.Add("k3s.serverArgs", fmt.Sprintf("could not be compared with the settings of %s, so it is unknown "+
				"whether %s will join: %v", server.Name, namesOf(created), err), "",
				"if settings changed since it was created, make sure that they agree ("+howToShare+")")

			continue
		}

		for _, name := range planned.Differing(have) {
			found[name] = append(found[name], fmt.Sprintf("%s has %q", server.Name, have[name]))
		}
	}

	for _, name := range slices.Sorted(maps.Keys(found)) {
		problems.Add(k3sconfig.SharedSettingsKey(name), fmt.Sprintf("%s must be the same on all servers of a K3s cluster: "+
			"%s would not join, because %s", name, namesOf(created), strings.Join(found[name], ", ")), planned[name],
			"revert the change; or change the existing servers by hand first ("+howToShare+")")
	}

	return problems, warnings
}

// serversToJoin are the servers that those that are created join. Where all that exist are recreated in turn, the first
// one joins the others, and these join it.
func (c *Cluster) serversToJoin(created []plan.Node) []plan.Node {
	var existing, staying []plan.Node

	for _, n := range c.Plan.ControlPlanes() {
		if !c.Inventory.Exists(n) {
			continue
		}

		existing = append(existing, n)

		if !slices.ContainsFunc(created, func(other plan.Node) bool { return other.Name == n.Name }) {
			staying = append(staying, n)
		}
	}

	if len(staying) > 0 || len(existing) == 0 {
		return staying
	}

	return existing[1:]
}

func namesOf(nodes []plan.Node) string {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Name
	}

	return strings.Join(names, ", ")
}
