package running

import (
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/spec"
)

// Warnings are the changes that a running node takes, and that do not have the effect alone that an operator
// expects of them.
func Warnings(running, wanted talosconfig.Provider) []spec.Problem {
	var found []spec.Problem

	if wanted.Machine().Type().IsControlPlane() && running.K8sProxyConfig().Enabled() &&
		!wanted.K8sProxyConfig().Enabled() {
		found = append(found, spec.Problem{
			Path: "cluster.cni.kubeProxy", Rule: "Talos stops installing kube-proxy, and does not remove it from a cluster " +
				"that runs", Value: "false", Remedy: "after the update, when the CNI serves Services in its place, run: " +
				"kubectl --namespace kube-system delete daemonset kube-proxy; its rules stay on each node until that reboots",
		})
	}

	if vip, now := kubeVIP(running), kubeVIP(wanted); vip != "" && vip != now && wanted.K8sClusterConfig() != nil {
		remedy := "after the update, run 'talosctl upgrade-k8s', which applies the manifests"
		if now == "" {
			remedy = "after the update, run: kubectl --namespace kube-system delete daemonset kube-vip"
		}

		found = append(found, spec.Problem{
			Path: "cluster.endpoint", Rule: "Talos neither changes nor removes kube-vip in a cluster that runs: it goes on " +
				"announcing the address that it has", Value: wanted.K8sClusterConfig().ClusterEndpoint().Host, Remedy: remedy,
		})
	}

	before, member := machineconfig.LoginServer(running)
	after, stays := machineconfig.LoginServer(wanted)

	if member && stays && before != after {
		if after == "" {
			after = "Tailscale's own"
		}

		found = append(found, spec.Problem{
			Path: "tailscale.loginServer", Rule: "applies to nodes that have not joined a tailnet yet: nodes that have stay " +
				"in it, because they keep their login on their disk", Value: after,
			Remedy: "to have a node join the other tailnet, name it in lifecycle.replace",
		})
	}

	return found
}

// kubeVIP is the manifest of kube-vip that a control plane has; empty: it has none.
func kubeVIP(cfg talosconfig.Provider) string {
	for _, m := range cfg.K8sInlineManifestConfigs() {
		if m.Name() == "kube-vip" {
			return m.Contents()
		}
	}

	return ""
}
