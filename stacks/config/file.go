package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agext/levenshtein"
	"go.yaml.in/yaml/v3"

	"talos-proxmox/components/spec"
	"talos-proxmox/stacks/schema"
)

// LoadFile reads the configuration of a stack file without Pulumi, to show or check it. Secrets are neither decrypted
// nor asked for: each one that is needed has a stand-in. The error is as Load's, which takes none in plain text either.
func LoadFile(path string) (Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Config{}, err
	}

	config, err := LoadText(text, filepath.Dir(path))
	if err != nil && !errors.As(err, new(spec.Problems)) {
		err = fmt.Errorf("%s: %w", path, err)
	}

	return config, err
}

// LoadText is LoadFile for the text of a stack file that is not written yet. Files that it names are read from below
// root.
func LoadText(text []byte, root string) (Config, error) {
	values, unquoted, err := valuesIn(text)
	if err != nil {
		return Config{}, err
	}

	// What is encrypted has a stand-in.
	plain := PlainSecrets(values, func(key string) bool { return values[key] == Placeholder })

	return decode(values, Secrets{}, append(plain, unquoted...), root)
}

// ReadValues returns the values of a stack file as Decode takes them, by key without the namespace, with stand-ins for
// secrets. They are not checked; keys that Pulumi passes over are an error (spec.Problems).
func ReadValues(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	values, unquoted, err := valuesIn(text)
	if err == nil {
		err = unquoted.Err()
	}

	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	return values, nil
}

// valuesIn are the values of a stack file, and the keys in it that Pulumi does not take.
func valuesIn(text []byte) (map[string]string, spec.Problems, error) {
	all, err := decodeFile(text)
	if err != nil {
		return nil, nil, err
	}

	values, unquoted, err := valuesOf(all)
	if err != nil {
		return nil, nil, err
	}

	misplaced, err := outside(text, Project)
	if err != nil {
		return nil, nil, err
	}

	known, err := schema.KeyTypes()
	if err != nil {
		return nil, nil, err
	}

	lost := slices.Concat(misplaced, otherNamespaces(slices.Sorted(maps.Keys(all)), Project, known), unquoted)

	return withPlaceholders(values), lost, nil
}

// outside are the keys of a configuration that a stack file does not have below config, so that Pulumi passes over
// them: known ones, and all of the project's namespace. It has an environment of its own there.
func outside(text []byte, project string) (spec.Problems, error) {
	known, err := schema.KeyTypes()
	if err != nil {
		return nil, err
	}

	var (
		file     map[string]any
		problems spec.Problems
	)

	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, err
	}

	for _, key := range slices.Sorted(maps.Keys(file)) {
		name := key[strings.Index(key, ":")+1:]
		if _, ours := known[name]; ours && key != "environment" || strings.HasPrefix(key, project+":") {
			problems.Add(key, "is outside of config, where Pulumi ignores it", "", "move it below config")
		}
	}

	return problems, nil
}

// otherNamespaces are keys that nothing reads: those whose namespace looks like the project's and is another, and those
// of any namespace that are called as a known key, unless others have them.
func otherNamespaces(keys []string, project string, known map[string]string) spec.Problems {
	var problems spec.Problems

	for _, key := range keys {
		namespace, name, _ := strings.Cut(key, ":")
		if namespace == project || ofOthers(namespace, name) {
			continue
		}

		if _, ours := known[name]; ours || levenshtein.Distance(namespace, project, nil) <= len(project)/4 {
			problems.Add(key, "has another namespace than "+project, namespace, "write "+project+":"+name)
		}
	}

	return problems
}

// policies is the namespace of the policy pack's settings.
const policies = "talos-proxmox-policy"

// ofOthers says that the policy pack, or one of Pulumi's providers, has a key that is called as one of ours.
func ofOthers(namespace, name string) bool {
	return namespace == "kubernetes" && name == "cluster" ||
		name == "environment" && slices.Contains([]string{policies, "azure", "azuread", "azure-native"}, namespace)
}

// withPlaceholders puts stand-ins for the secrets that are needed and not there.
func withPlaceholders(values map[string]string) map[string]string {
	var c Config

	for _, key := range []string{"proxmox", "tailscale", "cluster"} {
		if text, ok := values[key]; ok {
			// What has the wrong type is reported below.
			_ = json.Unmarshal([]byte(`{"`+key+`":`+text+`}`), &c)
		}
	}

	for key, needed := range map[string]bool{
		"proxmoxTokenSecret": c.Proxmox.TokenID != "", "proxmoxPassword": c.Proxmox.Username != "",
		"sshPrivateKey": c.Proxmox.SSH != nil, "tailscaleAuthKey": c.Tailscale != nil,
		"csiToken":  slices.Contains(c.Cluster.Addons, spec.AddonProxmoxCSI),
		"ccmToken":  slices.Contains(c.Cluster.Addons, spec.AddonProxmoxCCM),
		"gitOpsKey": c.Cluster.GitOps != nil && strings.HasPrefix(c.Cluster.GitOps.Repository, "ssh://"),
	} {
		if _, given := values[key]; needed && !given {
			values[key] = Placeholder
		}
	}

	return values
}

// valuesOf are the values of a stack file as Pulumi keeps them: text as it is, anything else as JSON.
func valuesOf(all map[string]any) (map[string]string, spec.Problems, error) {
	var unquoted spec.Problems

	values := map[string]string{}

	for key, value := range all {
		name, ours := strings.CutPrefix(key, Project+":")
		if !ours {
			continue
		}

		value = opened(name, value, &unquoted)
		if text, ok := value.(string); ok {
			values[name] = text

			continue
		}

		text, err := json.Marshal(value)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", key, err)
		}

		values[name] = string(text)
	}

	slices.SortFunc(unquoted, func(a, b spec.Problem) int { return strings.Compare(a.Path, b.Path) })

	return values, unquoted, nil
}

// readConfig is what a stack file has under config. Like Pulumi, it takes a key without a namespace for the project's.
func readConfig(path string) (map[string]any, error) {
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

// opened puts a stand-in for everything that is encrypted. Pulumi takes no keys but texts: others are noted, and read
// as what they would be in quotes.
func opened(path string, value any, unquoted *spec.Problems) any {
	switch v := value.(type) {
	case map[any]any:
		texts := map[string]any{}

		for key, below := range v {
			name := fmt.Sprint(key)
			texts[name] = below

			if _, ok := key.(string); !ok {
				unquoted.Add(path+"."+name, "must have a string as its key, because Pulumi accepts no other", name,
					fmt.Sprintf("write the key in quotes: %q", name))
			}
		}

		return opened(path, texts, unquoted)
	case map[string]any:
		if _, secret := v["secure"].(string); secret && len(v) == 1 {
			return Placeholder
		}

		for _, key := range slices.Sorted(maps.Keys(v)) {
			v[key] = opened(path+"."+key, v[key], unquoted)
		}
	case []any:
		for i := range v {
			v[i] = opened(fmt.Sprintf("%s[%d]", path, i), v[i], unquoted)
		}
	}

	return value
}
