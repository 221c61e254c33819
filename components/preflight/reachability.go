package preflight

import (
	"context"
	"net/netip"
	"net/url"
	"slices"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// checkEndpointName warns of a name for the Kubernetes API that has no address while control planes are to be made: the
// kubeconfig and other nodes would not find the API by it. A load balancer may get the name later.
func (c *checker) checkEndpointName(ctx context.Context) error {
	if c.Plan.Teardown || c.Plan.EndpointMode != spec.EndpointDNS ||
		!slices.ContainsFunc(c.Plan.ControlPlanes(), func(n plan.Node) bool { return c.Absent[n.VMID] }) {
		return nil
	}

	endpoint, err := url.Parse(c.Plan.Endpoint)
	if err != nil || endpoint.Hostname() == "" || c.network.Resolves(ctx, endpoint.Hostname()) {
		return ctx.Err()
	}

	c.Warnings.Add("cluster.endpoint.host", "does not resolve on this machine, and nodes and the kubeconfig reach the "+
		"Kubernetes API by it", endpoint.Hostname(), "add a DNS record that names the load balancer, or each control plane")

	return ctx.Err()
}

// checkOwnAccess warns where the firewalls of new nodes would shut out the machine that runs this program: they would
// come up, and never be configured or joined. It is no problem, because a router on the way may translate the address.
func (c *checker) checkOwnAccess(ctx context.Context) error {
	// With bootstrap external, nodes are configured from elsewhere.
	if !c.Plan.Firewall || c.Plan.Teardown || c.Plan.Bootstrap == spec.BootstrapExternal {
		return nil
	}

	for _, n := range c.Plan.Nodes() {
		from := managementNetworks(c.Plan.PoolOf(n))
		if !c.Absent[n.VMID] || !n.Address.IsValid() || n.Address.IsLoopback() || from == nil {
			continue
		}

		own := c.network.Source(ctx, n.Address)
		if !own.IsValid() || own.IsLoopback() ||
			slices.ContainsFunc(from, func(p netip.Prefix) bool { return p.Contains(own) }) {
			continue
		}

		c.Warnings.Add("firewall.apiFrom", "does not include this machine: the firewalls of the nodes would let it reach "+
			"neither their APIs nor SSH", own.String(), "add its address or network, unless a router translates it to an "+
			"address that is included")
	}

	return ctx.Err()
}

// managementNetworks are from where the nodes of a pool are configured: the API of Talos, or SSH.
func managementNetworks(pool plan.PlannedPool) []netip.Prefix {
	for _, in := range pool.Ingress {
		if in.Name == "apid" || in.Name == "ssh" {
			return in.From
		}
	}

	return nil
}
