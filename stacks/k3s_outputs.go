package stacks

import (
	"path"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components"
	"talos-proxmox/components/spec"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/stacks/shellword"
)

// k3sOutputs are the stack outputs of a cluster of K3s.
func k3sOutputs(c *components.K3sCluster, stack string) pulumi.Map {
	p := c.Plan

	var made []member
	for _, n := range c.Nodes {
		made = append(made, member{n.VMID, n.Host, n.IPAddress})
	}

	exported := shared(p, made, groups(p, made),
		pulumi.Map{"k3s": pulumi.String(p.K3s.Version), "kubernetes": pulumi.String(p.Kubernetes)})
	exported[contract.OutputKubeconfig] = pulumi.ToSecret(c.Kubeconfig)
	exported[contract.OutputKubernetesCredentials] = kubernetesCredentials(c.Kubeconfig)
	exported[contract.OutputCredentialsExpiry] = pulumi.Map{contract.OutputKubeconfig: c.KubeconfigExpiry}
	exported[contract.OutputK3s] = k3sStatus(c)
	exported[contract.OutputNextSteps] = k3sNextSteps(c, stack)

	if p.K3s.GenerateSSHKey {
		exported[contract.OutputSSHPrivateKey] = pulumi.ToSecret(c.SSHPrivateKey)
	}

	return exported
}

// k3sStatus says where the cluster is, and of each node its health, what was noted when it joined, and how to log in to
// it. It is there when all of them have joined.
func k3sStatus(c *components.K3sCluster) pulumi.Map {
	nodes := pulumi.Map{}

	for i, n := range c.Plan.Nodes() {
		node := c.Nodes[i]
		nodes[n.Name] = pulumi.Map{
			"health": c.Health.MapIndex(pulumi.String(n.Name)), "host_name": pulumi.String(n.Name), "joined": node.Joined.Input,
			"ssh": pulumi.Sprintf("ssh %s@%s", c.Plan.K3s.User, node.IPAddress.Elem()),
		}
	}

	return pulumi.Map{"api": c.Endpoint, "nodes": nodes}
}

// k3sNextSteps are the commands that an operator wants next, ready to be copied.
func k3sNextSteps(c *components.K3sCluster, stack string) pulumi.Map {
	const file = spec.File(contract.OutputKubeconfig)

	output := "pulumi stack output --stack " + shellword.Quote(stack) + " "
	found := pulumi.Map{"contract": pulumi.String(output + contract.OutputContract + " --json")}
	kubeconfig := "./" + string(file)

	if f := c.Plan.Outputs.Files; f != nil && slices.Contains(f.Write, file) {
		kubeconfig = shellword.Quote("./" + path.Join(f.Dir, string(file)))
	} else {
		found["get_kubeconfig"] = pulumi.String("(umask 077; " + output + contract.OutputKubeconfig +
			" --show-secrets > kubeconfig)")
	}

	found["kubectl"] = pulumi.String("kubectl --kubeconfig " + kubeconfig + " get nodes -o wide")

	key := ""
	if c.Plan.K3s.GenerateSSHKey {
		key = "-i ssh_private_key "
		found["get_ssh_private_key"] = pulumi.String("(umask 077; " + output + contract.OutputSSHPrivateKey +
			" --show-secrets > ssh_private_key)")
	}

	found["ssh"] = pulumi.Sprintf("ssh %s%s@%s", key, c.Plan.K3s.User, c.Nodes[0].IPAddress.Elem())

	return found
}
