package generate

import (
	"errors"
	"net/netip"
	"slices"

	"talos-proxmox/components/machineconfig"
	"talos-proxmox/stacks/config"
)

func (w *writer) write() (*Result, error) {
	control := slices.IndexFunc(w.machines, func(m *machine) bool { return role(m) == "controlplane" })
	if control < 0 {
		return nil, errors.New("no control plane is among these VMs")
	}

	first := w.machines[control]
	w.cluster, w.network = first.config.K8sClusterConfig().ClusterName(), w.nodesNetwork()
	w.patches, w.secret = map[*machine]string{}, map[*machine]bool{}

	contract, err := w.findPatches(first)
	if err != nil {
		return nil, err
	}

	settings := w.config(first, contract)
	secrets := takeSecrets(settings.pools)

	file, err := settings.encode()
	if err != nil {
		return nil, err
	}

	if _, err := config.LoadText(file, "."); err != nil {
		w.note("the file is not valid yet, correct it by hand: %v", err)
	}

	for _, text := range w.unlike {
		w.note("%s", text)
	}

	w.same(first)
	w.note("could not determine how nodes get their addresses: the file has reserved, which expects them from DHCP " +
		"or from the image; new nodes need that too")
	w.note("the credentials of Proxmox VE are not in the file: pulumi config set --secret proxmoxTokenSecret")

	return &Result{Cluster: w.cluster, File: file, Secrets: secrets, Notes: w.notes}, nil
}

// same holds what can only be said of all nodes together.
func (w *writer) same(first *machine) {
	for _, m := range w.machines {
		if m.system.Talos != first.system.Talos {
			w.note("%s runs Talos %s, %s runs %s: bring them to one version first", m.vm.Name, m.system.Talos, first.vm.Name,
				first.system.Talos)
		}

		if m.hasCDROM() != first.hasCDROM() {
			w.note("some VMs have a drive for ISO files and some have none: the first update would change those of VM %d",
				m.vm.ID)
		}

		if name, _ := machineconfig.Identity(m.config); name != "" && name != m.vm.Name {
			w.note(
				"VM %d is called %s and its node %s: the program gives both one name, and the first update would rename the node",
				m.vm.ID, m.vm.Name, name)
		}
	}
}

// nodesNetwork is the smallest that holds all nodes, and no smaller than a /24.
func (w *writer) nodesNetwork() netip.Prefix {
	a := w.machines[0].address

	for bits := 24; bits > 0; bits-- {
		p := netip.PrefixFrom(a, bits).Masked()
		if !slices.ContainsFunc(w.machines, func(m *machine) bool { return !p.Contains(m.address) }) {
			return p
		}
	}

	return netip.PrefixFrom(a, 24).Masked()
}
