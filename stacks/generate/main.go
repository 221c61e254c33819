// Command generate writes the files of the repository that follow from the code: JSON Schemas, the schema of the
// package for other languages with its pages for Pulumi's registry, and the tables in pages. Run it with go generate in
// the directory of the module, and review the difference. A test holds that the files are current.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"talos-proxmox/stacks/contract"
	"talos-proxmox/stacks/schema"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	all, err := generate()
	if err != nil {
		return err
	}

	for _, path := range slices.Sorted(maps.Keys(all)) {
		if err := os.WriteFile(path, []byte(all[path]), 0o644); err != nil { //nolint:gosec // a file of the repository
			return err
		}
	}

	return nil
}

// files are texts by their paths from the module's directory.
type files map[string]string

// generate makes all files. The working directory must be the module's.
func generate() (files, error) {
	f := files{}

	for _, add := range []func(files) error{addConfiguration, addOutputs, addProvider, addTables} {
		if err := add(f); err != nil {
			return nil, err
		}
	}

	return f, nil
}

const (
	configPath   = "stacks/schema/config.schema.json"
	outputsPath  = "stacks/schema/outputs.schema.json"
	providerPath = "stacks/provider/schema.json"
)

// addConfiguration adds the schemas of the configuration, and the table of its keys.
func addConfiguration(f files) error {
	keys, err := configSchema()
	if err != nil {
		return err
	}

	if err := f.addJSON(configPath, keys); err != nil {
		return err
	}

	file, err := stackFileSchema(f[configPath])
	if err != nil {
		return err
	}

	if err := f.addJSON("stacks/schema/stack.schema.json", file); err != nil {
		return err
	}

	root, err := schema.Compile([]byte(f[configPath]))
	if err != nil {
		return err
	}

	return f.addTable("stacks/docs/configuration.md", "keys", keyTable(schema.Keys(root)))
}

// addOutputs adds the schemas of the outputs.
func addOutputs(f files) error {
	one, err := contractSchema()
	if err != nil {
		return err
	}

	all, err := outputsSchema("Outputs of a talos-proxmox stack", &contract.StackOutputs{})
	if err != nil {
		return err
	}

	if err := f.addJSON("stacks/schema/contract.schema.json", one); err != nil {
		return err
	}

	return f.addJSON(outputsPath, all)
}

// addProvider adds the schema of the package for other languages, and its pages.
func addProvider(f files) error {
	s, err := providerSchema(f[configPath], f[outputsPath])
	if err != nil {
		return err
	}

	if err := f.addJSON(providerPath, s); err != nil {
		return err
	}

	pages, err := registryPages(f[providerPath])
	for name, text := range pages {
		f["stacks/provider/docs/"+name] = text
	}

	return err
}

// addTables adds the tables of pages that follow from lists in the code.
func addTables(f files) error {
	policies, err := policyTable()
	if err != nil {
		return err
	}

	if err := f.addTable("stacks/docs/policy.md", "rules", policies); err != nil {
		return err
	}

	return f.addTable("stacks/docs/migration.md", "variables", variableTable())
}

// addJSON adds a value as a text for people.
func (f files) addJSON(path string, value any) error {
	var b bytes.Buffer

	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")

	err := e.Encode(value)
	f[path] = b.String()

	return err
}

// addTable adds a page with another table between the lines that name it.
func (f files) addTable(page, name, table string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}

	begin, end := "<!-- "+name+": written by go generate -->\n", "<!-- end of "+name+" -->\n"
	before, rest, begins := strings.Cut(string(text), begin)
	_, after, ends := strings.Cut(rest, end)

	if !begins || !ends {
		return fmt.Errorf("%s has no place for a table between %q and %q", page, begin, end)
	}

	f[page] = before + begin + table + end + after

	return nil
}
