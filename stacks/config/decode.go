package config

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"

	"talos-proxmox/components/spec"
	"talos-proxmox/stacks/schema"
)

// Decode reads and checks a configuration from its values as Pulumi keeps them, by key without the namespace: text as
// it is, anything else as JSON. Files that it names are read from below root. The secrets are those that are not among
// the values. The error holds all problems (spec.Problems), and comes with what could be read.
func Decode(values map[string]string, secrets Secrets, root string) (Config, error) {
	return decode(values, secrets, nil, root)
}

// decode is Decode, and adds its problems to those of the keys. What lies below a wrong key is checked all the same.
func decode(values map[string]string, secrets Secrets, keys spec.Problems, root string) (Config, error) {
	tree, problems, err := treeOf(values)
	if err != nil {
		return Config{}, err
	}

	found, err := schema.CheckConfig(tree)
	if err != nil {
		return Config{}, err
	}

	problems = append(problems, found...)

	text, err := json.Marshal(tree)
	if err != nil {
		return Config{}, err
	}

	c := Config{Dir: root, Offline: offline(), Secrets: secrets, Destroying: os.Getenv(DestroyVariable) != ""}

	// What has the wrong type is in the problems already; the rest is read all the same, so that it can be checked too.
	var mismatch *json.UnmarshalTypeError
	if err := json.Unmarshal(text, &c); err != nil && !errors.As(err, &mismatch) {
		return Config{}, err
	}

	unread, err := readTexts(&c, root)
	if err != nil {
		return Config{}, err
	}

	problems = merge(problems, append(unread, checkSnapshot(&c, root)...))

	if _, problems, err = c.Check(problems); err != nil {
		return Config{}, err
	}

	return c, slices.Concat(keys, problems).Err()
}

// treeOf parses what is not text.
func treeOf(values map[string]string) (map[string]any, spec.Problems, error) {
	var problems spec.Problems

	tree := map[string]any{}

	types, err := schema.KeyTypes()
	if err != nil {
		return nil, nil, err
	}

	for _, key := range slices.Sorted(maps.Keys(values)) {
		if t, known := types[key]; !known || t == "string" {
			tree[key] = values[key]

			continue
		}

		var v any
		if err := json.Unmarshal([]byte(values[key]), &v); err != nil {
			problems.Add(key, "must be "+schema.TypeNames([]string{types[key]}), "", "write it as YAML below the key")
			// Reported once, not as missing too.
			v = map[string]any{}
		}

		tree[key] = v
	}

	return tree, problems, nil
}
