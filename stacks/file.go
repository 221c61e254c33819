package stacks

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Project is the namespace of the configuration's keys, and the name in Pulumi.yaml.
const Project = "talos-proxmox"

// placeholder takes the place of a secret that is encrypted in the file, or is not in it at all.
const placeholder = "00000000-0000-0000-0000-000000000000"

// LoadFile reads the configuration of a stack file without Pulumi, to show or check it. Secrets are neither decrypted
// nor asked for: each one that is needed has a stand-in. The error is as Load's.
func LoadFile(path string) (Config, error) {
	values, err := ReadFile(path)
	if err != nil {
		return Config{}, err
	}

	return Parse(values, filepath.Dir(path))
}

// LoadText is LoadFile for the text of a stack file that is not written yet. Patch files are read from below root.
func LoadText(text []byte, root string) (Config, error) {
	values, err := valuesIn(text)
	if err != nil {
		return Config{}, err
	}

	return Parse(values, root)
}

// ReadFile returns the values of a stack file as Parse takes them, by key without the namespace, with stand-ins for
// secrets.
func ReadFile(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	values, err := valuesIn(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	return values, nil
}

func valuesIn(text []byte) (map[string]string, error) {
	all, err := decodeFile(text)
	if err != nil {
		return nil, err
	}

	values, err := valuesOf(all)
	if err != nil {
		return nil, err
	}

	return withPlaceholders(values), nil
}

// withPlaceholders puts stand-ins for the secrets that are needed and not there.
func withPlaceholders(values map[string]string) map[string]string {
	var c Config

	for _, key := range []string{"proxmox", "tailscale"} {
		if text, ok := values[key]; ok {
			// What has the wrong type is reported below.
			_ = json.Unmarshal([]byte(`{"`+key+`":`+text+`}`), &c)
		}
	}

	for key, needed := range map[string]bool{
		"proxmoxTokenSecret": c.Proxmox.TokenID != "", "proxmoxPassword": c.Proxmox.Username != "",
		"sshPrivateKey": c.Proxmox.SSH != nil, "tailscaleAuthKey": c.Tailscale != nil,
	} {
		if _, given := values[key]; needed && !given {
			values[key] = placeholder
		}
	}

	return values
}

// valuesOf are the values of a stack file as Pulumi keeps them: text as it is, anything else as JSON.
func valuesOf(all map[string]any) (map[string]string, error) {
	values := map[string]string{}

	for key, value := range all {
		name, ours := strings.CutPrefix(key, Project+":")
		if !ours {
			continue
		}

		value, err := opened(name, value)
		if err != nil {
			return nil, err
		}

		if text, ok := value.(string); ok {
			values[name] = text

			continue
		}

		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}

		values[name] = string(text)
	}

	return values, nil
}

// readFile is what a stack file has under config. Like Pulumi, it takes a key without a namespace for the project's.
func readFile(path string) (map[string]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	all, err := decodeFile(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	return all, nil
}

func decodeFile(text []byte) (map[string]any, error) {
	var file struct {
		Config map[string]any `yaml:"config"`
	}

	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, err
	}

	all := map[string]any{}

	for key, value := range file.Config {
		if !strings.Contains(key, ":") {
			key = Project + ":" + key
		}

		all[key] = value
	}

	return all, nil
}

// opened puts a stand-in for everything that is encrypted. Like Pulumi, it takes no keys but texts.
func opened(path string, value any) (any, error) {
	var err error

	switch v := value.(type) {
	case map[any]any:
		for key := range v {
			if _, ok := key.(string); !ok {
				return nil, fmt.Errorf("%s: the key %v must be text: write it in quotes", path, key)
			}
		}
	case map[string]any:
		if _, secret := v["secure"].(string); secret && len(v) == 1 {
			return placeholder, nil
		}

		for _, key := range slices.Sorted(maps.Keys(v)) {
			if v[key], err = opened(path+"."+key, v[key]); err != nil {
				return nil, err
			}
		}
	case []any:
		for i := range v {
			if v[i], err = opened(fmt.Sprintf("%s[%d]", path, i), v[i]); err != nil {
				return nil, err
			}
		}
	}

	return value, nil
}
