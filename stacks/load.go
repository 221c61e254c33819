package stacks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"gopkg.in/yaml.v3"

	"talos-proxmox/components/plan"
)

// Load reads the stack's configuration strictly. The error holds all problems (plan.Problems): unknown keys, wrong types,
// and everything that planning finds in what could be read. The root is the project's directory, the current one when
// empty.
func Load(ctx *pulumi.Context, root string) (Config, error) {
	if root == "" {
		root = "."
	}

	values := map[string]string{}

	for key := range keysAt(nil) {
		if v, ok := ctx.GetConfig(ctx.Project() + ":" + key); ok {
			values[key] = v
		}
	}

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

	return Parse(values, root)
}

// Parse reads a configuration from its values as Pulumi keeps them: text as it is, anything else as JSON. Patch files are
// read from below root.
func Parse(values map[string]string, root string) (Config, error) {
	tree, problems := decode(values)

	found, err := checkKeys(tree)
	if err != nil {
		return Config{}, err
	}

	problems = append(problems, found...)

	text, err := json.Marshal(tree)
	if err != nil {
		return Config{}, err
	}

	var c Config

	// What has the wrong type is in the problems already; the rest is read all the same, so that it can be checked too.
	var mismatch *json.UnmarshalTypeError
	if err := json.Unmarshal(text, &c); err != nil && !errors.As(err, &mismatch) {
		return Config{}, err
	}

	patches, err := readPatches(&c, root)
	if err != nil {
		return Config{}, err
	}

	more := slices.Concat(patches, c.checkAccess())

	if _, err := plan.New(c.Spec()); err != nil {
		var planned plan.Problems
		if !errors.As(err, &planned) {
			return Config{}, err
		}

		more = append(more, planned...)
	}

	return c, merge(problems, more).Err()
}

// merge adds what was found in the values to what was found in the keys, without what only follows from it.
func merge(keys, values plan.Problems) plan.Problems {
	all := keys

	for _, v := range values {
		follows := slices.ContainsFunc(keys, func(k plan.Problem) bool {
			return v.Path == k.Path || strings.HasPrefix(v.Path, k.Path+".") || strings.HasPrefix(k.Path, v.Path+".")
		})
		if !follows {
			all = append(all, v)
		}
	}

	return all.Unique()
}

// decode parses what is not text.
func decode(values map[string]string) (map[string]any, plan.Problems) {
	var problems plan.Problems

	tree := map[string]any{}
	known := keysAt(nil)

	for _, key := range slices.Sorted(maps.Keys(values)) {
		s := known[key]
		if s == nil || s.Type == "string" {
			tree[key] = values[key]

			continue
		}

		var v any
		if err := json.Unmarshal([]byte(values[key]), &v); err != nil {
			problems.Add(key, "must be "+article([]string{s.Type}), "", "write it as YAML below the key")

			continue
		}

		tree[key] = v
	}

	// A key that cannot be read is reported once, not as missing too.
	for _, p := range problems {
		tree[p.Path] = map[string]any{}
	}

	return tree, problems
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
		text, err := os.ReadFile(filepath.Join(root, "Pulumi."+stack+".yaml"))
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}

		var file struct {
			Config map[string]any `yaml:"config"`
		}

		if err := yaml.Unmarshal(text, &file); err != nil {
			return nil, err
		}

		all = file.Config
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

// readPatches replaces the paths of patch files by what they hold. Only files below root are read, links included: the
// configuration of a stranger must not show files of the machine it is previewed on.
func readPatches(c *Config, root string) (plan.Problems, error) {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // read only

	var problems plan.Problems

	read := func(path string, patches []plan.Patch) {
		for i := range patches {
			p := &patches[i]
			p.Path = fmt.Sprintf("%s.patches[%d]", path, i)
			p.Origin = p.Path

			if inline(p.Text) {
				continue
			}

			p.Origin = p.Text

			text, err := readFile(dir, p.Text)
			if err != nil {
				problems.Add(p.Path, "must be a patch, or a file inside the project: "+reason(err), p.Origin, "correct the path")
			}

			p.Text = text
		}
	}

	read("cluster", c.Cluster.Patches)

	for _, name := range slices.Sorted(maps.Keys(c.Pools)) {
		read("pools."+name, c.Pools[name].Patches)
	}

	return problems, nil
}

func readFile(dir *os.Root, name string) (string, error) {
	f, err := dir.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // read only

	text, err := io.ReadAll(f)

	return string(text), err
}

// inline tells a patch from the path of one: YAML has a line break or a key, JSON a bracket.
func inline(text string) bool {
	return strings.ContainsAny(text, "\n{[") || strings.Contains(text, ": ")
}

func reason(err error) string {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}

	return err.Error()
}
