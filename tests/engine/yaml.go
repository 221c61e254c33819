package engine

import (
	"context"
	"path/filepath"
	"strings"
)

// AddYAML adds the language host of YAML programs to the backend's plugins. It is built once, and then found in the
// cache.
func (b *Backend) AddYAML(ctx context.Context) error {
	e := b.engine
	dir := filepath.Join(e.source, "tests", "engine", "yaml")
	version, err := requiredVersion(dir, "github.com/pulumi/pulumi-yaml")
	if err != nil {
		return err
	}
	host := plugin{kind: "language", name: "yaml", version: strings.TrimPrefix(version, "v")}
	root, err := e.builder.build(ctx, artefact{
		name: "yaml", binary: host.file(), what: "a language host for YAML",
		dir: dir, inputs: []string{dir}, target: "github.com/pulumi/pulumi-yaml/cmd/pulumi-language-yaml",
	})
	if err != nil {
		return err
	}
	host.binary = filepath.Join(root, host.file())
	return linkPlugins(filepath.Join(b.home(), "plugins"), host)
}
