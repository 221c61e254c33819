// Package rehearsal runs a real stack configuration against the lab: the same program, the same providers, the pulumi
// engine, and a Proxmox VE with Talos in it that lives on loopback. Nothing outside loopback is contacted.
package rehearsal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"talos-proxmox/policy/rules"
	"talos-proxmox/stacks/config"
)

// Stack is a stack's configuration as its file has it.
type Stack struct {
	// Name of the stack: what stands between "Pulumi." and ".yaml".
	Name string
	// Path of the file.
	Path string
	// values by key without the namespace, as Pulumi keeps them: text as it is, anything else as JSON.
	values map[string]string
	// policy are the keys that are for the policy pack, as they are.
	policy map[string]any
}

// Root is the project's directory: the nearest upwards with a Pulumi.yaml.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}

	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "Pulumi.yaml")); err == nil {
			return at, nil
		}

		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no Pulumi.yaml in %s or above: run this inside the project", dir)
		}
	}
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

// stackName is what may name a stack. Directories are named after it, so it must not lead out of them.
var stackName = regexp.MustCompile(`^[A-Za-z0-9][\w.-]*$`)

// ReadStack reads a stack's file.
func ReadStack(path string) (*Stack, error) {
	name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "Pulumi."), ".yaml")
	if !stackName.MatchString(name) || strings.Contains(name, "..") {
		return nil,
			fmt.Errorf("%s: %q names no stack; call the file Pulumi.<stack>.yaml, with letters, digits, dashes and single dots",
				path, name)
	}

	values, err := config.ReadValues(path)
	if err != nil {
		return nil, err
	}

	plain := config.PlainSecrets(values, func(key string) bool { return values[key] == config.Placeholder })
	if err := plain.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	policy, err := policyKeys(path)
	if err != nil {
		return nil, err
	}

	return &Stack{Name: name, Path: path, values: values, policy: policy}, nil
}

// policyKeys are the keys of a stack's file that are for the policy pack.
func policyKeys(path string) (map[string]any, error) {
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

	maps.DeleteFunc(file.Config, func(key string, _ any) bool { return !strings.HasPrefix(key, rules.Namespace+":") })

	return file.Config, nil
}

// Check says what is wrong with the configuration, and starts nothing.
func (s *Stack) Check() error {
	config, err := s.parse()
	if err != nil {
		return err
	}

	_, err = config.Plan()

	return err
}

// parse checks the configuration as the program does. Patch files are read from below the file's own directory.
func (s *Stack) parse() (config.Config, error) {
	return config.Decode(s.values, config.Secrets{}, filepath.Dir(s.Path))
}

// edit changes a key that holds a block, which may be absent.
func (s *Stack) edit(key string, change func(block map[string]any)) error {
	block := map[string]any{}

	if text, there := s.values[key]; there {
		if err := json.Unmarshal([]byte(text), &block); err != nil {
			return fmt.Errorf("%s: %s: %w", s.Path, key, err)
		}
	}

	change(block)

	text, err := json.Marshal(block)
	s.values[key] = string(text)

	return err
}

// write writes the configuration as a stack file.
func (s *Stack) write(path string) error {
	settings := map[string]any{}
	maps.Copy(settings, s.policy)

	for key, text := range s.values {
		var value any
		if json.Unmarshal([]byte(text), &value) != nil {
			value = text
		}

		settings[config.Project+":"+key] = value
	}

	var b bytes.Buffer

	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)

	if err := enc.Encode(map[string]any{"config": settings}); err != nil {
		return err
	}

	return os.WriteFile(path, b.Bytes(), 0o600)
}
