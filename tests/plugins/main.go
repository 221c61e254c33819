// Command plugins serves the upstream Terraform providers as Pulumi provider plugins.
//
// It stands in for the published plugins of the two SDKs where those cannot be downloaded: the published ones are
// release files, the providers that they wrap are Go modules. One binary holds both providers, because most of it is
// the bridge; the name of its file, pulumi-resource-talos or pulumi-resource-proxmoxve, says which one a process
// serves. The argument "schemas" has it write the schemas of both next to itself: published plugins carry theirs, too,
// and making one takes longer than all else that a plugin does when it starts.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/pf/tfbridge"
)

func main() {
	run := func() error { return serve(context.Background(), filepath.Base(os.Args[0])) }
	if len(os.Args) == 2 && os.Args[1] == "schemas" {
		run = func() error { return writeSchemas(context.Background()) }
	}
	if err := run(); err != nil {
		// Standard output carries the port and nothing else.
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve runs the plugin called name until the engine ends it.
func serve(ctx context.Context, name string) error {
	pkg := strings.TrimPrefix(strings.TrimSuffix(name, ".exe"), "pulumi-resource-")
	info, err := providerInfo(ctx, pkg)
	if err != nil {
		return err
	}
	path, err := schemaFile(pkg)
	if err != nil {
		return err
	}
	schema, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		schema, err = packageSchema(ctx, info)
	}
	if err != nil {
		return fmt.Errorf("%s: the package schema: %w", name, err)
	}
	if pkg == proxmoxPkg {
		tfbridge.MainWithMuxer(ctx, pkg, info, schema)
	} else {
		tfbridge.Main(ctx, pkg, info, tfbridge.ProviderMetadata{PackageSchema: schema})
	}
	return nil
}

// schemaFile is where the schema of a provider is kept: next to the binary itself, whatever links to that.
func schemaFile(pkg string) (string, error) {
	binary, err := os.Executable()
	return filepath.Join(filepath.Dir(binary), "schema-"+pkg+".json"), err
}

func writeSchemas(ctx context.Context) error {
	for _, pkg := range []string{proxmoxPkg, talosPkg} {
		info, err := providerInfo(ctx, pkg)
		if err != nil {
			return err
		}
		schema, err := packageSchema(ctx, info)
		if err != nil {
			return fmt.Errorf("%s: the package schema: %w", pkg, err)
		}
		path, err := schemaFile(pkg)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, schema, 0o644); err != nil {
			return err
		}
	}
	return nil
}
