// Command consumer is a program of another module. It makes two clusters and a machine of their own with the Automation
// API, as its first argument says: up, destroy, teardown (which releases the nodes and destroys them); read has another
// stack read the outputs of one of them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve"
	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components"
	"talos-proxmox/components/planner"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/stacks"
	"talos-proxmox/stacks/contract"
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run does what the word says with clusters of these stack files.
func run(ctx context.Context, word string, files []string) error {
	var configs []stacks.Config

	for _, file := range files {
		config, err := stacks.LoadFile(file)
		if err != nil {
			return err
		}

		config.ProxmoxTokenSecret = os.Getenv("SECRET_OF_" + config.Cluster.Name)
		config.Lifecycle.Teardown = word == "teardown"
		configs = append(configs, config)
	}

	clusters, err := auto.UpsertStackInlineSource(ctx, "prod", "clusters", program(configs))
	if err != nil {
		return err
	}

	destroy := func() error {
		for i := range configs {
			configs[i].Destroying = true
		}

		_, err := clusters.Destroy(ctx, optdestroy.ProgressStreams(os.Stdout), optdestroy.RunProgram(true))

		return err
	}

	switch word {
	case "up":
		_, err = clusters.Up(ctx, optup.ProgressStreams(os.Stdout))
	case "destroy":
		err = destroy()
	case "teardown":
		if _, err = clusters.Up(ctx, optup.ProgressStreams(os.Stdout)); err == nil {
			err = destroy()
		}
	case "read":
		var reader auto.Stack

		if reader, err = auto.UpsertStackInlineSource(ctx, "prod", "reader", read); err == nil {
			_, err = reader.Up(ctx, optup.ProgressStreams(os.Stdout))
		}
	default:
		err = errors.New(word + " is none of up, read, destroy, teardown")
	}

	return err
}

// program makes a cluster of each configuration, and one machine with the first.
func program(configs []stacks.Config) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error {
		deployments, err := stacks.DeployAll(ctx, configs)
		if err != nil {
			return err
		}

		for i, d := range deployments {
			d.Export(ctx, configs[i].Cluster.Name+"-")
		}

		return edge(ctx, configs[0])
	}
}

// edge makes a machine that belongs to no cluster.
func edge(ctx *pulumi.Context, config stacks.Config) error {
	api, err := proxmoxapi.New(config.Access())
	if err != nil {
		return err
	}

	token := pulumi.String(config.Proxmox.TokenID + "=" + config.ProxmoxTokenSecret)

	provider, err := proxmoxve.NewProvider(ctx, "edge", &proxmoxve.ProviderArgs{
		Endpoint: pulumi.String(config.Proxmox.Endpoint), Insecure: pulumi.Bool(config.Proxmox.Insecure),
		ApiToken: pulumi.ToSecret(token).(pulumi.StringOutput),
	})
	if err != nil {
		return err
	}

	node, err := planner.NewNode(planner.NodeArgs{
		Name: "edge-1", Host: "pve", VMID: 770, Template: "talos-v1.12.4-base", Datastore: config.Proxmox.Storage.Disks,
	})
	if err != nil {
		return err
	}

	machine, err := components.NewTalosNode(ctx, "edge-1", &components.TalosNodeArgs{
		Node: node, Proxmox: api, Template: pulumi.Int(9000),
	}, pulumi.Providers(provider))
	if err != nil {
		return err
	}

	ctx.Export("edge", machine.VMID)

	return nil
}

// read is a program that reads one cluster of the other stack.
func read(ctx *pulumi.Context) error {
	ref, err := pulumi.NewStackReference(ctx, "organization/clusters/prod", nil)
	if err != nil {
		return err
	}

	outputs, err := contract.ReadOutputsOf(ref, "k3s-test-")
	if err != nil {
		return err
	}

	fmt.Println("the cluster is", outputs.Contract.Cluster, outputs.Contract.ControlPlaneEndpoints)
	ctx.Export("kubeconfig", outputs.Kubeconfig)

	return nil
}
