package rules

import (
	"slices"
	"strings"

	"talos-proxmox/components/spec"
	"talos-proxmox/components/tokens"
)

func tagRules(b *builder) []Rule {
	s := tagSettings{}
	if b.facts.Cluster != "" {
		s.Clusters = []string{b.facts.Cluster}
	}

	return []Rule{
		perResource(b, Rule{
			Name: "cluster-tags",
			Must: "Every VM must carry the tag of its cluster, so that administrators of Proxmox VE can identify it.",
			Remedy: "Add the cluster's name to the tags of the VM, or add the VM to except if it belongs to no " +
				"cluster.",
		}, s, clusterTags),
	}
}

type tagSettings struct {
	except
	Clusters []string `json:"clusters" jsonschema_description:"Clusters of the stack; each VM must carry the name of one. Absent: any tag that is not a role."`
}

// generalTags say what a VM is, not whose.
var generalTags = []string{
	"talos", "k3s", "kubernetes", "k8s", "pulumi", "terraform", "gpu", "node", "server", "agent",
	string(spec.RoleControlPlane), string(spec.RoleWorker), "control-plane", "master",
}

func clusterTags(s tagSettings, r Resource) []Finding {
	tags := r.at("tags")
	if r.Type != tokens.VM || is(r.at("template"), true) || !known(tags) {
		return nil
	}

	given := tagsOf(r)
	wanted := func(tag string) bool { return !slices.Contains(generalTags, tag) }
	rule := "must name the VM's cluster"

	if len(s.Clusters) > 0 {
		wanted = func(tag string) bool {
			return slices.ContainsFunc(s.Clusters, func(c string) bool { return strings.EqualFold(c, tag) })
		}
		rule = "must have one of " + strings.Join(s.Clusters, ", ")
	}

	if slices.ContainsFunc(given, wanted) {
		return nil
	}

	value := strings.Join(given, ", ")
	if value == "" {
		value = "none"
	}

	return []Finding{r.finding("tags", rule, value, "add the cluster's name")}
}

// tagsOf returns the tags of a VM as Proxmox VE keeps them, in lower case.
func tagsOf(r Resource) []string {
	var tags []string
	for _, tag := range list(r.at("tags")) {
		tags = append(tags, strings.ToLower(text(tag)))
	}

	return tags
}
