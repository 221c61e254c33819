// Command consumer is an example of a stack that reads a cluster's stack: the configuration of an HAProxy in front of
// the control planes follows from the contract, and the kubeconfig is handed on. It needs one key, the name of the
// cluster's stack:
//
//	pulumi config set cluster organization/talos-proxmox/dev
package main

import (
	"fmt"
	"net"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/config"

	"talos-proxmox/stacks/contract"
)

func main() { pulumi.Run(program) }

func program(ctx *pulumi.Context) error {
	name, err := config.Try(ctx, "cluster")
	if err != nil {
		return fmt.Errorf("%w; name the stack of the cluster, for example organization/talos-proxmox/dev", err)
	}

	ref, err := pulumi.NewStackReference(ctx, name, nil)
	if err != nil {
		return err
	}

	outputs, err := contract.ReadOutputs(ref)
	if err != nil {
		return err
	}

	// Plain values: they may decide which resources there are, and how many.
	for _, n := range outputs.Contract.BootstrapNodes.ControlPlane {
		if n.IP == nil {
			if err := ctx.Log.Warn(n.Name+" is left out: its address is not known", nil); err != nil {
				return err
			}
		}
	}

	ctx.Export("haproxy", pulumi.String(haproxy(outputs.Contract)))
	ctx.Export("kubeconfig", outputs.Kubeconfig) // secret, as it is there

	return nil
}

// haproxy spreads connections to the Kubernetes API over the control planes that answer. Their machine configuration
// names the balancer with cluster.endpoint.mode dns.
func haproxy(c contract.Contract) string {
	var b strings.Builder

	fmt.Fprintf(&b, "frontend %s\n  mode tcp\n  bind :6443\n  default_backend %s-control-planes\n\n", c.Cluster, c.Cluster)
	fmt.Fprintf(&b, "backend %s-control-planes\n  mode tcp\n  option tcp-check\n", c.Cluster)

	for _, n := range c.BootstrapNodes.ControlPlane {
		if n.IP != nil {
			fmt.Fprintf(&b, "  server %s %s check\n", n.Name, net.JoinHostPort(*n.IP, "6443"))
		}
	}

	return b.String()
}
