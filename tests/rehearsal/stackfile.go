// Package rehearsal runs a real stack configuration against the lab: the same program, the same providers, the pulumi
// engine, and a Proxmox VE with Talos in it that lives on loopback. Nothing outside loopback is contacted.
package rehearsal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"

	"talos-proxmox/stacks"
)

// Project is the name in Pulumi.yaml, and the namespace of the configuration.
const Project = "talos-proxmox"

// Stack is a stack's configuration as its file has it.
type Stack struct {
	// Name of the stack: what stands between "Pulumi." and ".yaml".
	Name string
	// Path of the file.
	Path string
	// values are the keys below the project's namespace, without it.
	values map[string]any
}

// Find looks for a stack by name (Pulumi.<name>.yaml in the project, or in stacks/examples) or by the path of its file.
func Find(root, nameOrPath string) (*Stack, error) {
	if strings.HasSuffix(nameOrPath, ".yaml") || strings.ContainsRune(nameOrPath, filepath.Separator) {
		return ReadStack(nameOrPath)
	}

	file := "Pulumi." + nameOrPath + ".yaml"

	var tried []string

	for _, dir := range []string{root, filepath.Join(root, "stacks", "examples")} {
		path := filepath.Join(dir, file)
		if _, err := os.Stat(path); err == nil {
			return ReadStack(path)
		}

		tried = append(tried, path)
	}

	return nil, fmt.Errorf("there is no stack %q: no file at %s", nameOrPath, strings.Join(tried, " or "))
}

// ReadStack reads a stack's file.
func ReadStack(path string) (*Stack, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	var file struct {
		Config map[string]any `yaml:"config"`
	}

	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	if len(file.Config) == 0 {
		return nil, fmt.Errorf("%s has no configuration: a stack file has its keys below 'config:'", path)
	}

	name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "Pulumi."), ".yaml")
	s := &Stack{Name: name, Path: path, values: map[string]any{}}

	for key, value := range file.Config {
		if k, ok := strings.CutPrefix(key, Project+":"); ok {
			s.values[k] = value
		}
	}

	return s, nil
}

// parse checks the configuration as the program does. Patch files are read from below the file's own directory.
func (s *Stack) parse() (stacks.Config, error) {
	values := map[string]string{}

	for key, value := range s.values {
		text, err := encode(value)
		if err != nil {
			return stacks.Config{}, fmt.Errorf("%s: %s: %w", s.Path, key, err)
		}

		values[key] = text
	}

	return stacks.Parse(values, filepath.Dir(s.Path))
}

// encode writes a value as Pulumi hands it to a program: text as it is, anything else as JSON.
func encode(value any) (string, error) {
	if text, ok := value.(string); ok {
		return text, nil
	}

	text, err := json.Marshal(value)

	return string(text), err
}

// write writes the configuration as a stack file.
func (s *Stack) write(path string) error {
	config := map[string]any{}
	for key, value := range s.values {
		config[Project+":"+key] = value
	}

	var b bytes.Buffer

	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)

	if err := enc.Encode(map[string]any{"config": config}); err != nil {
		return err
	}

	return os.WriteFile(path, b.Bytes(), 0o600)
}
