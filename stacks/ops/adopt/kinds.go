package adopt

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"

	"talos-proxmox/components/proxmoxapi"
)

// Proxmox is what is asked of Proxmox VE; *proxmoxapi.Client answers it.
type Proxmox interface {
	Find(ctx context.Context, vmid int) (proxmoxapi.VM, bool, error)
	Config(ctx context.Context, vm proxmoxapi.VM) (proxmoxapi.VMConfig, error)
	Files(ctx context.Context, host, datastore string) (map[string]int64, error)
	Mappings(ctx context.Context) (map[string]bool, error)
	HAResources(ctx context.Context) (map[string]bool, error)
}

// verdict says what becomes of a resource.
type verdict string

const (
	found  verdict = "found"
	absent verdict = "absent" // the next update makes it
	again  verdict = "again"  // the next update makes it again, which changes nothing
)

// outcome is what was found out about one resource.
type outcome struct {
	verdict verdict
	name    string
	remark  string
	// id and state go into the file, where the resource was found. Without a state, the provider reads it.
	id    string
	state map[string]any
}

const (
	// placeholder is what the engine writes where an id is to be filled in.
	placeholder = "<PLACEHOLDER>"
	// unknown stands for a value that a preview cannot know.
	unknown     = plugin.UnknownStringValue
	secretsType = "talos:machine/secrets:Secrets"
)

// finder looks for resources.
type finder struct {
	proxmox Proxmox
	// secrets returns the file of the cluster's secrets.
	secrets func(ctx context.Context) (string, error)
	// anything says that something was found on Proxmox VE.
	anything bool
}

// kinds says how resources of a type are found. Components and providers are not in it: they are no more than state.
var kinds = map[string]func(f *finder, ctx context.Context, inputs map[string]any) (outcome, error){
	"proxmoxve:VM/virtualMachine:VirtualMachine": (*finder).vm,
	"proxmoxve:Download/file:File":               (*finder).download,
	"proxmoxve:Hardware/mapping:Pci":             (*finder).mapping,
	"proxmoxve:HA/hAResource:HAResource":         (*finder).ha,
	secretsType:                                  (*finder).machineSecrets,

	"talos:imagefactory/schematic:Schematic":              remake("the factory knows it by its content"),
	"talos:machine/configurationApply:ConfigurationApply": remake("a node that has the configuration is not changed by it"),
	"talos:cluster/kubeconfig:Kubeconfig":                 remake("it is fetched"),
}

// remake is for what leaves nothing to be found, and may be made again.
func remake(why string) func(*finder, context.Context, map[string]any) (outcome, error) {
	return func(*finder, context.Context, map[string]any) (outcome, error) {
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
			if text(entry, "id") != placeholder || (text(entry, "type") == secretsType) != secrets {
				kept = append(kept, entry)

				continue
			}

			o, err := f.look(ctx, w, entry)
			if err != nil {
				return all, err
			}

			if all = append(all, o); o.verdict == found {
				kept = append(kept, entry)
			}
		}

		w.Resources = kept

		if !f.anything {
			return all, errors.New("nothing that the program wants is on Proxmox VE: to make it all, run an update")
		}
	}

	return all, nil
}

// look looks for one resource, and fills in its entry when it was found.
func (f *finder) look(ctx context.Context, w *wanted, entry map[string]any) (outcome, error) {
	k := keyOf(entry)

	look, known := kinds[k.kind]
	if !known {
		return outcome{
			verdict: absent, name: k.name, remark: "how to find a " + k.kind + " is not known here; see whether it is there before you run an update",
		}, nil
	}

	o, err := look(f, ctx, w.inputs[k])
	if err != nil {
		return o, fmt.Errorf("%s: %w", k.name, err)
	}

	o.name = k.name

	if o.verdict == found {
		entry["id"] = o.id
	}

	if o.state != nil {
		entry["inputs"], entry["outputs"] = o.state, o.state
	}

	return o, nil
}

// exists is a resource that is on Proxmox VE.
func (f *finder) exists(id, remark string, state map[string]any) (outcome, error) {
	f.anything = true

	return outcome{verdict: found, id: id, remark: remark, state: known(state)}, nil
}

// vm finds a VM by its VMID. That it is the node's is known: a preview refuses a VMID that somebody else has.
func (f *finder) vm(ctx context.Context, inputs map[string]any) (outcome, error) {
	vmid := int(number(inputs, "vmId"))

	v, there, err := f.proxmox.Find(ctx, vmid)
	if err != nil {
		return outcome{}, err
	}

	if !there {
		return outcome{verdict: absent, remark: fmt.Sprintf("no VM has VMID %d", vmid)}, nil
	}

	config, err := f.proxmox.Config(ctx, v)
	if err != nil {
		return outcome{}, err
	}

	state := maps.Clone(inputs)
	// It may have been migrated.
	state["nodeName"] = v.Host
	// The one among the inputs was made up for this preview.
	state["smbios"] = map[string]any{"uuid": config.UUID}
	if config.UUID == "" {
		delete(state, "smbios")
	}

	// What the drive held first has been taken out of it.
	if drive, ok := state["cdrom"].(map[string]any); ok {
		if volume, there := config.CDROMs[text(drive, "interface")]; there {
			drive = maps.Clone(drive)
			drive["fileId"] = volume
			state["cdrom"] = drive
		}
	}

	return f.exists(fmt.Sprint(vmid), "VM "+fmt.Sprint(vmid)+" on host "+v.Host, state)
}

// download finds a file on a datastore.
func (f *finder) download(ctx context.Context, inputs map[string]any) (outcome, error) {
	host, datastore := text(inputs, "nodeName"), text(inputs, "datastoreId")
	volume := datastore + ":" + text(inputs, "contentType") + "/" + text(inputs, "fileName")

	files, err := f.proxmox.Files(ctx, host, datastore)
	if err != nil {
		return outcome{}, err
	}

	size, there := files[volume]
	if !there {
		return outcome{verdict: absent, remark: volume + " is not on host " + host}, nil
	}

	state := maps.Clone(inputs)
	// Another size would be another file.
	state["size"] = size

	return f.exists(volume, volume+" on host "+host, state)
}

// mapping finds a resource mapping by its name.
func (f *finder) mapping(ctx context.Context, inputs map[string]any) (outcome, error) {
	all, err := f.proxmox.Mappings(ctx)
	if err != nil {
		return outcome{}, err
	}

	name := text(inputs, "name")
	if !all[name] {
		return outcome{verdict: absent, remark: "there is no resource mapping " + name}, nil
	}

	return f.exists(name, "resource mapping "+name, inputs)
}

// ha finds what the high-availability manager is told of a VM.
func (f *finder) ha(ctx context.Context, inputs map[string]any) (outcome, error) {
	all, err := f.proxmox.HAResources(ctx)
	if err != nil {
		return outcome{}, err
	}

	id := text(inputs, "resourceId")
	if !all[id] {
		return outcome{verdict: absent, remark: "the high-availability manager does not know " + id}, nil
	}

	return f.exists(id, "high availability of "+id, inputs)
}

// machineSecrets has the talos provider read the cluster's secrets from a file.
func (f *finder) machineSecrets(ctx context.Context, _ map[string]any) (outcome, error) {
	path, err := f.secrets(ctx)

	return outcome{verdict: found, id: path, remark: path}, err
}

// number reads a number of an event.
func number(from map[string]any, field string) float64 {
	n, _ := from[field].(float64) //nolint:errcheck // what is no number is none

	return n
}

// known is a value without what a preview does not know, or does not show because it is secret. The refresh of the first
// update fills it in.
func known(value map[string]any) map[string]any {
	result := map[string]any{}

	for name, v := range value {
		if v, ok := certain(v); ok {
			result[name] = v
		}
	}

	return result
}

func certain(value any) (any, bool) {
	switch v := value.(type) {
	case string:
		return v, v != unknown && v != "[secret]"
	case map[string]any:
		return known(v), true
	case []any:
		list := []any{}

		for _, element := range v {
			element, ok := certain(element)
			if !ok {
				return nil, false
			}

			list = append(list, element)
		}

		return list, true
	default:
		return v, true
	}
}
