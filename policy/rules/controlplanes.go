package rules

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"talos-proxmox/components/spec"
	"talos-proxmox/components/tokens"
)

func controlPlaneRules(b *builder) []Rule {
	defaults := controlPlaneSettings{Tags: []string{string(spec.RoleControlPlane), "control-plane"}}

	return []Rule{
		perResource(b, Rule{
			Name: "control-plane-protection",
			Must: "The VMs of control planes must be protected from removal: each holds a copy of etcd.",
			Remedy: "Set protection on the VM (protection of the pool in a stack of this project); to remove one, name it in " +
				"except first.",
		}, defaults, protection),
		perStack(b, Rule{
			Name:   "control-planes-apart",
			Must:   "The control planes of a cluster must not all be on one host, whose failure would take the cluster with it.",
			Remedy: "Place them on different hosts.",
		}, apartSettings{controlPlaneSettings: defaults}, controlPlanesApart),
		perStack(b, Rule{
			Name: "odd-control-planes",
			Must: "The number of control planes must be odd: an even number tolerates no more failures than the odd number " +
				"below it.",
			Remedy: "Add or remove one control plane.",
		}, defaults, oddControlPlanes),
		perStack(b, Rule{
			Name: "control-plane-addresses",
			Must: "The address of a control plane must not come from its guest agent, for it changes with the DHCP lease " +
				"and etcd knows members by it.",
			Remedy: "Use static addresses or DHCP reservations.",
		}, defaults, controlPlaneAddresses),
		perStack(b, Rule{
			Name: "control-plane-endpoint",
			Must: "The endpoint of a cluster with several control planes must not be the address of one of them, or the API " +
				"is lost with it.",
			Remedy: "Use a virtual address, kube-vip or a DNS name (cluster.endpoint.mode in a stack of this project).",
		}, defaults, controlPlaneEndpoint),
	}
}

type controlPlaneSettings struct {
	except
	Tags []string `json:"controlPlaneTags" jsonschema_description:"Tags that mark the VM of a control plane."`
}

type apartSettings struct {
	controlPlaneSettings
	KeepQuorum bool `json:"keepQuorum" jsonschema_description:"Allow no host to have so many control planes that the others are not a majority."`
}

// tagged says whether a VM is marked as a control plane.
func (s controlPlaneSettings) tagged(r Resource) bool {
	return slices.ContainsFunc(tagsOf(r), func(tag string) bool { return slices.Contains(s.Tags, tag) })
}

func protection(s controlPlaneSettings, r Resource) []Finding {
	protected := r.at("protection")
	if r.Type != tokens.VM || !s.tagged(r) || !known(protected) || is(protected, true) {
		return nil
	}

	return []Finding{r.finding("protection", "must be true for a control plane", "false", "set it to true")}
}

func controlPlanesApart(s apartSettings, stack Stack) []Finding {
	var found []Finding

	for _, c := range stack.clusters(s.controlPlaneSettings) {
		on := map[string][]string{}
		for _, m := range c.members {
			on[m.host] = append(on[m.host], m.name)
		}

		most := len(c.members) - 1
		if s.KeepQuorum {
			most = (len(c.members) - 1) / 2
		}

		for _, host := range sortedKeys(on) {
			if host != "" && len(c.members) > 1 && len(on[host]) > most {
				found = append(found, c.finding("must be on several hosts",
					fmt.Sprintf("%s of %d on %s", strings.Join(on[host], ", "), len(c.members), host),
					"place them on different hosts"))
			}
		}
	}

	return found
}

func oddControlPlanes(s controlPlaneSettings, stack Stack) []Finding {
	var found []Finding

	for _, c := range stack.clusters(s) {
		if n := len(c.members); n%2 == 0 {
			found = append(found, c.finding("must be odd in number", fmt.Sprintf("%d: %s", n, strings.Join(c.names(), ", ")),
				"add or remove one"))
		}
	}

	return found
}

func controlPlaneAddresses(s controlPlaneSettings, stack Stack) []Finding {
	var found []Finding

	for _, c := range stack.clusters(s) {
		for _, m := range c.members {
			if m.apply != nil && m.vm != nil && fromAgent(*m.apply, *m.vm) {
				found = append(found, m.apply.finding("node", "must be an address that is known without the guest agent",
					"an output of "+m.vm.Name, "use a static address or a DHCP reservation"))
			}
		}
	}

	return found
}

func controlPlaneEndpoint(s controlPlaneSettings, stack Stack) []Finding {
	var found []Finding

	for _, c := range stack.clusters(s) {
		for _, m := range c.members {
			if m.apply == nil || len(c.members) < 2 {
				continue
			}

			endpoint, err := url.Parse(configurationOf(*m.apply).Cluster.ControlPlane.Endpoint)
			if err == nil && endpoint.Host != "" && endpoint.Hostname() == text(m.apply.at("node")) {
				found = append(found, c.finding("must have an endpoint that is not one of their own addresses",
					fmt.Sprintf("%s, of %s", endpoint.Redacted(), m.name), "use a virtual address or a DNS name"))
			}
		}
	}

	return found
}

// fromAgent says whether a node's address is one that its VM's agent reports: it follows from the VM, the VM has an
// agent, and the address is not one that the VM was given.
func fromAgent(apply, vm Resource) bool {
	if !slices.Contains(apply.PropertyDependencies["node"], vm.URN) || !is(vm.at("agent", "enabled"), true) {
		return false
	}

	node := text(apply.at("node"))

	for i := range list(vm.at("initialization", "ipConfigs")) {
		for _, family := range []string{"ipv4", "ipv6"} {
			given, err := netip.ParsePrefix(text(vm.at("initialization", "ipConfigs", i, family, "address")))
			if err == nil && (given.Addr().String() == node || !known(apply.at("node"))) {
				return false
			}
		}
	}

	return true
}

// controlPlanes are those of one cluster.
type controlPlanes struct {
	// name of the cluster, and URN of its component; empty where there is none.
	name, urn string
	members   []member
}

// member is one control plane: a VM, a configuration that makes a machine one, or both.
type member struct {
	name, host string
	vm, apply  *Resource
}

func (c controlPlanes) names() []string {
	found := make([]string, len(c.members))
	for i, m := range c.members {
		found[i] = m.name
	}

	return found
}

func (c controlPlanes) finding(rule, value, remedy string) Finding {
	of := "control planes"
	if c.name != "" {
		of += " of " + c.name
	}

	return Finding{URN: c.urn, Problem: spec.Problem{Path: of, Rule: rule, Value: value, Remedy: remedy}}
}

// clusters finds the control planes of a stack: VMs with a tag that says so, and machines whose configuration does.
func (s Stack) clusters(settings controlPlaneSettings) []controlPlanes {
	var members []member

	for _, vm := range s.ofType(tokens.VM) {
		if settings.tagged(vm) && !is(vm.at("template"), true) {
			members = append(members, member{vm: &vm})
		}
	}

	for _, apply := range s.ofType(tokens.Configuration) {
		vm := s.machineOf(apply)
		of := slices.IndexFunc(members, func(m member) bool { return vm != nil && m.vm != nil && m.vm.URN == vm.URN })

		switch {
		case of >= 0:
			members[of].apply = &apply
		case configurationOf(apply).controlPlane():
			members = append(members, member{vm: vm, apply: &apply})
		}
	}

	found := map[string]controlPlanes{}

	for _, m := range members {
		if m.vm != nil {
			m.name, m.host = m.vm.Name, text(m.vm.at("nodeName"))
		} else {
			m.name = m.apply.Name
		}

		name, urn, ok := s.clusterOf(m)
		if !ok {
			continue
		}

		c := found[urn+name]
		c.name, c.urn, c.members = name, urn, append(c.members, m)
		found[urn+name] = c
	}

	var all []controlPlanes
	for _, key := range sortedKeys(found) {
		all = append(all, found[key])
	}

	return all
}

// clusterOf is the component that a control plane belongs to, or else the name in its configuration. What has neither
// is taken to be the stack's only cluster. It cannot be told before the configuration is known.
func (s Stack) clusterOf(m member) (name, urn string, ok bool) {
	for _, r := range []*Resource{m.vm, m.apply} {
		if r == nil {
			continue
		}

		if component, ok := s.above(*r, tokens.TalosCluster); ok {
			return component.Name, component.URN, true
		}
	}

	if m.apply == nil {
		return "", "", true
	}

	return configurationOf(*m.apply).Cluster.Name, "", known(m.apply.at("machineConfigurationInput"))
}

// machineOf is the VM that a configuration is for: the one that its address follows from, the one next to it in a
// component, or the only one that it waits for.
func (s Stack) machineOf(apply Resource) *Resource {
	waitsFor := s.vms(apply.Dependencies)

	siblings := slices.DeleteFunc(slices.Clone(waitsFor), func(vm Resource) bool {
		return vm.Parent != apply.Parent || s.byURN[vm.Parent].Type == tokens.Stack
	})

	for _, candidates := range [][]Resource{s.vms(apply.PropertyDependencies["node"]), siblings, waitsFor} {
		if len(candidates) == 1 {
			return &candidates[0]
		}
	}

	return nil
}

// configuration is what the rules read of a Talos machine configuration.
type configuration struct {
	Machine struct {
		Type string `yaml:"type"`
	} `yaml:"machine"`
	Cluster struct {
		Name         string `yaml:"clusterName"`
		ControlPlane struct {
			Endpoint string `yaml:"endpoint"`
		} `yaml:"controlPlane"`
	} `yaml:"cluster"`
}

func (c configuration) controlPlane() bool {
	return c.Machine.Type == string(spec.RoleControlPlane) || c.Machine.Type == "init"
}

// configurationOf reads the first document, where these things are. What cannot be read or is not known yet is empty.
func configurationOf(apply Resource) configuration {
	var c configuration

	_ = yaml.Unmarshal([]byte(text(apply.at("machineConfigurationInput"))), &c)

	return c
}
