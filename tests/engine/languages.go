package engine

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
)

const (
	pulumiYAML = "github.com/pulumi/pulumi-yaml"
	pulumiSDK  = "github.com/pulumi/pulumi/sdk/v3"
)

// AddYAML adds the language host of YAML programs to the backend's plugins. It is built once, and then found in the
// cache.
func (b *Backend) AddYAML(ctx context.Context) error {
	return b.add(ctx, "yaml", pulumiYAML, pulumiYAML+"/cmd/pulumi-language-yaml", plugin{kind: "language", name: "yaml"})
}

// AddNodeJS adds the language host of TypeScript programs likewise. They take node and npm.
func (b *Backend) AddNodeJS(ctx context.Context) error {
	return b.add(ctx, "nodejs", pulumiSDK, ".", plugin{kind: "language", name: "nodejs"})
}

// AddConverters adds what `pulumi convert` takes to make programs in TypeScript and Python of those in YAML.
func (b *Backend) AddConverters(ctx context.Context) error {
	return errors.Join(
		b.add(ctx, "yaml", pulumiYAML, pulumiYAML+"/cmd/pulumi-converter-yaml", plugin{kind: "converter", name: "yaml"}),
		b.add(ctx, "nodejs", pulumiSDK, ".",
			plugin{kind: "language", name: "nodejs"}, plugin{kind: "language", name: "python"}),
	)
}

// add builds a binary in a nested module, and makes it some plugins, which bear the version of one of its modules.
func (b *Backend) add(ctx context.Context, module, versioned, target string, plugins ...plugin) error {
	e, first := b.engine, plugins[0]
	dir := filepath.Join(e.source, "tests", "engine", module)
	version, err := requiredVersion(dir, versioned)
	if err != nil {
		return err
	}
	root, err := e.builder.build(ctx, artefact{
		name: first.kind + "-" + first.name, binary: first.file(), what: first.file(), dir: dir, inputs: []string{dir},
		target: target,
	})
	if err != nil {
		return err
	}
	for i := range plugins {
		plugins[i].version = strings.TrimPrefix(version, "v")
		plugins[i].binary = filepath.Join(root, first.file())
	}
	return linkPlugins(filepath.Join(b.home(), "plugins"), plugins...)
}
