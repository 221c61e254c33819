package stacks

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"talos-proxmox/components/plan"
)

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

			text, err := readText(dir, p.Text)
			if err != nil {
				problems.Add(p.Path, "must be a patch, or a file inside the project: "+reason(err), p.Origin, "correct the path")
			}

			p.Text = text
		}
	}

	read("cluster", c.Cluster.Patches)

	for _, name := range slices.Sorted(maps.Keys(c.Pools)) {
		pool := c.Pools[name]
		read("pools."+name, pool.Patches)

		for _, n := range slices.Sorted(maps.Keys(pool.Nodes)) {
			read("pools."+name+".nodes."+n, pool.Nodes[n].Patches)
		}

		for _, n := range slices.Sorted(maps.Keys(pool.GPUs)) {
			read("pools."+name+".gpus."+n, pool.GPUs[n].Patches)
		}
	}

	return problems, nil
}

func readText(dir *os.Root, name string) (string, error) {
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
