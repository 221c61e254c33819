package config

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"talos-proxmox/components/etcdbackup"
	"talos-proxmox/components/spec"
)

// readTexts replaces the paths of files by what they hold: patches, manifests, certificates. Only files below root are
// read, links included: the configuration of a stranger must not show files of the machine it is previewed on.
func readTexts(c *Config, root string) (spec.Problems, error) {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close() // read only

	var problems spec.Problems

	readOne := func(path, what string, t *spec.InlineOrFile) {
		t.Path, t.Origin = path, path

		if inline(t.Text) {
			return
		}

		t.Origin = t.Text

		// Of a URL, only manifests make use.
		if what == aManifest && t.URL() {
			return
		}

		text, err := readText(dir, t.Text)
		if err != nil {
			problems.Add(path, "must be "+what+", or a file inside the project: "+reason(err), t.Origin, "correct the path")
		}

		t.Text = text
	}

	texts := func(path, what string, texts []spec.InlineOrFile) {
		for i := range texts {
			readOne(fmt.Sprintf("%s[%d]", path, i), what, &texts[i])
		}
	}

	read := func(path string, patches []spec.Patch) { texts(path+".patches", "a patch", patches) }

	read("cluster", c.Cluster.Patches)

	if t := c.Cluster.APIServer.Audit; t != nil {
		readOne("cluster.apiServer.audit", "a policy", t)
	}

	if t := c.Cluster.APIServer.Authentication; t != nil {
		readOne("cluster.apiServer.authentication", "a configuration", t)
	}

	texts("cluster.manifests", aManifest, c.Cluster.Manifests)
	texts("cluster.trustedCAs", "certificates", c.Cluster.TrustedCAs)

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

const aManifest = "a manifest, a URL"

func readText(dir *os.Root, name string) (string, error) {
	f, err := dir.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close() // read only

	text, err := io.ReadAll(f)

	return string(text), err
}

// checkSnapshot checks that there is something to recover from.
func checkSnapshot(c *Config, root string) spec.Problems {
	name := c.Cluster.RecoverFrom
	if name == "" {
		return nil
	}

	f, err := os.OpenInRoot(root, name)
	if err == nil {
		_, err = etcdbackup.Read(f)
		err = errors.Join(err, f.Close())
	}

	if err == nil {
		return nil
	}

	return spec.Problems{{
		Path: "cluster.recoverFrom", Rule: "must be a snapshot of etcd inside the project: " + reason(err), Value: name,
		Remedy: "correct the path; 'go run ./stacks/ops etcd list' shows what there is",
	}}
}

// inline tells a text from the path of one: YAML has a line break or a key, JSON a bracket.
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
