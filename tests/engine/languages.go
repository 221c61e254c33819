package engine

import (
	"context"
	"path/filepath"
	"strings"
)

// AddYAML adds the language host of YAML programs to the backend's plugins. It is built once, and then found in the
// cache.
func (b *Backend) AddYAML(ctx context.Context) error {
	return b.addLanguage(ctx, "yaml", "YAML", "github.com/pulumi/pulumi-yaml",
		"github.com/pulumi/pulumi-yaml/cmd/pulumi-language-yaml")
}

// AddNodeJS adds the language host of TypeScript programs likewise. They take node and npm.
func (b *Backend) AddNodeJS(ctx context.Context) error {
	return b.addLanguage(ctx, "nodejs", "TypeScript", "github.com/pulumi/pulumi/sdk/v3", ".")
}

// addLanguage builds the language host of a nested module, and has it bear the version of one of its modules.
func (b *Backend) addLanguage(ctx context.Context, name, what, versioned, target string) error {
	e := b.engine
	dir := filepath.Join(e.source, "tests", "engine", name)
	version, err := requiredVersion(dir, versioned)
	if err != nil {
		return err
	}
	host := plugin{kind: "language", name: name, version: strings.TrimPrefix(version, "v")}
	root, err := e.builder.build(ctx, artefact{
		name: name, binary: host.file(), what: "a language host for " + what, dir: dir, inputs: []string{dir}, target: target,
	})
	if err != nil {
		return err
	}
	host.binary = filepath.Join(root, host.file())
	return linkPlugins(filepath.Join(b.home(), "plugins"), host)
}
