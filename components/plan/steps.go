package plan

import (
	"fmt"

	"talos-proxmox/components/spec"
)

// StepsOf are what is done for a plan, in order.
func StepsOf(p *Plan) []Step {
	var (
		all              []Step
		controls, others int
		images           = map[[2]string]bool{}
		detach           bool
	)

	step := func(name, format string, args ...any) { all = append(all, Step{name, fmt.Sprintf(format, args...)}) }

	for _, pool := range p.Pools {
		if pool.Role == spec.RoleControlPlane {
			controls += len(pool.Nodes)
		} else {
			others += len(pool.Nodes)
		}

		for _, n := range pool.Nodes {
			// An image is wanted on each host that boots from it.
			if pool.Image.URL != "" || pool.Image.FactoryURL != "" {
				images[[2]string{n.Host, n.ImageKey}] = true
			}
		}

		detach = detach || pool.Image.Detach
	}

	if p.Distribution == spec.DistributionK3s {
		stepsK3s(p, step, len(images), controls, others)

		return all
	}

	if len(images) > 0 {
		step("images", "fetch %s, once per host", Count(len(images), "image"))
	}

	step("machines", "make %s", Count(controls+others, "VM"))

	if p.Addressing == spec.AddressingAgent {
		step("addresses", "read the addresses from the guest agents, for at most %s", p.AgentTimeout)
	}

	if p.Bootstrap == spec.BootstrapPulumi {
		if detach {
			step("detach", "take the ISO file out of each VM's drive")
		}

		if p.ImportSecrets {
			step("secrets", "take the machine secrets from the configuration")
		} else {
			step("secrets", "make the machine secrets")
		}

		step("configure-controlplanes", "configure %s", Count(controls, "control plane"))

		late := p.Discovery != spec.DiscoveryService

		if others > 0 && !late {
			step("configure-workers", "configure %s, after the control planes", Count(others, "worker"))
		}

		wait := "the control planes are configured"
		if p.BootstrapWaitsForWorkers && !late {
			wait = "all nodes are configured"
		}

		step("bootstrap", "bootstrap etcd on the first control plane when %s", wait)
		step("ready", "wait for the control plane, for at most %s", p.ReadyTimeout)
		step("kubeconfig", "fetch the kubeconfig")

		if others > 0 && late {
			step("configure-workers", "configure %s, which find the control planes in Kubernetes", Count(others, "worker"))
		}

		if f := p.Outputs.Files; f != nil {
			step("files", "write %s to %s", Count(len(f.Write), "file"), f.Dir)
		}
	}

	contract := "the contract"
	if p.Outputs.Legacy {
		contract += " and the previous outputs"
	}

	step("outputs", "export %s", contract)

	return all
}

// stepsK3s are what is done for a cluster of K3s.
func stepsK3s(p *Plan, step func(name, format string, args ...any), images, servers, agents int) {
	step("identity", "make the cluster's authorities and its tokens")

	if images > 0 {
		step("images", "fetch %s, once per host", Count(images, "image"))
	}

	step("user-data", "write %s to datastore %s", Count(servers+agents, "user data file"), p.K3s.Snippets)
	step("machines", "make %s", Count(servers+agents, "VM"))

	if p.Addressing == spec.AddressingAgent {
		step("addresses", "read the addresses from the guest agents, for at most %s", p.AgentTimeout)
	}

	step("join", "wait until each node has installed K3s %s and is ready, for at most %s", p.K3s.Version, p.ReadyTimeout)
	step("kubeconfig", "issue the administrator's certificate, and show the kubeconfig when the servers are ready")

	if f := p.Outputs.Files; f != nil {
		step("files", "write %s to %s", Count(len(f.Write), "file"), f.Dir)
	}

	step("outputs", "export the contract")
}
