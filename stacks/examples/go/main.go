// Command go is a program with a cluster whose configuration is Go, not a stack file. It needs one key:
//
//	pulumi config set --secret proxmoxTokenSecret
package main

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/config"

	"talos-proxmox/components/spec"
	"talos-proxmox/stacks"
)

func main() { pulumi.Run(program) }

func program(ctx *pulumi.Context) error {
	secret, err := config.Try(ctx, "proxmoxTokenSecret")
	if err != nil {
		return err
	}

	home, err := stacks.Deploy(ctx, stacks.Config{
		Spec: spec.Spec{
			Proxmox: spec.Proxmox{
				Endpoint: "https://pve.lan:8006", TokenID: "pulumi@pve!talos", Hosts: []spec.Host{{Name: "pve"}},
			},
			Cluster: spec.Cluster{Name: "home", Versions: spec.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"}},
			Network: spec.Network{CIDR: "192.168.10.0/24", Gateway: "192.168.10.1"},
			Pools: map[string]spec.Pool{
				"control": {Role: spec.RoleControlPlane, Count: new(1), Addresses: "192.168.10.11-13"},
				"worker":  {Role: spec.RoleWorker, Count: new(2), Addresses: "192.168.10.21-49"},
			},
		},
		ProxmoxTokenSecret: secret,
	})
	if err != nil {
		return err
	}

	home.Export(ctx, "")

	return nil
}
