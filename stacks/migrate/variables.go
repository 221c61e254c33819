package migrate

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// Variable is a variable of the Terraform environment, and what becomes of it.
type Variable struct {
	Name string
	// Becomes is the key of the stack configuration, as a page shows it.
	Becomes string
	// Secret values are never written: the operator sets the key.
	Secret bool
	kind   cty.Type
}

// Variables are those that are known: of the environment (its VMs, its workers and GPU workers), and of the module for
// one VM.
func Variables() []Variable { return slices.Clone(variables) }

var variables = []Variable{
	{Name: "proxmox_api_url", Becomes: "`proxmox.endpoint`", kind: cty.String},
	{Name: "proxmox_api_token_id", Becomes: "`proxmox.tokenId`", kind: cty.String},
	{Name: "proxmox_api_token_secret", Becomes: "`proxmoxTokenSecret`", Secret: true, kind: cty.String},
	{Name: "node", Becomes: "`proxmox.hosts`", kind: cty.String},
	{Name: "control_plane_template", Becomes: "`image.template.control`", kind: cty.String},
	{Name: "worker_template", Becomes: "`image.template.worker`", kind: cty.String},
	{Name: "gpu_worker_template", Becomes: "`image.template.gpuWorker`", kind: cty.String},
	{Name: "worker_count", Becomes: "`pools.worker.count`", kind: cty.Number},
	{Name: "gpu_worker_pci_bdfs", Becomes: "`pools.gpu.gpus`", kind: cty.List(cty.String)},
	{Name: "name", Becomes: "`cluster.name`, where it ends with -control-1", kind: cty.String},
	{Name: "template", Becomes: "`image.template`, for each group that has none of its own", kind: cty.String},
	{Name: "cores", Becomes: "`defaults.cores`", kind: cty.Number},
	{Name: "memory_mb", Becomes: "`defaults.memoryMiB`", kind: cty.Number},
	{Name: "disk_gb", Becomes: "`defaults.diskGiB`", kind: cty.Number},
	{Name: "disk_pool", Becomes: "`proxmox.storage.disks`", kind: cty.String},
	{Name: "network_bridge", Becomes: "`network.bridge`", kind: cty.String},
	{Name: "gpu_pci_bdf", Becomes: "`pools.gpu.gpus`", kind: cty.String},
	{Name: "gpu_pcie_mode", Becomes: "`pools.gpu.gpus.<n>.pcie`", kind: cty.Bool},
	{Name: "gpu_rombar", Becomes: "`pools.gpu.gpus.<n>.rombar`", kind: cty.Bool},
	{Name: "onboot", Becomes: "`defaults.onBoot`", kind: cty.Bool},
}

// values are those of a file, by variable. Null is Terraform's word for absent.
type values struct {
	of map[string]cty.Value
	// unknown are variables that nothing here knows, with the lines they are in. What they hold may be secret.
	unknown []string
}

// read reads a .tfvars file, or a .tfvars.json.
func read(name string, text []byte) (*values, error) {
	var (
		file     *hcl.File
		problems hcl.Diagnostics
		parser   = hclparse.NewParser()
	)

	if strings.HasSuffix(name, ".json") {
		file, problems = parser.ParseJSON(text, name)
	} else {
		file, problems = parser.ParseHCL(text, name)
	}

	if problems.HasErrors() {
		return nil, diagnosticsError(problems)
	}

	attributes, problems := file.Body.JustAttributes()
	v := &values{of: map[string]cty.Value{}}

	all := make([]*hcl.Attribute, 0, len(attributes))
	for _, a := range attributes {
		all = append(all, a)
	}

	slices.SortFunc(all, func(a, b *hcl.Attribute) int { return a.Range.Start.Byte - b.Range.Start.Byte })

	for _, a := range all {
		at := slices.IndexFunc(variables, func(known Variable) bool { return known.Name == a.Name })
		if at < 0 {
			name := a.Name
			if !hclsyntax.ValidIdentifier(name) {
				name = strconv.Quote(name) // JSON takes any
			}

			v.unknown = append(v.unknown, fmt.Sprintf("%s (line %d)", name, a.Range.Start.Line))

			continue
		}

		value, wrong := a.Expr.Value(nil)
		problems = append(problems, wrong...)

		if wrong.HasErrors() || value.IsNull() {
			continue
		}

		// As Terraform does: "2" is a number where one is wanted.
		value, err := convert.Convert(value, variables[at].kind)
		if err == nil && variables[at].kind == cty.Number && !value.AsBigFloat().IsInt() {
			err = errors.New("a whole number is required")
		}

		if err != nil {
			problems = append(problems, &hcl.Diagnostic{
				Severity: hcl.DiagError, Subject: &a.Range, Summary: "Wrong type", Detail: a.Name + ": " + err.Error(),
			})

			continue
		}

		v.of[a.Name] = value
	}

	if problems.HasErrors() {
		return nil, diagnosticsError(problems)
	}

	return v, nil
}

// diagnosticsError writes what HCL found, without the values, which may be secret: details of JSON quote them.
func diagnosticsError(problems hcl.Diagnostics) error {
	var lines []string

	for _, p := range problems {
		line := p.Summary
		if p.Subject != nil {
			line = fmt.Sprintf("%s:%d: %s", p.Subject.Filename, p.Subject.Start.Line, line)
		}

		if p.Summary != "Invalid JSON keyword" {
			line += ": " + p.Detail
		}

		lines = append(lines, line)
	}

	return fmt.Errorf("the variables cannot be read:\n%s", strings.Join(lines, "\n"))
}

func (v *values) has(name string) bool {
	_, ok := v.of[name]

	return ok
}

func (v *values) text(name string) string {
	if !v.has(name) {
		return ""
	}

	return v.of[name].AsString()
}

func (v *values) number(name string) *int {
	if !v.has(name) {
		return nil
	}

	n, _ := v.of[name].AsBigFloat().Int64()

	return new(int(n))
}

func (v *values) yes(name string) *bool {
	if !v.has(name) {
		return nil
	}

	return new(v.of[name].True())
}

// list is nil when the variable is absent.
func (v *values) list(name string) []string {
	if !v.has(name) {
		return nil
	}

	found := []string{}
	for _, e := range v.of[name].AsValueSlice() {
		if !e.IsNull() {
			found = append(found, e.AsString())
		}
	}

	return found
}
