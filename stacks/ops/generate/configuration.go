package generate

import (
	"bytes"
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/talosimage"
	"talos-proxmox/stacks/config"
)

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
