package stacks

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/stacks/schema"
)

// Load reads the stack's configuration strictly. The error holds all problems (spec.Problems): unknown keys, wrong
// types, and everything that planning finds in what could be read. The root is the project's directory, the current one
// when empty.
func Load(ctx *pulumi.Context, root string) (Config, error) {
	if root == "" {
		root = "."
	}

	values := map[string]string{}

	known, err := schema.KeyTypes()
	if err != nil {
		return Config{}, err
	}

	for key := range known {
		if v, ok := ctx.GetConfig(ctx.Project() + ":" + key); ok {
			values[key] = v
		}
	}

	takeKeyFromEnvironment(values)

	// The SDK tells the value of a key, not which keys there are.
	others, err := keysGiven(root, ctx.Project(), ctx.Stack())
	if err != nil {
		return Config{}, err
	}

	for _, key := range others {
		if _, known := values[key]; !known {
			values[key] = ""
		}
	}

	config, err := Parse(values, root)
	config.Destroying = os.Getenv(DestroyVariable) != ""

	return config, err
}

// DestroyVariable is the environment variable that tells the program that the run destroys the stack: the engine does
// not tell it.
const DestroyVariable = "TALOS_PROXMOX_DESTROY"

// offlineVariable keeps previews from asking Proxmox VE.
const offlineVariable = "TALOS_PROXMOX_OFFLINE"

func offline() string {
	if os.Getenv(offlineVariable) == "" {
		return ""
	}

	return offlineVariable + " is set"
}

// Parse reads a configuration from its values as Pulumi keeps them: text as it is, anything else as JSON. Patch files
// are read from below root.
func Parse(values map[string]string, root string) (Config, error) { return parse(values, nil, root) }

// parse is Parse, and adds its problems to those of the keys. What lies below a wrong key is checked all the same.
func parse(values map[string]string, keys spec.Problems, root string) (Config, error) {
	tree, problems, err := decode(values)
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

	c := Config{Dir: root, Offline: offline()}

	// What has the wrong type is in the problems already; the rest is read all the same, so that it can be checked too.
	var mismatch *json.UnmarshalTypeError
	if err := json.Unmarshal(text, &c); err != nil && !errors.As(err, &mismatch) {
		return Config{}, err
	}

	unread, err := readTexts(&c, root)
	if err != nil {
		return Config{}, err
	}

	problems = append(problems, unread...)
	problems = append(problems, checkSnapshot(&c, root)...)

	if _, problems, err = c.check(problems); err != nil {
		return Config{}, err
	}

	return c, slices.Concat(keys, problems).Err()
}

// check plans the cluster, and adds everything that is wrong to what reading the configuration has shown. The patches
// are checked where something else is wrong; otherwise the preflight checks do it, and give Talos' warnings, too.
func (c Config) check(found spec.Problems) (*plan.Plan, spec.Problems, error) {
	var planned, patches spec.Problems

	p, err := c.Plan()
	if err != nil && !errors.As(err, &planned) {
		return nil, nil, err
	}

	more := slices.Concat(c.checkAccess(), c.checkSecrets(), planned)
	if len(found)+len(more) == 0 {
		return p, nil, nil
	}

	if p == nil {
		patches, err = machineconfig.CheckPatches(c.Spec)
	} else if _, err = machineconfig.Check(p); errors.As(err, &patches) {
		err = nil
	}

	return p, merge(found, append(more, patches...)), err
}

// merge adds what was found in the values to what was found in the keys and in reading files, without what only follows
// from it.
func merge(keys, values spec.Problems) spec.Problems {
	all := keys

	for _, v := range values {
		follows := slices.ContainsFunc(keys, func(k spec.Problem) bool {
			return v.Path == k.Path || within(v.Path, k.Path) || within(k.Path, v.Path)
		})
		if !follows {
			all = append(all, v)
		}
	}

	return all.Unique()
}

// within says whether a path lies below another.
func within(path, above string) bool {
	rest, ok := strings.CutPrefix(path, above)

	return ok && (strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "["))
}

// decode parses what is not text.
func decode(values map[string]string) (map[string]any, spec.Problems, error) {
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

// keysGiven are the keys that the operator wrote, from the environment of the program or, where the program runs within
// another, from the stack's file.
func keysGiven(root, project, stack string) ([]string, error) {
	var all map[string]any

	if text, ok := os.LookupEnv(pulumi.EnvConfig); ok {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			return nil, fmt.Errorf("%s: %w", pulumi.EnvConfig, err)
		}
	} else {
		file, err := readConfig(filepath.Join(root, "Pulumi."+stack+".yaml"))
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}

		all = file
	}

	var keys []string

	for key := range all {
		if name, ok := strings.CutPrefix(key, project+":"); ok {
			keys = append(keys, name)
		}
	}

	slices.Sort(keys)

	return keys, nil
}
