package importcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/events"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"

	"talos-proxmox/components/atomicfile"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/tokens"
)

// wanted is what the program wants and the state does not have, as a file for pulumi import.
type wanted struct {
	// Resources as the file has them. Fields that are not known here stay as they are.
	Resources []map[string]any
	// rest is what else is in the file.
	rest    map[string]json.RawMessage
	planned map[key]planned
}

// planned is what a resource would be: what the provider would get, and what it would return. What a preview does not
// know, and what it does not show because it is secret, is left out; the refresh of the first update fills it in.
type planned struct{ inputs, outputs map[string]any }

// key tells resources apart: type and name.
type key struct{ kind, name string }

// keyOf is the key of an entry of the file. The name is only unique in the file when it differs from the resource's.
func keyOf(entry map[string]any) key {
	name := text(entry, "logicalName")
	if name == "" {
		name = text(entry, "name")
	}

	return key{text(entry, "type"), name}
}

func text(from map[string]any, field string) string {
	t, _ := from[field].(string) // what is no text is none

	return t
}

// preview asks the engine what it would make.
func preview(ctx context.Context, stack auto.Stack) (*wanted, error) {
	dir, err := os.MkdirTemp("", "import-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) // a temporary directory

	w := &wanted{planned: map[key]planned{}}
	stream, listened := make(chan events.EngineEvent), make(chan struct{})

	go func() {
		defer close(listened)

		for e := range stream {
			if e.ResOutputsEvent == nil || e.ResOutputsEvent.Metadata.New == nil {
				continue
			}

			made := e.ResOutputsEvent.Metadata.New
			w.planned[key{made.Type, resource.URN(made.URN).Name()}] = planned{known(made.Inputs), known(made.Outputs)}
		}
	}()

	path := filepath.Join(dir, "import.json")
	if _, err := stack.Preview(ctx, optpreview.ImportFile(path), optpreview.EventStreams(stream)); err != nil {
		return nil, fmt.Errorf("a preview, which shows what the program wants: %w", err)
	}

	<-listened

	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	return w, w.decode(text)
}

// markImported has the component of each node say that its VM was imported: an import writes no hooks, and the engine
// runs those of the state before it deletes. With the inputs that the program gives it, the component keeps that until
// an update has registered the VM.
func (w *wanted) markImported() {
	for _, entry := range w.Resources {
		if kind := text(entry, "type"); kind == tokens.TalosNode || kind == tokens.K3sNode {
			entry["inputs"] = w.planned[keyOf(entry)].inputs
			entry["outputs"] = map[string]any{vmidentity.ImportedOutput: true}
		}
	}
}

func (w *wanted) decode(text []byte) error {
	if err := json.Unmarshal(text, &w.rest); err != nil {
		return err
	}

	resources := w.rest["resources"]
	if resources == nil {
		return nil
	}

	return json.Unmarshal(resources, &w.Resources)
}

func (w *wanted) encode() ([]byte, error) {
	resources, err := json.Marshal(w.Resources)
	w.rest["resources"] = resources

	text, err2 := json.MarshalIndent(w.rest, "", "  ")

	return text, errors.Join(err, err2)
}

// write writes it to a file that only its owner can read.
func (w *wanted) write(path string) error {
	text, err := w.encode()
	if err != nil {
		return err
	}

	return private(path, text)
}

// unknown stands for a value that a preview cannot know, hidden for one that it does not show.
const (
	unknown = plugin.UnknownStringValue
	hidden  = "[secret]"
)

// known is a value without what is unknown or hidden.
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
		return v, v != unknown && v != hidden
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

// private writes a file that only its owner can read, in the place of one that may be there.
func private(path string, text []byte) error {
	return atomicfile.Write(filepath.Dir(path), atomicfile.Text(text),
		func(temporary string) error { return os.Rename(temporary, path) })
}

// number reads a number of an event.
func number(from map[string]any, field string) float64 {
	n, _ := from[field].(float64) // what is no number is none

	return n
}
