package generate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"go.yaml.in/yaml/v3"

	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/talosimage"
	"talos-proxmox/stacks/config"
)

// writer carries what is known while the file is written.
type writer struct {
	options  Options
	machines []*machine
	bundle   *secrets.Bundle
	mappings map[string][]proxmoxapi.Mapped

	cluster       string
	network       netip.Prefix
	heldVMIDs     map[int]bool
	heldAddresses map[netip.Addr]bool
	// patches are what the configuration of a node has in addition to what the program renders.
	patches map[*machine]string
	// secret says of which nodes the patches may hold a secret.
	secret map[*machine]bool
	notes  []string
	// unlike is what cannot be described.
	unlike []string
}

func (w *writer) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(w.notes, text) {
		w.notes = append(w.notes, text)
	}
}

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

func (m *machine) hasCDROM() bool {
	for key, value := range m.settings {
		if key == "ide2" && strings.Contains(value, "media=cdrom") && !strings.Contains(value, "cloudinit") {
			return true
		}
	}

	return false
}

// templates says whether the VMs look like clones: they have no drive for an ISO file. What of them is a template's is
// not looked at any more.
func (w *writer) templates() bool { return !w.machines[0].hasCDROM() }

// configuration is what the stack file says.
type configuration struct {
	section
	pools tree
}

// config is the whole of it, secrets included.
func (w *writer) config(first *machine, contract string) configuration {
	w.heldVMIDs, w.heldAddresses = map[int]bool{}, map[netip.Addr]bool{}
	for _, m := range w.machines {
		w.heldVMIDs[m.vm.ID], w.heldAddresses[m.address] = true, true
	}

	pools := tree{}
	for _, p := range w.pools() {
		pools[p.name] = p.write(w)
	}

	system := talosimage.System(first.config)
	cluster := tree{
		"name": w.cluster, "versions": tree{
			"talos": first.system.Talos, "kubernetes": system.Kubernetes,
			"contract": contract,
		}, "endpoint": w.endpoint(first),
	}

	if name := machineconfig.CNI(first.config); name != "flannel" {
		cluster["cni"] = tree{"name": "none", "kubeProxy": first.config.K8sProxyConfig().Enabled()}
	} else if !first.config.K8sProxyConfig().Enabled() {
		cluster["cni"] = tree{"kubeProxy": false}
	}

	network := tree{"addressing": "reserved", "cidr": w.network.String()}

	return configuration{section{
		{"environment", "lab"},
		{"proxmox", w.proxmox()},
		{"cluster", cluster},
		{"image", w.image(first)},
		{"network", network},
		{"pools", pools},
	}, pools}
}

func (c configuration) encode() ([]byte, error) {
	text := &bytes.Buffer{}
	encoder := yaml.NewEncoder(text)
	encoder.SetIndent(2)

	err := encoder.Encode(tree{"config": c.section})

	return text.Bytes(), errors.Join(err, encoder.Close())
}

// section is written in its order.
type section []struct {
	key   string
	value any
}

// MarshalYAML implements yaml.Marshaler.
func (s section) MarshalYAML() (any, error) {
	mapping := &yaml.Node{Kind: yaml.MappingNode}

	for _, entry := range s {
		var value yaml.Node
		if err := value.Encode(entry.value); err != nil {
			return nil, err
		}

		mapping.Content = append(mapping.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: config.Project + ":" + entry.key},
			&value)
	}

	return mapping, nil
}

func (w *writer) proxmox() tree {
	var hosts []any

	for _, m := range w.machines {
		if host := (tree{"name": m.vm.Host}); !slices.ContainsFunc(hosts,
			func(h any) bool { return h.(tree)["name"] == m.vm.Host }) {
			hosts = append(hosts, host)
		}
	}

	slices.SortFunc(hosts, func(a, b any) int { return cmp.Compare(a.(tree)["name"].(string), b.(tree)["name"].(string)) })

	t := tree{"endpoint": w.options.Access.Endpoint, "hosts": hosts}

	if w.options.Access.Insecure {
		t["insecure"] = true
	}

	if w.options.Access.TokenID != "" {
		t["tokenId"] = w.options.Access.TokenID
	} else {
		t["username"] = w.options.Access.Username
	}

	return t
}

// image is where new nodes would come from. Of what stands, that is not known any more.
func (w *writer) image(first *machine) tree {
	t := tree{"platform": cmp.Or(talosimage.System(first.config).Platform, first.system.Platform, "metal")}

	if schematic := cmp.Or(talosimage.System(first.config).Schematic, first.system.Schematic); schematic != "" {
		t["schematic"] = schematic
	}

	if on := first.system.SecureBoot; on != nil && *on {
		t["secureBoot"] = true
	}

	if w.templates() {
		base := "talos-" + first.system.Talos + "-base"
		t["source"], t["template"] = "template", tree{"control": base, "worker": base, "gpuWorker": base}
		w.note(
			"no VM records which template it was cloned from: the file names a template %s, which must exist "+
				"before a new node is created",
			base)
	} else {
		volume := "local:iso/talos-" + strings.TrimPrefix(first.system.Talos, "v") + ".iso"
		t["source"], t["iso"] = "iso", tree{"volume": volume}
		w.note("no VM records which image it booted first: the file names %s, which must exist before a new node "+
			"is created", volume)
	}

	return t
}

// endpoint is how the Kubernetes API is reached.
func (w *writer) endpoint(first *machine) tree {
	at := first.config.K8sClusterConfig().ClusterEndpoint()
	host := at.Hostname()
	address, err := netip.ParseAddr(host)

	switch {
	case err != nil:
		return tree{"mode": "dns", "host": host}
	case strings.Contains(w.virtual(first), host):
		return tree{"mode": "vip", "address": host}
	case w.firstControlPlane() == address:
		return tree{"mode": "firstControlPlane"}
	default:
		w.note("the Kubernetes API is at %s, which is neither the first control plane nor a virtual address of "+
			"Talos: the file has it as vip; find out what manages it", at)

		return tree{"mode": "vip", "address": host}
	}
}

// virtual is what a configuration says of virtual addresses.
func (w *writer) virtual(m *machine) string {
	var all []string

	for _, d := range m.config.Machine().Network().Devices() {
		if vip := d.VIPConfig(); vip != nil {
			all = append(all, vip.IP())
		}
	}

	for _, document := range m.config.Documents() {
		if document.Kind() == "Layer2VIPConfig" {
			if text, err := yaml.Marshal(document); err == nil {
				all = append(all, string(text))
			}
		}
	}

	return strings.Join(all, " ")
}

// firstControlPlane is the address of the one that is first in the plan: pools by their names, then numbers.
func (w *writer) firstControlPlane() netip.Addr {
	var controls []*pool

	for _, p := range w.pools() {
		if p.role == "controlplane" {
			controls = append(controls, p)
		}
	}

	slices.SortFunc(controls, func(a, b *pool) int { return cmp.Compare(a.name, b.name) })

	return controls[0].nodes[controls[0].ordinals()[0]].address
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
