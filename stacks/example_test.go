package stacks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/spec"
	"talos-proxmox/stacks"
	"talos-proxmox/stacks/contract"
)

// home is a configuration without a stack file. A secret is a value like any other here: take it from where yours are
// kept.
func home(secret string) stacks.Config {
	return stacks.Config{
		ProxmoxTokenSecret: secret,
		Spec: spec.Spec{
			Proxmox: spec.Proxmox{
				Endpoint: "https://127.0.0.1:1", TokenID: "pulumi@pve!talos",
				Hosts: []spec.Host{{Name: "pve"}},
			},
			Cluster: spec.Cluster{Name: "home", Versions: spec.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"}},
			Image: spec.Image{
				Source:   spec.SourceTemplate,
				Template: spec.TemplateImage{Control: "talos-v1.12.4-base", Worker: "talos-v1.12.4-base"},
			},
			Network: spec.Network{CIDR: "192.168.10.0/24"},
			Pools: map[string]spec.Pool{
				"control": {Role: spec.RoleControlPlane, Count: new(1), Addresses: "192.168.10.11-13"},
				"worker":  {Role: spec.RoleWorker, Count: new(2), Addresses: "192.168.10.21-49"},
			},
		},
	}
}

// A cluster as a part of another program. Its outputs are exported under names of the program's choice.
func ExampleDeploy() {
	preview(func(ctx *pulumi.Context) error {
		d, err := stacks.Deploy(ctx, home("11111111-2222-3333-4444-555555555555"))
		if err != nil {
			return err
		}

		ctx.Export("contract", d.Outputs[contract.OutputContract])

		for _, node := range d.Cluster.Nodes {
			show(node.Name, node.IPAddress.Elem())
		}

		return nil
	})
	// Unordered output:
	// home-control-1 192.168.10.11
	// home-worker-1 192.168.10.21
	// home-worker-2 192.168.10.22
}

// A configuration that is wrong registers nothing. All that is wrong with it is in the error, and can be looked at.
func ExampleDeploy_problems() {
	preview(func(ctx *pulumi.Context) error {
		config := home("11111111-2222-3333-4444-555555555555")
		config.Cluster.HA = true
		config.Network.CIDR = "192.168.11.0/24"

		_, err := stacks.Deploy(ctx, config)

		var problems spec.Problems
		if errors.As(err, &problems) {
			for _, p := range problems {
				fmt.Println(p.Path)
			}

			return nil
		}

		return err
	})
	// Output:
	// cluster.ha
	// pools.control.addresses
	// pools.worker.addresses
}

// A program of your own brings a cluster up without a project, a stack file or the pulumi command line; it needs the
// pulumi CLI in its PATH.
func ExampleDeploy_automation() {
	up := func(ctx context.Context, secret string) (kubeconfig string, err error) {
		stack, err := auto.UpsertStackInlineSource(ctx, "home", "clusters", func(ctx *pulumi.Context) error {
			d, err := stacks.Deploy(ctx, home(secret))
			if err != nil {
				return err
			}

			d.Export(ctx, "")

			return nil
		})
		if err != nil {
			return "", err
		}

		result, err := stack.Up(ctx)
		if err != nil {
			return "", err
		}

		cluster, err := contract.Decode(result.Outputs[contract.OutputContract].Value)
		if err != nil {
			return "", err
		}

		fmt.Println(cluster.Cluster, cluster.ControlPlaneEndpoints)

		return result.Outputs[contract.OutputKubeconfig].Value.(string), nil
	}

	_ = up
}

// Another stack reads what a cluster's stack offers. The contract is plain: it may decide which resources there are.
func ExampleReadOutputs() {
	preview(func(ctx *pulumi.Context) error {
		ref, err := pulumi.NewStackReference(ctx, "organization/talos-proxmox/home", nil)
		if err != nil {
			return err
		}

		outputs, err := contract.ReadOutputs(ref)
		if err != nil {
			return err
		}

		for _, n := range outputs.Contract.BootstrapNodes.All() {
			if n.IP == nil {
				fmt.Println(n.Name, "on", n.Host, "has no address yet")
			} else {
				fmt.Println(n.Name, "on", n.Host, "at", *n.IP)
			}
		}

		return nil
	})
	// Output:
	// home-control-1 on pve at 192.168.10.11
	// home-worker-1 on pve has no address yet
}

// A stack with several clusters exports the outputs of each with a prefix.
func ExampleReadOutputsOf() {
	preview(func(ctx *pulumi.Context) error {
		ref, err := pulumi.NewStackReference(ctx, "organization/clusters/prod", nil)
		if err != nil {
			return err
		}

		outputs, err := contract.ReadOutputsOf(ref, "home-")
		if err != nil {
			return err
		}

		fmt.Println(outputs.Contract.Cluster)

		_, err = contract.ReadOutputsOf(ref, "office-")

		fmt.Println(err)

		return nil
	})
	// Output:
	// home
	// the stack has no output office-talos_bootstrap_contract: is it a stack of this program, and deployed?
}

// A program without Pulumi reads what pulumi stack output --json prints.
func Example_readContract() {
	cluster, err := contract.Read([]byte(`{"talos_bootstrap_contract": ` + published + `}`))
	if err != nil {
		fmt.Println(err)

		return
	}

	fmt.Println(cluster.Cluster, cluster.Versions.Talos, cluster.ControlPlaneEndpoints,
		cluster.NodeVMIDMap["home-worker-1"])
	// Output: home v1.12.4 [192.168.10.11] 501
}

const published = `{
	"schemaVersion": 1, "kind": "talos", "cluster": "home", "versions": {"talos": "v1.12.4", "kubernetes": "v1.34.2"},
	"talos_control_plane_endpoints": ["192.168.10.11"],
	"talos_bootstrap_nodes": {
		"control_plane": [{"name": "home-control-1", "vmid": 401, "ip": "192.168.10.11", "node": "pve"}],
		"workers": [{"name": "home-worker-1", "vmid": 501, "node": "pve"}],
		"gpu_workers": []
	},
	"talos_node_ip_map": {"home-control-1": "192.168.10.11"},
	"talos_node_vmid_map": {"home-control-1": 401, "home-worker-1": 501}
}`

// preview runs a program without an engine, as a preview: it goes on without Proxmox VE.
func preview(program pulumi.RunFunc) {
	err := pulumi.RunErr(program, pulumi.WithMocks("demo", "dev", mocks{}),
		func(info *pulumi.RunInfo) { info.DryRun = true })
	if err != nil {
		fmt.Println(err)
	}
}

// show prints what is known when the program has run.
func show(values ...any) {
	pulumi.All(values...).ApplyT(func(known []any) error {
		_, err := fmt.Println(known...)

		return err
	})
}

// mocks answer with what a resource is asked to be. The stack that is referred to has published a contract.
type mocks struct{}

func (mocks) NewResource(args pulumi.MockResourceArgs) (string, resource.PropertyMap, error) {
	outputs := args.Inputs

	switch args.TypeToken {
	case "talos:machine/secrets:Secrets":
		outputs = resource.NewPropertyMapFromMap(map[string]any{
			"clientConfiguration": map[string]any{"caCertificate": "CA", "clientCertificate": "", "clientKey": "KEY"},
			"machineSecrets":      map[string]any{}, "talosVersion": "v1.12.4",
		})
	case "pulumi:pulumi:StackReference":
		var cluster map[string]any
		if err := json.Unmarshal([]byte(published), &cluster); err != nil {
			return "", nil, err
		}

		outputs = resource.NewPropertyMapFromMap(map[string]any{
			"name": args.Name, "secretOutputNames": []any{},
			"outputs": map[string]any{contract.OutputContract: cluster, "home-" + contract.OutputContract: cluster},
		})
	}

	return args.Name + "-id", outputs, nil
}

func (mocks) Call(pulumi.MockCallArgs) (resource.PropertyMap, error) {
	return resource.PropertyMap{}, nil
}
