// Package migrate turns the variables of a Terraform environment, which cloned Talos VMs from a template and left the
// cluster to others, into a stack file. Nothing is lost without a word, and no secret is written.
package migrate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"talos-proxmox/components/planner"
	"talos-proxmox/components/spec"
	"talos-proxmox/stacks/config"
	"talos-proxmox/stacks/contract"
)

// Options say what the variables do not.
type Options struct {
	// Cluster is the cluster's name; empty: the name of the environment's directory, or what the name of a VM says.
	Cluster string
	// CIDR is the network of the nodes. It is required.
	CIDR string
	// Talos is the version of Talos in the templates; empty: what their names say.
	Talos string
	// Outputs are the environment's outputs, as terraform output -json prints them; nil without. They hold the VMIDs and
	// addresses that the nodes have.
	Outputs []byte
}

// Result is the environment as a stack.
type Result struct {
	// File is the stack file.
	File []byte
	// Secrets are the commands that set what is secret. They ask for the values.
	Secrets []string
	// Notes say what was not taken over, and what was decided.
	Notes []string
}

// lastNumber finds the last number in a name.
var lastNumber = regexp.MustCompile(`(\d+)\D*$`)

// canonical is the name of a template that tells its version.
var canonical = regexp.MustCompile(`^talos-(v\d+\.\d+\.\d+)-base$`)

// TFVars reads a file of variables, terraform.tfvars or terraform.tfvars.json. The stack file that it returns is one
// that config.LoadFile takes; the error holds everything that keeps it from being one.
func TFVars(path string, text []byte, o Options) (*Result, error) {
	v, err := read(path, text)
	if err != nil {
		return nil, err
	}

	old, err := readOutputs(o.Outputs)
	if err != nil {
		return nil, err
	}

	m := &migration{values: v, options: o, old: old}
	m.cluster(path)
	m.proxmox()
	m.image()
	m.shape()
	m.pools()
	m.remarks()

	if err := errors.Join(m.problems...); err != nil {
		return nil, err
	}

	file, err := m.write(filepath.Base(path))
	if err != nil {
		return nil, err
	}

	if _, err := config.LoadText(file, "."); err != nil {
		return nil, fmt.Errorf("the variables do not make a stack: %w", err)
	}

	return &Result{File: file, Secrets: m.secrets, Notes: m.notes}, nil
}

// migration is a stack file while it is put together.
type migration struct {
	*values
	options Options
	old     *contract.BootstrapNodes // what stands; nil when it is not known

	stack    stack
	secrets  []string
	notes    []string
	problems []error
}

func (m *migration) note(format string, args ...any) {
	m.notes = append(m.notes, fmt.Sprintf(format, args...))
}

func (m *migration) refuse(format string, args ...any) {
	m.problems = append(m.problems, fmt.Errorf(format, args...))
}

// cluster decides the name, the versions and the network.
func (m *migration) cluster(path string) {
	c := &m.stack.Cluster
	fromVM, named := strings.CutSuffix(m.text("name"), "-control-1")

	switch {
	case m.options.Cluster != "":
		c.Name = m.options.Cluster
	case named:
		c.Name = fromVM
	default:
		if dir, err := filepath.Abs(filepath.Dir(path)); err == nil {
			c.Name = filepath.Base(dir)
		}

		m.note("the cluster is called %s, after the directory; --cluster says otherwise", c.Name)
	}

	if name := m.text("name"); name != "" && name != c.Name+"-control-1" {
		m.note(
			"name %s is not converted: nodes are named by cluster, pool and number; pools.<name>.names changes the "+
				"pattern",
			name)
	}

	// Others have made a cluster of the nodes so far, and go on doing so.
	c.Bootstrap = string(spec.BootstrapExternal)

	if m.options.CIDR == "" {
		m.refuse("the network of the nodes is in none of the variables: set it with --cidr, for example 192.168.10.0/24")
	}

	m.stack.Network = network{
		Addressing: string(spec.AddressingReported), CIDR: m.options.CIDR,
		Bridge: m.text("network_bridge"),
	}
}

// proxmox decides where Proxmox VE is.
func (m *migration) proxmox() {
	p := &m.stack.Proxmox
	p.Endpoint, p.TokenID = m.text("proxmox_api_url"), m.text("proxmox_api_token_id")

	if node := m.text("node"); node != "" {
		p.Hosts = []host{{Name: node}}
	}

	if pool := m.text("disk_pool"); pool != "" {
		p.Storage = &storage{Disks: pool}
	}

	for _, name := range []string{"proxmox_api_url", "proxmox_api_token_id", "node"} {
		if m.text(name) == "" {
			m.problems = append(m.problems, missing(name))
		}
	}

	m.secrets = append(m.secrets, "pulumi config set --secret proxmoxTokenSecret")

	if !m.has("proxmox_api_token_secret") {
		m.note("proxmox_api_token_secret is not in the file, but is required")
	}
}

// image decides the templates and, by their names, the version of Talos.
func (m *migration) image() {
	t := &m.stack.Image.Template
	m.stack.Image.Source, m.stack.Image.Platform = string(spec.SourceTemplate), string(spec.PlatformMetal)

	used := false
	template := func(variable string, wanted bool) string {
		name := m.text(variable)

		switch {
		case name != "":
			return name
		case !wanted:
			return ""
		case m.has("template"):
			used = true

			return m.text("template")
		default:
			m.problems = append(m.problems, missing(variable))

			return ""
		}
	}

	t.Control = template("control_plane_template", true)
	t.Worker = template("worker_template", m.workers() > 0)
	t.GPUWorker = template("gpu_worker_template", len(m.gpus()) > 0)

	if m.has("template") && !used {
		m.note("template %s is not converted: each group has its own template", m.text("template"))
	}

	var versions []string

	for _, name := range []string{t.Control, t.Worker, t.GPUWorker} {
		if found := canonical.FindStringSubmatch(name); found != nil {
			versions = append(versions, found[1])
		} else if _, vmid := strconv.Atoi(name); name != "" && vmid != nil {
			t.AllowNonCanonicalName = true
		}
	}

	slices.Sort(versions)

	switch versions = slices.Compact(versions); {
	case m.options.Talos != "":
		m.stack.Cluster.Versions.Talos = m.options.Talos
	case len(versions) == 1:
		m.stack.Cluster.Versions.Talos = versions[0]
	default:
		m.refuse(
			"the version of Talos does not follow from the names of the templates: set it with --talos, for example v1.12.4")
	}
}

// workers is how many there are. A variable that is not there has a default, which only the outputs tell.
func (m *migration) workers() int {
	if n := m.number("worker_count"); n != nil {
		return *n
	}

	return len(m.standing("worker"))
}

// gpus are the PCI addresses, of the environment or of the one VM; likewise.
func (m *migration) gpus() []string {
	all := m.list("gpu_worker_pci_bdfs")
	if one := m.text("gpu_pci_bdf"); one != "" && !slices.Contains(all, one) {
		all = append(all, one)
	}

	if all == nil {
		for _, n := range m.standing("gpu") {
			if n.GPU != nil {
				all = append(all, *n.GPU)
			}
		}
	}

	return all
}

func (m *migration) shape() {
	d := defaults{
		Cores: m.number("cores"), MemoryMiB: m.number("memory_mb"), DiskGiB: m.number("disk_gb"),
		OnBoot: m.yes("onboot"),
	}
	if d != (defaults{}) {
		m.stack.Defaults = &d
	}
}

// pools are one control plane, and the workers that there are.
func (m *migration) pools() {
	m.stack.Pools.Control = m.pool("control", spec.RoleControlPlane, 1)

	if n := m.workers(); n > 0 || m.has("worker_count") {
		m.stack.Pools.Worker = m.pool("worker", spec.RoleWorker, n)
	}

	bdfs := m.gpus()
	if len(bdfs) == 0 {
		return
	}

	p, nodes := m.pool("gpu", spec.RoleWorker, len(bdfs)), m.standing("gpu")
	p.Nodes, p.Count = nil, nil

	for i, bdf := range bdfs {
		e := entry{BDF: bdf, Host: m.text("node"), PCIe: m.yes("gpu_pcie_mode"), ROMBar: m.yes("gpu_rombar")}

		if i < len(nodes) {
			e.Address = nodes[i].IP

			if nodes[i].GPU == nil || *nodes[i].GPU != bdf {
				m.refuse("%s has another GPU in the outputs than %s: give the outputs that belong to the variables", nodes[i].Name,
					bdf)
			}
		}

		p.GPUs = append(p.GPUs, e)
	}

	m.stack.Pools.GPU = p
}

// pool is a pool of so many nodes, with what is known of those that stand.
func (m *migration) pool(name string, role spec.Role, count int) *pool {
	p, nodes := &pool{Role: string(role)}, m.standing(name)

	if m.old == nil || count == 0 {
		p.Count = &count

		return p
	}

	if len(nodes) != count {
		m.refuse(
			"the outputs have %d nodes for pool %s, the variables %d: apply the environment first, or leave the outputs out",
			len(nodes), name, count)

		return p
	}

	var vmids []string

	for _, n := range nodes {
		vmids = append(vmids, strconv.Itoa(n.VMID))
		p.Nodes = append(p.Nodes, entry{Address: n.IP})
	}

	p.VMIDs = strings.Join(vmids, ", ")

	var ok bool
	if p.Names, ok = pattern(m.stack.Cluster.Name, name, nodes); !ok {
		p.Names = ""
		m.note("the nodes of pool %s cannot keep their names: %s and so on follow no pattern of the node's number", name,
			nodes[0].Name)
	}

	return p
}

// standing are the nodes of a pool as the outputs have them; none where nothing is known.
func (m *migration) standing(pool string) []contract.BootstrapNode {
	if m.old == nil {
		return nil
	}

	return map[string][]contract.BootstrapNode{
		"control": m.old.ControlPlane, "worker": m.old.Workers,
		"gpu": m.old.GPUWorkers,
	}[pool]
}

// pattern finds what makes the names that the nodes of a pool have: empty where that is the default. It is not ok where
// nothing does.
func pattern(cluster, pool string, nodes []contract.BootstrapNode) (names string, ok bool) {
	fits := func(names string) bool {
		made := planner.NodeNames(spec.Pool{Count: new(len(nodes)), Names: names}, cluster, pool)

		for i, n := range nodes {
			if made[strconv.Itoa(i+1)] != n.Name {
				return false
			}
		}

		return true
	}

	if fits("") {
		return "", true
	}

	number := lastNumber.FindStringSubmatchIndex(nodes[0].Name)
	if number == nil {
		return "", false
	}

	from, to := number[2], number[3]
	names = nodes[0].Name[:from] + "{" + strings.Repeat("n", min(to-from, 3)) + "}" + nodes[0].Name[to:]

	return names, fits(names)
}

// remarks say what whoever reads the file should know.
func (m *migration) remarks() {
	m.stack.Outputs.Legacy = true

	for _, name := range m.unknown {
		m.note("%s is an unknown variable, and is not converted", name)
	}

	if m.old == nil {
		m.note("VMIDs begin at 401, 501 and 601, and addresses are not known; --outputs takes them from the " +
			"existing cluster")
	}

	m.note("the nodes stay with the tool that configures them now; with cluster.bootstrap pulumi, this program " +
		"configures them")
}

func missing(variable string) error {
	return fmt.Errorf("%s is required, but is not among the variables", variable)
}

// environment are the outputs of a Terraform environment, or what is in one of them.
type environment struct {
	Nodes struct {
		Value *contract.BootstrapNodes `json:"value"`
		contract.BootstrapNodes
	} `json:"talos_bootstrap_nodes"`
}

// readOutputs reads the nodes from what terraform output -json prints, of all outputs or of the contract. Terraform
// writes null or an empty text for an address that is not known.
func readOutputs(text []byte) (*contract.BootstrapNodes, error) {
	if text == nil {
		return nil, nil //nolint:nilnil // there are none
	}

	var outputs environment
	if err := json.Unmarshal(text, &outputs); err != nil {
		return nil, fmt.Errorf("the outputs are not what terraform output -json prints: %w", err)
	}

	nodes := outputs.Nodes.Value
	if nodes == nil {
		nodes = &outputs.Nodes.BootstrapNodes
	}

	if len(nodes.All()) == 0 {
		return nil, errors.New("the outputs have no nodes: talos_bootstrap_nodes is not among them, or empty")
	}

	for _, group := range [][]contract.BootstrapNode{nodes.ControlPlane, nodes.Workers, nodes.GPUWorkers} {
		for i, n := range group {
			if n.IP != nil && *n.IP == "" {
				group[i].IP = nil
			}
		}
	}

	return nodes, nil
}

// write writes the file. Its schema is named as in the project's directory.
func (m *migration) write(from string) ([]byte, error) {
	var b bytes.Buffer

	b.WriteString("# yaml-language-server: $schema=stacks/schema/stack.schema.json\n#\n# From " + from + ".\n")

	for _, name := range m.unknown {
		b.WriteString("# Not migrated: " + name + ".\n")
	}

	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err := e.Encode(map[string]stack{"config": m.stack})

	return b.Bytes(), err
}
