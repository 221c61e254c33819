// Package contract is what a stack of this program offers to other programs: its outputs, their names, types and
// readers. It is small enough to be imported by a program that makes no clusters itself.
package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"talos-proxmox/components/spec"
	"talos-proxmox/stacks/schema"
)

// SchemaVersion is the version of the contract's shape. It rises when a key of a kind is added, changes its meaning or
// goes away: readers are strict. Who does not know a kind is told so by that.
const SchemaVersion = 1

// Contract is the output talos_bootstrap_contract: what a consumer needs to know of a cluster, without its secrets.
type Contract struct {
	// Version of the contract's shape.
	SchemaVersion int `json:"schemaVersion" jsonschema:"enum=1"`
	// What kind of cluster this is.
	Kind string `json:"kind" jsonschema:"enum=talos,enum=k3s"`
	// Name of the cluster.
	Cluster string `json:"cluster" jsonschema:"minLength=1"`
	// What runs in the cluster.
	Versions Versions `json:"versions"`

	Inventory
}

// Inventory is the part of the contract whose keys are stack outputs of their own too.
type Inventory struct {
	// Known addresses of the control planes, in plan order.
	ControlPlaneEndpoints []string `json:"talos_control_plane_endpoints"`
	// All nodes, by group.
	BootstrapNodes BootstrapNodes `json:"talos_bootstrap_nodes"`
	// Addresses by node name, without the nodes whose address is not known.
	NodeIPMap map[string]string `json:"talos_node_ip_map"`
	// VMIDs by node name.
	NodeVMIDMap map[string]int `json:"talos_node_vmid_map"`
}

// Versions of what runs in the cluster, with a leading v.
type Versions struct {
	// Talos Linux, with kind talos.
	Talos string `json:"talos,omitempty" jsonschema:"pattern=^v[0-9]"`
	// K3s, with kind k3s.
	K3s string `json:"k3s,omitempty" jsonschema:"pattern=^v[0-9].*[+]k3s[0-9]+$"`
	// Kubernetes; absent with bootstrap: external.
	Kubernetes string `json:"kubernetes,omitempty" jsonschema:"pattern=^v[0-9]"`
}

// BootstrapNodes are the nodes by group, in plan order.
type BootstrapNodes struct {
	// Control planes.
	ControlPlane []BootstrapNode `json:"control_plane"`
	// Workers without a GPU.
	Workers []BootstrapNode `json:"workers"`
	// Workers with a GPU.
	GPUWorkers []BootstrapNode `json:"gpu_workers"`
}

// All are the nodes of all groups: control planes, workers, GPU workers.
func (n BootstrapNodes) All() []BootstrapNode {
	all := make([]BootstrapNode, 0, len(n.ControlPlane)+len(n.Workers)+len(n.GPUWorkers))

	return append(append(append(all, n.ControlPlane...), n.Workers...), n.GPUWorkers...)
}

// BootstrapNode is one node of the contract.
type BootstrapNode struct {
	// Name of the node in Kubernetes, and of its VM.
	Name string `json:"name" jsonschema:"pattern=^[a-z0-9]([a-z0-9-]*[a-z0-9])?$,maxLength=63"`
	// VMID of the VM.
	VMID int `json:"vmid" jsonschema:"minimum=100"`
	// Address of the node; absent (nil) when it is not known.
	IP *string `json:"ip,omitempty"`
	// Host that the VM is on. Proxmox VE, and the contract, call it a node.
	Host string `json:"node" jsonschema:"minLength=1"`
	// PCI address of the GPU passed through; absent (nil) without one.
	GPU *string `json:"gpu_pci_bdf,omitempty" jsonschema:"pattern=^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}(\\.[0-7])?$"`
}

var compiled = sync.OnceValues(func() (*jsonschema.Schema, error) { return schema.Compile(schema.Contract) })

// Decode reads the contract from the value of the output talos_bootstrap_contract, as a StackReference, the
// Automation API or a JSON decoder gives it. It takes nothing that the contract's JSON Schema does not.
func Decode(value any) (*Contract, error) { return decode(value, OutputContract) }

// decode is Decode for an output of some name.
func decode(value any, name string) (*Contract, error) {
	if value == nil {
		return nil, fmt.Errorf("the stack has no output %s: is it a stack of this program, and deployed?", name)
	}

	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("output %s: %w", name, err)
	}

	// Another version has another shape: say that first.
	var version struct {
		SchemaVersion *int `json:"schemaVersion"`
	}
	if json.Unmarshal(text, &version) == nil && version.SchemaVersion != nil && *version.SchemaVersion != SchemaVersion {
		return nil,
			fmt.Errorf(
				"output %s has version %d of the contract, this program reads version %d: use the program's release that made it",
				name, *version.SchemaVersion, SchemaVersion)
	}

	if err := check(text, name); err != nil {
		return nil, err
	}

	var c Contract
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, err
	}

	if (c.Kind == string(spec.DistributionK3s)) != (c.Versions.K3s != "") ||
		(c.Kind == string(spec.DistributionTalos)) != (c.Versions.Talos != "") {
		return nil,
			fmt.Errorf("output %s does not have the contract's shape:\n  - versions: must hold that of %s, and of no other kind",
				name, c.Kind)
	}

	return &c, nil
}

// Read reads the contract from JSON: the contract by itself, or all outputs of a stack, as pulumi stack output
// --json prints them.
func Read(text []byte) (*Contract, error) {
	var value map[string]any
	if err := json.Unmarshal(text, &value); err != nil {
		return nil,
			fmt.Errorf("this is neither a contract nor the outputs of a stack; give what pulumi stack output --json prints: %w",
				err)
	}

	if _, itself := value["schemaVersion"]; itself {
		return Decode(value)
	}

	return Decode(value[OutputContract])
}

// check holds a contract, the output of that name, against its schema.
func check(text []byte, name string) error {
	s, err := compiled()
	if err != nil {
		return fmt.Errorf("the schema of the contract: %w", err)
	}

	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}

	found, err := schema.Check(s, "the contract", value)
	if err != nil || len(found) == 0 {
		return err
	}

	lines := []string{"output " + name + " does not have the contract's shape:"}
	for _, p := range found {
		lines = append(lines, "  - "+p.String())
	}

	return errors.New(strings.Join(lines, "\n"))
}
