package machineconfig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/components/machineconfig/patches"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosimage"
)

// override is what the plan decides and a patch may change without a word.
type override struct {
	what, remedy string
	value        func(talosconfig.Provider) string
	// refused says that the program could not go on with another value; shared, that all nodes have the same one.
	refused, shared bool
}

// leaveOut is the remedy of a patch where there is a key.
func leaveOut(key string) string { return "leave it out of the patch, and use " + key }

// clusterOverrides are what the plan decides for each node of the cluster, also those that others make. Of one that was
// made up, what it does not decide is left out.
func clusterOverrides(c *checker) []override {
	return slices.DeleteFunc([]override{
		{
			what: whatEndpoint, remedy: leaveOut("cluster.endpoint"), refused: true,
			value: clusterEndpoint,
		},
		{
			// Firewalls, health checks and kube-vip know no other.
			what: "the port of the Kubernetes API", remedy: "leave it out of the patch: control planes serve the API " +
				"at this port", refused: true,
			value: apiPort,
		},
		{
			what: whatCNI, remedy: leaveOut("cluster.cni.name"), refused: true,
			value: CNI,
		},
		{
			what: "kube-proxy", remedy: leaveOut("cluster.cni.kubeProxy"), refused: true,
			value: func(c talosconfig.Provider) string { return fmt.Sprint(c.K8sProxyConfig().Enabled()) },
		},
		{
			what: "the networks of pods and services", remedy: "a running cluster keeps its networks: change them only before " +
				"the cluster is created", shared: true,
			value: ClusterNetworks,
		},
	}, func(o override) bool {
		return c.standIn && o.what == whatEndpoint || c.unknownCNI && o.what == whatCNI
	})
}

const (
	whatEndpoint = "the endpoint"
	whatCNI      = "the CNI"
)

// nodeOverrides are what the plan decides for a node that it makes itself.
func nodeOverrides(p *plan.Plan, node plan.Node) []override {
	all := []override{
		{
			what: "the hostname", remedy: leaveOut("pools." + node.Pool + ".names"), refused: true,
			value: func(c talosconfig.Provider) string {
				if h := c.NetworkHostnameConfig(); h != nil {
					return h.Hostname()
				}

				return ""
			},
		},
		{
			what: "the install disk", remedy: "leave it out of the patch, and use disk.interface",
			value: func(c talosconfig.Provider) string { return c.Machine().Install().Disk() },
		},
		{
			what: "the installer", remedy: leaveOut("cluster.versions.talos and image"), refused: true,
			value: func(c talosconfig.Provider) string { return c.Machine().Install().Image() },
		},
	}

	if p.Addressing == spec.AddressingStatic || node.Static || p.VIP.IsValid() {
		all = append(all, override{
			what: "the network interface with the node's address", remedy: leaveOut("network and the node's address"),
			value: func(c talosconfig.Provider) string { return linkOf(c, node) },
		})
	}

	return all
}

// linkOf says what a configuration tells of the link with the node's address.
func linkOf(c talosconfig.Provider, node plan.Node) string {
	var messages []string

	for _, d := range c.Machine().Network().Devices() {
		selected := d.Selector() != nil && strings.EqualFold(d.Selector().HardwareAddress(), node.MAC)
		if !selected && d.Interface() != talosimage.LinkName {
			continue
		}

		messages = append(messages, fmt.Sprint(d.Addresses(), d.DHCP(), d.Ignore()))
		if d.VIPConfig() != nil {
			messages = append(messages, d.VIPConfig().IP())
		}
	}

	for _, l := range c.NetworkCommonLinkConfigs() {
		if l.Name() == talosimage.LinkName || l.Name() == patches.LinkAlias {
			for _, a := range l.Addresses() {
				messages = append(messages, a.Address().String())
			}
		}
	}

	return strings.Join(messages, ", ")
}

// checkOverrides says which patch changes what the plan decides. Both configurations are of the same node: without the
// operator's patches, and with all.
func (c *checker) checkOverrides(overrides []override, planned, patched talosconfig.Provider, all []spec.Patch,
	node plan.Node,
) {
	for _, o := range overrides {
		decided := o.value(planned)
		changes := func(cfg talosconfig.Provider) bool { return o.value(cfg) != decided }

		if !changes(patched) {
			continue
		}

		given := decided
		if given == unknownEndpoint {
			given = "which is the address of the first control plane"
		}

		problem := blame(planned, operatorPatches(all), node, "overrides "+o.what+" of the plan, "+given, changes)
		problem.Remedy = o.remedy

		// What holds for the cluster is not one thing here and another there.
		if o.shared && !strings.HasPrefix(problem.Path, "cluster.patches") {
			problem.Remedy, o.refused = "set it in cluster.patches: it is the same on all nodes", true
		}

		if o.refused {
			c.note(&c.problems, problem)
		} else {
			c.note(&c.warnings, problem)
		}
	}
}

// operatorPatches are the patches that the program does not make itself.
func operatorPatches(all []spec.Patch) []spec.Patch {
	return slices.DeleteFunc(slices.Clone(all), func(patch spec.Patch) bool { return patch.Origin == patches.Own })
}

// programPatches are the patches that the program makes itself.
func programPatches(all []spec.Patch) []spec.Patch {
	return slices.DeleteFunc(slices.Clone(all), func(patch spec.Patch) bool { return patch.Origin != patches.Own })
}

// clusterEndpoint is empty where the configuration has none.
func clusterEndpoint(cfg talosconfig.Provider) string {
	if c := cfg.K8sClusterConfig(); c != nil {
		return c.ClusterEndpoint().String()
	}

	return ""
}

// apiPort is the port that the API server of a control plane listens at; empty for a worker.
func apiPort(cfg talosconfig.Provider) string {
	if !cfg.Machine().Type().IsControlPlane() {
		return ""
	}

	api := cfg.K8sAPIServerConfig()
	if port := strings.Join(api.ExtraArgs()["secure-port"], ","); port != "" {
		return port // it replaces what Talos passes
	}

	return strconv.Itoa(api.APIPort())
}

// CNI is the network plugin that Talos installs.
func CNI(cfg talosconfig.Provider) string {
	if raw := cfg.RawV1Alpha1(); raw != nil && raw.ClusterConfig != nil {
		return raw.ClusterConfig.CNI().CNIName
	}

	return ""
}
