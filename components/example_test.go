package components_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/luthermonson/go-proxmox"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos"

	"talos-proxmox/components"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner"
	"talos-proxmox/components/preflight"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// A machine by itself, of its own values: the VM is cloned, and Talos on it is configured by other means. Its hooks ask
// Proxmox VE whether a VM is the node's own before they let it be changed or deleted.
func ExampleNewTalosNode() {
	run(func(ctx *pulumi.Context) error {
		n, err := planner.NewNode(planner.NodeArgs{
			Name: "edge-1", Host: "pve", VMID: 410, Address: "192.168.10.11", Template: "talos-v1.12.4-base",
			VM: spec.VMSpec{Cores: new(4), MemoryMiB: new(8192)},
		})
		if err != nil {
			return err
		}

		proxmox, err := proxmoxve.NewProvider(ctx, "proxmox",
			&proxmoxve.ProviderArgs{Endpoint: pulumi.String("https://pve.lan:8006")})
		if err != nil {
			return err
		}

		node, err := components.NewTalosNode(ctx, "edge-1", &components.TalosNodeArgs{
			Node:     n,
			Proxmox:  oneTemplate{}, // in a real program what proxmoxapi.New returns
			Template: pulumi.Int(9000),
		}, pulumi.Providers(proxmox))
		if err != nil {
			return err
		}

		show(node.Name, node.VMID, node.Host, node.IPAddress.Elem(), node.MACAddress)

		return nil
	})
	// Output: edge-1 410 pve 192.168.10.11 FA:B8:6C:12:06:5A
}

// All that is wrong with a node's values is in the error, and can be looked at.
func ExampleNewTalosNode_problems() {
	_, err := planner.NewNode(planner.NodeArgs{
		Name: "Edge", Host: "pve", VMID: 41, VM: spec.VMSpec{MemoryMiB: new(512)},
	})

	var problems spec.Problems
	if errors.As(err, &problems) {
		for _, p := range problems {
			fmt.Println(p.Path, p.Rule)
		}
	}
	// Output:
	// node.name must be a DNS label: lower case letters, digits and dashes
	// node.cluster must be a DNS label: lower case letters, digits and dashes
	// node.vmid must be a VMID, from 100 to 999999999
	// node.memoryMiB must be at least 1024: Talos does not start with less
}

// A pool of GPU workers by itself: one machine for each GPU. The name of an entry is its identity: without the first
// entry, the second stays what it is.
func ExampleNewGPUWorkerPool() {
	run(func(ctx *pulumi.Context) error {
		proxmox, err := proxmoxve.NewProvider(ctx, "proxmox",
			&proxmoxve.ProviderArgs{Endpoint: pulumi.String("https://pve.lan:8006")})
		if err != nil {
			return err
		}

		args := &components.GPUWorkerPoolArgs{Pool: "gpu"}

		for i, bdf := range []string{"0000:01:00.0", "0000:02:00.0"} {
			n, err := planner.NewNode(planner.NodeArgs{
				Name: fmt.Sprintf("lab-gpu-%d", i+1), Cluster: "lab", Pool: "gpu", Host: "pve", VMID: 601 + i,
				Template: "talos-v1.12.4-base", GPU: &plan.GPU{BDF: bdf, PCIe: true, ROMBar: true},
			})
			if err != nil {
				return err
			}

			args.Nodes = append(args.Nodes, components.GPUWorker{
				Name: n.Name,
				Args: &components.TalosNodeArgs{Node: n, Proxmox: oneTemplate{}, Template: pulumi.Int(9000)},
				// What the host says of the card: lspci -nn. Proxmox VE passes no other card by mistake.
				Device: &proxmoxapi.PCIDevice{BDF: bdf, ID: "10de:2204", IOMMUGroup: 14},
			})
		}

		pool, err := components.NewGPUWorkerPool(ctx, "lab-gpu", args, pulumi.Providers(proxmox))
		if err != nil {
			return err
		}

		for _, node := range pool.Nodes {
			show(node.Name, node.VMID, node.VM.Hostpcis.Index(pulumi.Int(0)).Mapping().Elem())
		}

		return nil
	})
	// Unordered output:
	// lab-gpu-1 601 lab-gpu-1
	// lab-gpu-2 602 lab-gpu-2
}

// A whole cluster as a part of another program. Where the program reads no stack configuration, it states the spec
// itself.
func ExampleNewTalosCluster() {
	run(func(ctx *pulumi.Context) error {
		p, err := planner.Plan(spec.Spec{
			Proxmox: spec.Proxmox{Hosts: []spec.Host{{Name: "pve"}}},
			Cluster: spec.Cluster{Name: "home", Versions: spec.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"}},
			Image: spec.Image{Source: spec.SourceTemplate, Template: spec.TemplateImage{
				Control: "talos-v1.12.4-base", Worker: "talos-v1.12.4-base",
			}},
			Network: spec.Network{CIDR: "192.168.10.0/24"},
			Pools: map[string]spec.Pool{
				"control": {Role: spec.RoleControlPlane, Count: new(1), Addresses: "192.168.10.11-13"},
				"worker":  {Role: spec.RoleWorker, Count: new(2), Addresses: "192.168.10.21-49"},
			},
		})
		if err != nil {
			return err
		}

		// In earnest: proxmoxapi.New(proxmoxapi.Access{Endpoint: "https://pve.lan:8006", TokenID: "pulumi@pve!talos", ...}),
		// and preflight.Dialer{} for the network
		api := oneTemplate{}

		report, err := preflight.Run(ctx, p, api, quietNetwork{})
		if err != nil {
			return err
		}

		proxmox, err := proxmoxve.NewProvider(ctx, "proxmox",
			&proxmoxve.ProviderArgs{Endpoint: pulumi.String("https://pve.lan:8006")})
		if err != nil {
			return err
		}

		talosProvider, err := talos.NewProvider(ctx, "talos", nil)
		if err != nil {
			return err
		}

		cluster, err := components.NewTalosCluster(ctx, "home",
			&components.TalosClusterArgs{Plan: p, Preflight: report, Proxmox: api}, pulumi.Providers(proxmox, talosProvider))
		if err != nil {
			return err
		}

		show(cluster.Endpoint, cluster.Nodes[0].Name, cluster.Nodes[1].Name, cluster.Nodes[2].Name)

		return nil
	})
	// Output: https://192.168.10.11:6443 home-control-1 home-worker-1 home-worker-2
}

// run runs a program without an engine: resources are what they are asked to be.
func run(program pulumi.RunFunc) {
	if err := pulumi.RunErr(program, pulumi.WithMocks("demo", "dev", mocks{})); err != nil {
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

type mocks struct{}

func (mocks) NewResource(args pulumi.MockResourceArgs) (string, resource.PropertyMap, error) {
	return args.Name + "-id", args.Inputs, nil
}

func (mocks) Call(pulumi.MockCallArgs) (resource.PropertyMap, error) {
	return resource.PropertyMap{}, nil
}

// oneTemplate is a Proxmox VE that has a template, and room for what is made of it.
type oneTemplate struct{ *proxmoxapi.Client }

func (oneTemplate) Version(context.Context) (proxmoxapi.Version, error) {
	return proxmoxapi.Version{Text: "9.0.3", Major: 9}, nil
}

func (oneTemplate) VMs(context.Context) ([]proxmoxapi.VM, error) {
	return []proxmoxapi.VM{{ID: 9000, Name: "talos-v1.12.4-base", Host: "pve", Template: true}}, nil
}

func (o oneTemplate) VMsOn(ctx context.Context, _ string) ([]proxmoxapi.VM, error) { return o.VMs(ctx) }

func (oneTemplate) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return proxmoxapi.VMConfig{Disks: map[string]int{"scsi0": 10}}, nil
}

func (oneTemplate) Hosts(context.Context) ([]proxmoxapi.Host, error) {
	return []proxmoxapi.Host{{Name: "pve", Online: true, CPUs: 64, MemoryMiB: 1 << 20}}, nil
}

func (oneTemplate) DiskImages(context.Context, string, string) ([]proxmoxapi.DiskImage, error) {
	return nil, nil
}

func (oneTemplate) Stores(context.Context, string) (map[string]proxmoxapi.Store, error) {
	return map[string]proxmoxapi.Store{"local-lvm": {Content: []string{"images"}, Active: true, Free: 1 << 40}}, nil
}

func (oneTemplate) Bridges(context.Context, string) ([]proxmoxapi.Bridge, error) {
	return []proxmoxapi.Bridge{{Name: "vmbr0"}}, nil
}

func (oneTemplate) FirewallRules(context.Context, proxmoxapi.VM) ([]proxmox.FirewallRule, error) {
	return nil, nil
}

func (oneTemplate) ResourcePools(context.Context) ([]string, error) { return nil, nil }

func (oneTemplate) Time(context.Context, string) (time.Time, error) { return time.Now(), nil }

func (oneTemplate) Permissions(context.Context) (proxmoxapi.Permissions, error) {
	all := map[string]bool{}
	for _, name := range []string{
		"Datastore.AllocateSpace", "Datastore.Audit", "SDN.Use", "VM.Allocate", "VM.Audit", "VM.Clone", "VM.Config.CDROM",
		"VM.Config.CPU", "VM.Config.Disk",
		"VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network", "VM.Config.Options", "VM.PowerMgmt",
	} {
		all[name] = true
	}

	return proxmoxapi.Permissions{"/": all}, nil
}

// quietNetwork is a network in which no machine answers.
type quietNetwork struct{}

func (quietNetwork) Listening(context.Context, netip.Addr) int { return 0 }

func (quietNetwork) Resolves(context.Context, string) bool { return true }

func (quietNetwork) Source(context.Context, netip.Addr) netip.Addr { return netip.Addr{} }

// Extensions are all that tests name.
func (quietNetwork) Extensions(context.Context, string, string) ([]string, error) {
	return []string{
		"siderolabs/qemu-guest-agent", "siderolabs/tailscale", "siderolabs/iscsi-tools", "siderolabs/util-linux-tools",
		"siderolabs/nvidia-container-toolkit-lts", "siderolabs/nonfree-kmod-nvidia-lts",
	}, nil
}
