package generate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"go.yaml.in/yaml/v3"

	"talos-proxmox/components/impact"
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/stacks/config"
)

// oldest is the oldest version of Talos whose defaults a cluster is looked for with.
const oldest = 5

// findPatches renders what the stack file would give each node and takes for patches what a node has in addition. The
// defaults are those of the version of Talos that leaves the least to patch.
func (w *writer) findPatches(first *machine) (contract string, err error) {
	best := -1

	running, err := talosconfig.ParseContractFromVersion(first.system.Talos)
	if err != nil {
		return "", err
	}

	for minor := min(running.Minor, plan.NewestContract); minor >= oldest; minor-- {
		version := fmt.Sprintf("v1.%d.0", minor)
		if minor == running.Minor {
			version = first.system.Talos
		}

		rendered, err := w.rendered(first, version)
		if err != nil {
			return "", err
		}

		count := 0

		for m, config := range rendered {
			differ, err := impact.Settings(config, m.config)
			if err != nil {
				return "", err
			}

			count += len(differ)
		}

		if best < 0 || count < best {
			best, contract = count, version
		}
	}

	rendered, err := w.rendered(first, contract)
	if err != nil {
		return "", err
	}

	for _, m := range w.machines {
		if w.patches[m], err = patch(rendered[m], m.config); err != nil {
			return "", fmt.Errorf("%s: %w", m.vm.Name, err)
		}

		differ, err := impact.Settings(rendered[m], m.config)
		if err != nil {
			return "", err
		}

		for _, setting := range differ {
			if setting.Secret {
				w.secret[m] = true
				w.note("%s of %s may be a secret: the patches of the node are not in the file", setting.Path, m.vm.Name)
			}
		}
	}

	return contract, w.hold(first, contract)
}

// hold says what is not as it was even with the patches.
func (w *writer) hold(first *machine, contract string) error {
	rendered, err := w.rendered(first, contract)
	if err != nil {
		return err
	}

	for _, m := range w.machines {
		differ, err := impact.Settings(m.config, rendered[m])
		if err != nil {
			return err
		}

		for _, setting := range differ {
			w.unlike = append(w.unlike, fmt.Sprintf("%s cannot be described: the first update would change %s", m.vm.Name,
				setting))
		}
	}

	return nil
}

// rendered is what the program would give each node.
func (w *writer) rendered(first *machine, contract string) (map[*machine]talosconfig.Provider, error) {
	file, err := w.config(first, contract).encode()
	if err != nil {
		return nil, err
	}

	c, err := config.LoadText(file, ".")
	if err != nil {
		return nil, err
	}

	p, err := c.Plan()
	if err != nil {
		return nil, err
	}

	all := map[*machine]talosconfig.Provider{}

	for _, m := range w.machines {
		for _, n := range p.Nodes() {
			if n.VMID != m.vm.ID {
				continue
			}

			if all[m], err = machineconfig.FullConfiguration(p, n, w.bundle); err != nil {
				return nil, fmt.Errorf("%s: %w", m.vm.Name, err)
			}
		}
	}

	return all, nil
}

// patch makes one configuration of another: a strategic merge patch, empty where there is nothing to do.
func patch(from, to talosconfig.Provider) (string, error) {
	before, err := documents(from)
	if err != nil {
		return "", err
	}

	after, err := documents(to)
	if err != nil {
		return "", err
	}

	var parts []string

	add := func(document tree, id string) error {
		// A document tells which it is.
		for _, key := range []string{"apiVersion", "kind", "name"} {
			if value, there := after[id][key]; there {
				document[key] = value
			} else if value, there := before[id][key]; there {
				document[key] = value
			}
		}

		text, err := yaml.Marshal(document)
		parts = append(parts, string(text))

		return err
	}

	for id, is := range after {
		if was, there := before[id]; !there {
			err = errors.Join(err, add(is, id))
		} else if change := difference(was, is); len(change) > 0 {
			err = errors.Join(err, add(change, id))
		}
	}

	for id := range before {
		if _, there := after[id]; !there {
			err = errors.Join(err, add(tree{"$patch": "delete"}, id))
		}
	}

	return strings.Join(parts, "---\n"), err
}

// difference is what turns one mapping into another. Lists are merged by adding to them, so that what is there stays.
func difference(was, is tree) tree {
	change := tree{}

	for key, now := range is {
		then, there := was[key]
		below, isMap := now.(tree)
		old, wasMap := then.(tree)

		switch {
		case reflect.DeepEqual(then, now):
		case there && isMap && wasMap:
			if inner := difference(old, below); len(inner) > 0 {
				change[key] = inner
			}
		default:
			change[key] = added(then, now)
		}
	}

	for key := range was {
		if _, there := is[key]; !there {
			change[key] = tree{"$patch": "delete"}
		}
	}

	return change
}

// added are the elements of a list that another has not.
func added(was, is any) any {
	old, wasList := was.([]any)
	all, isList := is.([]any)

	if !wasList || !isList {
		return is
	}

	var more []any

	for _, element := range all {
		known := false
		for _, other := range old {
			known = known || reflect.DeepEqual(element, other)
		}

		if !known {
			more = append(more, element)
		}
	}

	return more
}

// documents of a configuration, by kind and name.
func documents(c talosconfig.Provider) (map[string]tree, error) {
	data, err := c.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return nil, err
	}

	found := map[string]tree{}

	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var document tree

		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, err
		}

		found[fmt.Sprint(document["kind"], document["name"])] = document
	}
}
