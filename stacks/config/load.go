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

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/stacks/schema"
)

// Load reads the stack's configuration strictly. The error holds all problems (spec.Problems): unknown keys, wrong
// types, and everything that planning finds in what could be read. The root is the project's directory, the working
// directory when empty; files that the configuration names are read from below it.
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

	lost := PlainSecrets(values, func(key string) bool { return ctx.IsConfigSecret(ctx.Project() + ":" + key) })

	takeKeyFromEnvironment(values)

	// The SDK tells the value of a key, not which keys there are.
	given, err := keysGiven(root, ctx.Stack())
	if err != nil {
		return Config{}, err
	}

	for _, key := range given {
		name, ours := strings.CutPrefix(key, ctx.Project()+":")
		if _, known := values[name]; ours && !known {
			values[name] = ""
		}
	}

	lost = append(lost, otherNamespaces(given, ctx.Project(), known)...)
	// Where the stack's file is another one, there is nothing to say of this.
	if text, err := os.ReadFile(stackFileOf(root, ctx.Stack())); err == nil {
		misplaced, err := outside(text, ctx.Project())
		if err != nil {
			return Config{}, err
		}

		lost = slices.Concat(misplaced, lost)
	}

	return decode(values, Secrets{}, lost, root)
}

// keysGiven are the keys that the operator wrote, with their namespaces, from the environment of the program or, where
// the program runs within another, from the stack's file.
func keysGiven(root, stack string) ([]string, error) {
	var all map[string]any

	if text, ok := os.LookupEnv(pulumi.EnvConfig); ok {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			return nil, fmt.Errorf("%s: %w", pulumi.EnvConfig, err)
		}
	} else {
		file, err := readConfig(stackFileOf(root, stack))
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}

		all = file
	}

	return slices.Sorted(maps.Keys(all)), nil
}

func stackFileOf(root, stack string) string { return filepath.Join(root, "Pulumi."+stack+".yaml") }
