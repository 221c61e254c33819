// Command provider is the Pulumi package talos-proxmox: it offers a whole cluster as the component resource Cluster to
// programs in every language of Pulumi. Its inputs are the keys of a stack's configuration, and its outputs are those
// of a stack.
//
// The server is that of Pulumi's Go SDK: pulumi-go-provider requires the engine's own module, pulumi/pkg, which every
// module that imports this one would resolve.
//
// The schema is generated from the JSON Schemas of the configuration and of the outputs:
//
//	go generate
package main

import (
	"fmt"
	"os"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/provider"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"

	"talos-proxmox/stacks/provider/about"
)

func main() {
	err := provider.Main(about.Package, func(host *provider.HostClient) (pulumirpc.ResourceProviderServer, error) {
		return newServer(host), nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
