package importcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/tokens"
)

// placeholder is what the engine writes where an id is to be filled in.
const placeholder = "<PLACEHOLDER>"

// kinds says how resources of a type are found. Components and providers are not in it: they are no more than state.
var kinds = map[string]func(f *finder, ctx context.Context, p planned) (outcome, error){
	tokens.VM:              (*finder).vm,
	tokens.Download:        (*finder).download,
	tokens.PCIMapping:      (*finder).mapping,
	tokens.HAResource:      (*finder).ha,
	tokens.FirewallRules:   (*finder).firewallRules,
	tokens.FirewallOptions: (*finder).firewallOptions,
	tokens.Secrets:         (*finder).machineSecrets,
	tokens.File:            (*finder).snippet,

	tokens.Schematic:     remake("the factory knows it by its content"),
	tokens.Configuration: remake("a node that has the configuration is not changed by it"),
	tokens.Kubeconfig:    remake("it is fetched"),
	tokens.Stash:         (*finder).stash,
}

// remake is for what leaves nothing to be found, and may be made again.
func remake(why string) func(*finder, context.Context, planned) (outcome, error) {
	return func(*finder, context.Context, planned) (outcome, error) {
		return outcome{verdict: again, remark: why}, nil
	}
}

// fill looks for all resources. What was found stays in the file and is filled in, the rest goes out of it.
func (f *finder) fill(ctx context.Context, w *wanted) ([]outcome, error) {
	var all []outcome

	// The cluster's secrets are asked for last: there is no use for them when nothing is there.
	for _, secrets := range []bool{false, true} {
		kept := make([]map[string]any, 0, len(w.Resources))

		for _, entry := range w.Resources {
			// Components and providers have no id to be filled in.
			if text(entry, "id") != placeholder || f.secret(keyOf(entry)) != secrets {
				kept = append(kept, entry)

				continue
			}

			o, err := f.findResource(ctx, w, entry)
			if err != nil {
				return all, err
			}

			if all = append(all, o); o.verdict == found {
				kept = append(kept, entry)
			}
		}

		w.Resources = kept

		if !f.anything {
			return all, errors.New("none of the resources of the program exist on Proxmox VE: to create them, run " +
				"an update")
		}
	}

	return all, nil
}

// secret says that a resource is what makes the cluster this one and no other.
func (f *finder) secret(k key) bool {
	return k.kind == tokens.Secrets || k.kind == tokens.Stash && k.name == f.identity
}

// findResource looks for one resource, and fills in its entry when it was found.
func (f *finder) findResource(ctx context.Context, w *wanted, entry map[string]any) (outcome, error) {
	k := keyOf(entry)

	if k.kind == tokens.Stash && k.name == f.identity && f.given {
		return outcome{verdict: again, name: k.name, remark: "it is made of k3sIdentity"}, nil
	}

	if k.kind == tokens.Stash && k.name == f.identity {
		return outcome{},
			fmt.Errorf("%s is lost with the state, and the nodes of this cluster accept no other: go back to a "+
				"copy of the state "+
				"('go run ./stacks/ops list', 'restore'), or read it from a server and set k3sIdentity (stacks/docs/recovery.md)",
				k.name)
	}

	lookUp, known := kinds[k.kind]
	if !known {
		return outcome{
			verdict: absent, name: k.name, remark: "this command cannot look up a " + k.kind +
				"; check whether it exists before you run an update",
		}, nil
	}

	o, err := lookUp(f, ctx, w.planned[k])
	if err != nil {
		return o, fmt.Errorf("%s: %w", k.name, err)
	}

	o.name = k.name

	if o.verdict == found {
		entry["id"] = o.id
	}

	if o.state != nil {
		entry["inputs"], entry["outputs"] = o.state.inputs, o.state.outputs
	}

	return o, nil
}

// vm finds a VM by its VMID. The UUID that would tell whose it is was lost with the state: it has to have the cluster's
// tags, and its name, by which a preview refuses others. The UUID that it has is shown.
func (f *finder) vm(ctx context.Context, p planned) (outcome, error) {
	vmid := int(number(p.inputs, "vmId"))

	v, there, err := f.proxmox.Find(ctx, vmid)
	if err != nil {
		return outcome{}, err
	}

	if !there {
		return outcome{verdict: absent, remark: fmt.Sprintf("no VM has VMID %d", vmid)}, nil
	}

	if !vmidentity.Tagged(v.Tags, f.owner) {
		return outcome{},
			fmt.Errorf("VMID %d is %q on host %s, without the tags %s of this cluster: it is another VM and is not taken into "+
				"the state. "+
				"Choose another VMID, or give it the tags if it is yours", vmid, v.Name, v.Host, strings.Join(f.owner, " and "))
	}

	config, err := f.proxmox.Config(ctx, v)
	if err != nil {
		return outcome{}, err
	}

	for _, m := range []map[string]any{p.inputs, p.outputs} {
		// It may have been migrated.
		m["nodeName"] = v.Host

		// The one that was planned was made up for this preview.
		if smbios, ok := m["smbios"].(map[string]any); ok {
			smbios["uuid"] = config.UUID
		}

		// What the drive held first has been taken out of it.
		if drive, ok := m["cdrom"].(map[string]any); ok && config.CDROMs[text(drive, "interface")] != "" {
			drive["fileId"] = config.CDROMs[text(drive, "interface")]
		}
	}

	// A drive that is to stay empty is not always made, and one that is not there would be made now.
	if drive, ok := p.outputs["cdrom"].(map[string]any); ok && config.CDROMs[text(drive, "interface")] == "" {
		delete(p.outputs, "cdrom")
	}

	return f.exists(fmt.Sprint(vmid), fmt.Sprintf("VM %d on host %s, UUID %s", vmid, v.Host, config.UUID), p)
}

// download finds a file on a datastore.
func (f *finder) download(ctx context.Context, p planned) (outcome, error) {
	host, datastore := text(p.inputs, "nodeName"), text(p.inputs, "datastoreId")
	volume := datastore + ":" + text(p.inputs, "contentType") + "/" + text(p.inputs, "fileName")

	files, err := f.proxmox.Files(ctx, host, datastore)
	if err != nil {
		return outcome{}, err
	}

	size, there := files[volume]
	if !there {
		return outcome{verdict: absent, remark: volume + " is not on host " + host}, nil
	}

	// Another size would be another file.
	p.outputs["size"] = size

	return f.exists(volume, volume+" on host "+host, p)
}

// snippet finds the user data of a node. The provider reads where it is, and not what it holds: nothing writes it
// again, which would make another instance of the machine to cloud-init.
func (f *finder) snippet(ctx context.Context, p planned) (outcome, error) {
	raw, _ := p.inputs["sourceRaw"].(map[string]any)
	name := text(raw, "fileName")
	host, datastore := text(p.inputs, "nodeName"), text(p.inputs, "datastoreId")
	volume := datastore + ":" + text(p.inputs, "contentType") + "/" + name

	files, err := f.proxmox.Snippets(ctx, host, datastore)
	if err != nil {
		return outcome{}, err
	}

	if _, there := files[volume]; !there {
		return outcome{verdict: absent, remark: volume + " is not on host " + host}, nil
	}

	f.anything = true

	return outcome{verdict: found, id: host + "/" + volume, remark: volume + " on host " + host}, nil
}

// mapping finds a resource mapping by its name, and refuses one of other devices: another cluster's may have its name.
func (f *finder) mapping(ctx context.Context, p planned) (outcome, error) {
	all, err := f.proxmox.Mappings(ctx)
	if err != nil {
		return outcome{}, err
	}

	name := text(p.inputs, "name")

	devices, there := all[name]
	if !there {
		return outcome{verdict: absent, remark: "there is no resource mapping " + name}, nil
	}

	if want := mapped(p.inputs); !slices.EqualFunc(devices, want, proxmoxapi.Mapped.Same) {
		return outcome{}, fmt.Errorf("resource mapping %s is of %v, and the configuration gives it %v: it may be another "+
			"cluster's and is not taken into the state. Set gpus of the pool to what the mapping has; or, if no VM uses it, "+
			"run 'pvesh delete /cluster/mapping/pci/%[1]s' on a host", name, devices, want)
	}

	return f.exists(name, "resource mapping "+name, p)
}

// mapped are the devices that a resource mapping is to have. What a device is may not be known before it is made.
func mapped(inputs map[string]any) []proxmoxapi.Mapped {
	maps, _ := inputs["maps"].([]any) // what is no list is none

	var devices []proxmoxapi.Mapped

	for _, device := range maps {
		if device, ok := device.(map[string]any); ok {
			devices = append(devices, proxmoxapi.Mapped{
				Host: text(device, "node"), BDF: text(device, "path"), ID: text(device, "id"),
			})
		}
	}

	return devices
}

// ha finds what the high-availability manager is told of a VM.
func (f *finder) ha(ctx context.Context, p planned) (outcome, error) {
	all, err := f.proxmox.HAResources(ctx)
	if err != nil {
		return outcome{}, err
	}

	id := text(p.inputs, "resourceId")
	if !all[id] {
		return outcome{verdict: absent, remark: "the high-availability manager does not know " + id}, nil
	}

	return f.exists(id, "high availability of "+id, p)
}

// machineSecrets has the talos provider read the cluster's secrets from a file.
func (f *finder) machineSecrets(ctx context.Context, _ planned) (outcome, error) {
	path, err := f.secrets(ctx)
	if err == nil && path == "" {
		return outcome{verdict: absent, remark: unfounded}, nil
	}

	return outcome{verdict: found, id: path, remark: path}, err
}

// stash: nothing is to be found of what only the state keeps. What it keeps is a version of Talos, or the order of
// steps.
func (f *finder) stash(_ context.Context, p planned) (outcome, error) {
	remark := "workers wait for it, and it for control planes"
	if strings.HasPrefix(text(p.inputs, "input"), "v") {
		remark = "it keeps cluster.versions.contract: set it if the cluster was made with another version"
	}

	return outcome{verdict: again, remark: remark}, nil
}
