// Command plugins serves the upstream Terraform providers as Pulumi provider plugins.
//
// It stands in for the published plugins of the two SDKs where those cannot be downloaded: the published ones are
// release files, the providers that they wrap are Go modules. One binary holds both providers, because most of it is
// the bridge; the name of its file, pulumi-resource-talos or pulumi-resource-proxmoxve, says which one a process
// serves.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/pf/tfbridge"
)

func main() {
	if err := serve(context.Background(), filepath.Base(os.Args[0])); err != nil {
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
	schema, err := packageSchema(ctx, &info)
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
