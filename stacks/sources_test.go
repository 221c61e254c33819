package stacks

import (
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
	"talos-proxmox/stacks/contract"
)

// emptyProxmox is an empty Proxmox VE of any hosts, whose guest agents report one address each.
type emptyProxmox struct {
	fakeProxmox

	plan   *plan.Plan
	shared bool
}

func (emptyProxmox) VMs(context.Context) ([]proxmoxapi.VM, error) { return nil, nil }

func (y emptyProxmox) SharedStores(context.Context) (map[string]bool, error) {
	return map[string]bool{"local": y.shared}, nil
}

func (emptyProxmox) Files(context.Context, string, string) (map[string]int64, error) {
	return map[string]int64{"local:iso/talos-1.12.4.iso": 100 << 20}, nil
}

func (emptyProxmox) PCIDevices(context.Context, string) ([]proxmoxapi.PCIDevice, error) {
	return []proxmoxapi.PCIDevice{
		{BDF: "0000:01:00.0", ID: "10de:2204", SubsystemID: "10de:1467", IOMMUGroup: 14},
		{BDF: "0000:02:00.0", ID: "10de:2204", IOMMUGroup: 15},
		{BDF: "0000:03:00.0", ID: "10de:2204", IOMMUGroup: 16},
	}, nil
}

func (emptyProxmox) Find(_ context.Context, vmid int) (proxmoxapi.VM, bool, error) {
	return proxmoxapi.VM{ID: vmid, Host: "pve1"}, true, nil
}

func (y emptyProxmox) Links(_ context.Context, vm proxmoxapi.VM) ([]proxmoxapi.Link, error) {
	for _, n := range y.plan.Nodes() {
		if n.VMID == vm.ID {
			return []proxmoxapi.Link{{
				Name: "ens18", MAC: n.MAC,
				Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 9, byte(n.VMID % 100)})},
			}}, nil
		}
	}

	return nil, nil
}

// inYard registers a stack on two hosts with an empty Proxmox VE and returns its resources and its outputs.
func inYard(t *testing.T, shared bool, change func(*Config)) (map[string]registered, map[string]any) {
	t.Helper()

	config := testConfig()
	config.Cluster.Name = "c"
	config.Proxmox.Hosts = []spec.Host{{Name: "pve1"}, {Name: "pve2"}}
	config.Image = spec.Image{}
	config.Network = spec.Network{CIDR: "10.0.0.0/16", Gateway: "10.0.0.1"}
	config.Pools = map[string]spec.Pool{
		"control": {Role: spec.RoleControlPlane, Count: new(1), Addresses: "10.0.0.11"},
		"worker":  {Role: spec.RoleWorker, Count: new(3), Addresses: "10.0.0.21-29"},
	}
	change(&config)

	p, err := config.Plan()
	require.NoError(t, err)

	exported := make(chan map[string]any, 1)
	resources := record(t, func(ctx *pulumi.Context) error {
		d, err := deployTo(ctx, config, p, emptyProxmox{plan: p, shared: shared})
		if err != nil {
			return err
		}

		d.Outputs.ToMapOutput().ApplyT(func(outputs map[string]any) error {
			// As another program would read them.
			text, err := json.Marshal(outputs)
			if err != nil {
				return err
			}

			var plain map[string]any

			err = json.Unmarshal(text, &plain)
			exported <- withoutNulls(plain).(map[string]any)

			return err
		})

		return nil
	})

	return resources, <-exported
}

// withoutNulls is a value as the SDK sends it: entries of a map without a value are left out.
func withoutNulls(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, entry := range v {
			if entry == nil {
				delete(v, key)
			} else {
				v[key] = withoutNulls(entry)
			}
		}
	case []any:
		for i := range v {
			v[i] = withoutNulls(v[i])
		}
	}

	return value
}

// namesOf are the names of the resources of a type.
func namesOf(resources map[string]registered, token string) []string {
	var found []string

	for name, r := range resources {
		if r.token == token {
			found = append(found, name)
		}
	}

	slices.Sort(found)

	return found
}

const (
	fileToken      = "proxmoxve:Download/file:File"
	schematicToken = "talos:imageFactory/schematic:Schematic"
	vmToken        = "proxmoxve:VM/virtualMachine:VirtualMachine"
	configToken    = "talos:machine/configurationApply:ConfigurationApply"
	mappingToken   = "proxmoxve:Hardware/mapping/pci:Pci"
)

// TestImagesPerHost: what nodes share is fetched once per host, or once where the hosts share the datastore.
func TestImagesPerHost(t *testing.T) {
	for shared, want := range map[bool][]string{false: {"c-image-pve1", "c-image-pve2"}, true: {"c-image"}} {
		resources, _ := inYard(t, shared, func(*Config) {})

		assert.Equal(t, want, namesOf(resources, fileToken))
		assert.Equal(t, []string{"c-schematic"}, namesOf(resources, schematicToken))

		for _, name := range want {
			r := resources[name]
			assert.Equal(t, []string{"c-schematic"}, r.deps)
			assert.Equal(t, []string{"c-image-offered"}, r.hooks)
			assert.Equal(t, []string{"nodeName"}, r.ignored)
			assert.Equal(t, "c", r.parent)
			assert.True(t, strings.HasSuffix(r.inputs["url"].StringValue(), "/v1.12.4/nocloud-amd64.iso"), r.inputs["url"])
		}

		for _, name := range namesOf(resources, vmToken) {
			vm := resources[name]
			assert.Equal(t, []string{"c-vm-announced", "c-vmid-free", "c-image-whole"}, vm.hooks)
			assert.Contains(t, vm.ignored, "cdrom")
			assert.True(t, vm.inputs["cdrom"].ObjectValue()["enabled"].BoolValue())
			assert.Equal(t, "ide2", vm.inputs["cdrom"].ObjectValue()["interface"].StringValue())

			drive := vm.inputs["initialization"].ObjectValue()
			assert.Equal(t, "ide0", drive["interface"].StringValue())
			assert.Equal(t, "10.0.0.1",
				drive["ipConfigs"].ArrayValue()[0].ObjectValue()["ipv4"].ObjectValue()["gateway"].StringValue())
		}

		for _, name := range namesOf(resources, configToken) {
			assert.Equal(t, []string{"c-node-answering", "c-node-adopted", "c-iso-detached", "c-node-configured"},
				resources[name].hooks)
		}
	}
}

// TestImagesPerNode: an image with the node's address is the node's own, and so is its schematic.
func TestImagesPerNode(t *testing.T) {
	resources, _ := inYard(t, true, func(c *Config) {
		c.Image = spec.Image{Platform: spec.PlatformMetal, Factory: spec.FactoryImage{URL: "http://factory.lan"}}
	})

	assert.Equal(t, []string{"c-control-1-image", "c-worker-1-image", "c-worker-2-image", "c-worker-3-image"},
		namesOf(resources, fileToken))
	assert.Equal(t, []string{
		"c-control-1-schematic", "c-worker-1-schematic", "c-worker-2-schematic",
		"c-worker-3-schematic",
	}, namesOf(resources, schematicToken))
	assert.Equal(t, "c-worker-2", resources["c-worker-2-image"].parent)
	assert.Equal(t, "http://factory.lan", resources["c-talos"].inputs["imageFactoryUrl"].StringValue())
	assert.NotContains(t, resources["c-worker-2-vm"].inputs, "initialization")
}

// TestSecretSchematic: kernel arguments with a token are secret in the schematic that has them.
func TestSecretSchematic(t *testing.T) {
	for arg, secret := range map[string]bool{
		"siderolink.api=https://omni.lan:8090?jointoken=abc": true, "console=ttyS0": false,
	} {
		resources, _ := inYard(t, false, func(c *Config) {
			c.Image = spec.Image{Factory: spec.FactoryImage{KernelArgs: []string{arg}}}
		})
		assert.Equal(t, secret, resources["c-schematic"].inputs["schematic"].ContainsSecrets(), arg)
	}
}

// TestImportedDisk: a disk image becomes the system disk, over SSH, and its options are the program's.
func TestImportedDisk(t *testing.T) {
	resources, _ := inYard(t, false, func(c *Config) {
		c.Image = spec.Image{Factory: spec.FactoryImage{Format: spec.FormatDisk}}
		c.Proxmox.SSH = &spec.SSH{
			Username: "root", Port: 2222,
			Addresses: map[string]string{"pve1": "10.0.0.2", "pve2": "10.0.0.3"},
		}
		c.SSHPrivateKey = "KEY"
	})

	file := resources["c-image-pve1"].inputs
	assert.Equal(t, "zst", file["decompressionAlgorithm"].StringValue())
	assert.True(t, strings.HasSuffix(file["fileName"].StringValue(), ".img"))

	ssh := resources["c-proxmox"].inputs["ssh"]
	assert.True(t, ssh.ContainsSecrets())

	vm := resources["c-worker-1-vm"]
	disk := vm.inputs["disks"].ArrayValue()[0].ObjectValue()
	assert.Equal(t, "c-image-pve1-id", strings.Replace(disk["fileId"].StringValue(), "pve2", "pve1", 1))
	assert.Equal(t, "raw", disk["fileFormat"].StringValue())
	assert.Contains(t, vm.ignored, "disks[0].fileId")
	assert.Equal(t, "none", vm.inputs["cdrom"].ObjectValue()["fileId"].StringValue())
	assert.Equal(t, []string{"c-node-answering", "c-node-adopted", "c-node-configured"},
		resources["c-worker-1-config"].hooks)
}

// TestReportedByAgent: everything that needs an address waits for the one that the guest agent reports.
func TestReportedByAgent(t *testing.T) {
	resources, outputs := inYard(t, false, func(c *Config) {
		c.Image = spec.Image{
			Source: spec.SourceISO, ISO: spec.ISOImage{Volume: "local:iso/talos-1.12.4.iso"},
			Schematic: &spec.Schematic{Extensions: []string{"qemu-guest-agent"}},
		}
		c.Network = spec.Network{CIDR: "10.0.0.0/16", Addressing: spec.AddressingAgent}
		c.Lifecycle.BootstrapWaitsForWorkers = true

		for name, pool := range c.Pools {
			pool.Addresses = ""
			c.Pools[name] = pool
		}
	})

	assert.Equal(t, "10.0.9.1", resources["c-control-1-config"].inputs["node"].StringValue())
	assert.Equal(t, "10.0.9.2", resources["c-worker-2-config"].inputs["endpoint"].StringValue())
	assert.Equal(t, []any{"10.0.9.1"}, outputs[contract.OutputControlPlaneEndpoints])
	assert.Equal(t, map[string]any{
		"c-control-1": "10.0.9.1", "c-worker-1": "10.0.9.1", "c-worker-2": "10.0.9.2",
		"c-worker-3": "10.0.9.3",
	}, outputs[contract.OutputNodeIPMap])
	assert.Subset(t, resources["c-kubeconfig"].deps,
		[]string{"c-worker-1-config", "c-worker-2-config", "c-worker-3-config"})
	assert.Equal(t, "5m0s", resources["c-control-1-vm"].inputs["agent"].ObjectValue()["timeout"].StringValue())
}

func (emptyProxmox) FirewallOn(context.Context) (bool, error) { return true, nil }

// TestFirewall: each VM lets in what its pool needs before it is closed for everything else.
func TestFirewall(t *testing.T) {
	resources, _ := inYard(t, true, func(c *Config) { c.Firewall.Enabled = new(true) })

	rules := namesOf(resources, "proxmoxve:Network/firewallRules:FirewallRules")
	assert.Equal(t, []string{"c-control-1-rules", "c-worker-1-rules", "c-worker-2-rules", "c-worker-3-rules"}, rules)

	for _, name := range rules {
		node := strings.TrimSuffix(name, "-rules")
		assert.Equal(t, node, resources[name].parent)
		assert.Equal(t, []string{node + "-vm"}, resources[name].deps)
		assert.Equal(t, []string{name, node + "-vm"}, resources[node+"-firewall"].deps)
		assert.Equal(t, "DROP", resources[node+"-firewall"].inputs["inputPolicy"].StringValue())
		assert.True(t, resources[node+"-vm"].inputs["networkDevices"].ArrayValue()[0].ObjectValue()["firewall"].BoolValue())
	}

	comments := func(name string) []string {
		var found []string
		for _, r := range resources[name].inputs["rules"].ArrayValue() {
			found = append(found, r.ObjectValue()["comment"].StringValue())
		}

		return found
	}

	assert.Equal(t, []string{"apid", "kubelet", "icmp", "flannel-vxlan"}, comments("c-worker-1-rules"))
	assert.Equal(t, []string{"apid", "kubelet", "icmp", "flannel-vxlan", "trustd", "kube-apiserver", "etcd"},
		comments("c-control-1-rules"))
}

// TestNextSteps: the commands are whole for each way to reach the cluster, and the credentials say how long they are good.
func TestNextSteps(t *testing.T) {
	const talosctl = " --endpoints 10.0.0.11 --nodes 10.0.0.11,10.0.0.21,10.0.0.22,10.0.0.23 version"

	for name, test := range map[string]struct {
		endpoint string
		change   func(*Config)
		want     map[string]any
	}{
		"the first control plane, no files": {"https://10.0.0.11:6443", func(*Config) {}, map[string]any{
			"get_kubeconfig":  "(umask 077; pulumi stack output --stack dev kubeconfig --show-secrets > kubeconfig)",
			"get_talosconfig": "(umask 077; pulumi stack output --stack dev talosconfig --show-secrets > talosconfig)",
			"kubectl":         "kubectl --kubeconfig ./kubeconfig --server https://10.0.0.11:6443 get nodes -o wide",
			"talosctl":        "talosctl --talosconfig ./talosconfig" + talosctl,
		}},
		"a virtual address, one file": {"https://10.0.0.9:6443", func(c *Config) {
			c.Cluster.Endpoint = spec.Endpoint{Mode: spec.EndpointVIP, Address: "10.0.0.9"}
			c.Outputs.Files = &spec.Files{Dir: "./talos", Write: []spec.File{"talosconfig"}}
		}, map[string]any{
			"get_kubeconfig": "(umask 077; pulumi stack output --stack dev kubeconfig --show-secrets > kubeconfig)",
			"kubectl":        "kubectl --kubeconfig ./kubeconfig --server https://10.0.0.9:6443 get nodes -o wide",
			"talosctl":       "talosctl --talosconfig ./talos/talosconfig" + talosctl,
		}},
		"a name, both files": {"https://api.example.com:6443", func(c *Config) {
			c.Cluster.Endpoint = spec.Endpoint{Mode: spec.EndpointDNS, Host: "api.example.com"}
			c.Outputs.Files = &spec.Files{Dir: "it's here", Write: []spec.File{"talosconfig", "kubeconfig"}}
		}, map[string]any{
			"kubectl":  `kubectl --kubeconfig './it'\''s here/kubeconfig' --server https://api.example.com:6443 get nodes -o wide`,
			"talosctl": `talosctl --talosconfig './it'\''s here/talosconfig'` + talosctl,
		}},
		"kube-vip with IPv6": {"https://[fd00::9]:6443", func(c *Config) {
			c.Network = spec.Network{CIDR: "fd00::/64", Gateway: "fe80::1"}
			c.Pools = map[string]spec.Pool{
				"control": {Role: spec.RoleControlPlane, Count: new(1), Addresses: "fd00::11"},
				"worker":  {Role: spec.RoleWorker, Count: new(3), Addresses: "fd00::21-fd00::29"},
			}
			c.Cluster.Endpoint = spec.Endpoint{Mode: spec.EndpointKubeVIP, Address: "fd00::9", Interface: "eth0"}
			c.Cluster.Patches = []spec.Patch{{
				Path: "cluster.patches[0]",
				Text: "cluster: {network: {podSubnets: [fd00:10:244::/56], serviceSubnets: [fd00:10:96::/112]}}",
			}}
			c.Outputs.Files = &spec.Files{Write: []spec.File{"talosconfig", "kubeconfig"}}
		}, map[string]any{
			"kubectl":  "kubectl --kubeconfig ./talos/kubeconfig --server 'https://[fd00::9]:6443' get nodes -o wide",
			"talosctl": "talosctl --talosconfig ./talos/talosconfig" + strings.ReplaceAll(talosctl, "10.0.0.", "fd00::"),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			_, outputs := inYard(t, false, test.change)

			test.want["contract"] = "pulumi stack output --stack dev talos_bootstrap_contract --json"
			assert.Equal(t, test.want, outputs[contract.OutputNextSteps])
			assert.Equal(t, map[string]any{
				"host": test.endpoint, "cluster_ca_certificate": "CA", "client_certificate": "CRT", "client_key": "KEY",
			}, outputs[contract.OutputKubernetesCredentials])
			assert.Equal(t, map[string]any{"talosconfig": "2031-05-04T03:02:01Z"}, outputs[contract.OutputCredentialsExpiry])
		})
	}
}

// TestExternal: machines and the contract, and nothing of a cluster.
func TestExternal(t *testing.T) {
	resources, outputs := inYard(t, false, func(c *Config) {
		c.Cluster.Bootstrap, c.Cluster.Versions.Kubernetes = spec.BootstrapExternal, ""
		c.Network.Addressing = spec.AddressingReported
		c.Network.Gateway = ""
		c.Outputs.Legacy = true
		worker := c.Pools["worker"]
		worker.Addresses = ""
		c.Pools["worker"] = worker
	})

	tokens := map[string]int{}
	for _, r := range resources {
		tokens[r.token]++
	}

	assert.Equal(t, map[string]int{
		"pulumi:providers:proxmoxve": 1, "pulumi:providers:talos": 1, "talos-proxmox:index:TalosCluster": 1,
		"talos-proxmox:index:TalosNode": 4,
		vmToken:                         4, fileToken: 2, schematicToken: 1,
	}, tokens)

	assert.NotContains(t, outputs, contract.OutputKubeconfig)
	assert.NotContains(t, outputs, contract.OutputTalosconfig)
	assert.Equal(t, []any{"10.0.0.11"}, outputs[contract.OutputControlPlaneIPs])
	assert.Equal(t, []any{}, outputs[contract.OutputWorkerIPs])
	assert.Equal(t, []any{501.0, 502.0, 503.0}, outputs[contract.OutputWorkerVMIDs])
	assert.Equal(t, []any{}, outputs[contract.OutputGPUWorkerPCIBDFs])

	cluster, err := contract.Decode(outputs[contract.OutputContract])
	require.NoError(t, err)
	assert.Equal(t, contract.Versions{Talos: "v1.12.4"}, cluster.Versions)
	assert.Nil(t, cluster.BootstrapNodes.Workers[0].IP)
	assert.Equal(t, "10.0.0.11", *cluster.BootstrapNodes.ControlPlane[0].IP)
}

func withGPUs(keys ...string) func(*Config) {
	return func(c *Config) {
		gpus := map[string]spec.GPUSpec{}
		for _, key := range keys {
			gpus[key] = spec.GPUSpec{BDF: "0000:0" + key + ":00.0", NodeSpec: spec.NodeSpec{Host: "pve1"}}
		}

		c.Pools["gpu"] = spec.Pool{
			Role: spec.RoleWorker, Addresses: "10.0.0.31-39", GPUs: gpus,
			Image: spec.PoolImage{Extensions: []string{"nvidia-container-toolkit-lts"}},
		}
	}
}

// TestGPUPool: a mapping and a node for each GPU, with what the provider must be told; the driver is in the pool's
// image only.
func TestGPUPool(t *testing.T) {
	resources, outputs := inYard(t, true, withGPUs("1", "2", "3"))

	assert.Equal(t, []string{"c-gpu-1-gpu", "c-gpu-2-gpu", "c-gpu-3-gpu"}, namesOf(resources, mappingToken))
	assert.Equal(t, []string{"c-gpu"}, namesOf(resources, "talos-proxmox:index:GPUWorkerPool"))
	assert.Equal(t, "c-gpu", resources["c-gpu-2"].parent)

	device := resources["c-gpu-1-gpu"].inputs["maps"].ArrayValue()[0].ObjectValue().Mappable()
	assert.Equal(t, map[string]any{
		"node": "pve1", "path": "0000:01:00.0", "id": "10de:2204", "subsystemId": "10de:1467",
		"iommuGroup": 14.0,
	}, device)

	vm := resources["c-gpu-1-vm"].inputs
	assert.Equal(t, "q35", vm["machine"].StringValue())
	assert.Equal(t, map[string]any{
		"device": "hostpci0", "mapping": "c-gpu-1", "pcie": true, "rombar": true,
		"xvga": false,
	},
		vm["hostpcis"].ArrayValue()[0].ObjectValue().Mappable())
	assert.NotContains(t, vm["memory"].ObjectValue(), "floating")

	// The images of the pool and of the others.
	images := namesOf(resources, fileToken)
	require.Len(t, images, 2)
	assert.Equal(t, "c-image", images[1])
	assert.Equal(t, resources[images[0]].deps, []string{strings.TrimSuffix(images[0], "-image") + "-schematic"})

	groups := outputs[contract.OutputBootstrapNodes].(map[string]any)
	assert.Equal(t, map[string]any{
		"name": "c-gpu-2", "vmid": 602.0, "node": "pve1", "ip": "10.0.0.32",
		"gpu_pci_bdf": "0000:02:00.0",
	}, groups["gpu_workers"].([]any)[1])
}

// TestGPURemoved: the first of three goes, and the others are what they were.
func TestGPURemoved(t *testing.T) {
	before, _ := inYard(t, true, withGPUs("1", "2", "3"))
	after, _ := inYard(t, true, withGPUs("2", "3"))

	var gone []string

	for _, name := range slices.Sorted(maps.Keys(before)) {
		was := before[name]

		is, there := after[name]
		if !there {
			gone = append(gone, name)

			continue
		}

		if name == "c-gpu" {
			continue // the pool says which GPUs it has
		}

		// A running machine keeps its identity, and stays on its host wherever it would be put now.
		for _, ignored := range []resource.PropertyKey{"smbios", "description", "nodeName"} {
			delete(was.inputs, ignored)
			delete(is.inputs, ignored)
		}

		assert.Equal(t, was, is, name)
	}

	assert.Equal(t, []string{"c-gpu-1", "c-gpu-1-config", "c-gpu-1-gpu", "c-gpu-1-vm"}, gone)
	assert.Len(t, after, len(before)-4)
}

// TestRawGPU: root may pass a GPU by its address; no mapping is made then.
func TestRawGPU(t *testing.T) {
	resources, _ := inYard(t, true, func(c *Config) {
		withGPUs("1")(c)
		c.Proxmox.TokenID, c.ProxmoxTokenSecret, c.Proxmox.Username, c.ProxmoxPassword = "", "", "root@pam", "PASSWORD"
		gpu := c.Pools["gpu"].GPUs["1"]
		gpu.Raw = true
		c.Pools["gpu"].GPUs["1"] = gpu
	})

	assert.Empty(t, namesOf(resources, mappingToken))
	assert.Equal(t, "0000:01:00.0",
		resources["c-gpu-1-vm"].inputs["hostpcis"].ArrayValue()[0].ObjectValue()["id"].StringValue())
}

// TestSchematics: the outputs name what the Image Factory has made for each node, and nothing for images that carry
// nothing.
func TestSchematics(t *testing.T) {
	_, outputs := inYard(t, false, func(*Config) {})
	ids := outputs[contract.OutputSchematics].(map[string]any)
	assert.NotEmpty(t, ids)

	for name, id := range ids {
		assert.Equal(t, "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba", id, name)
	}

	_, outputs = inYard(t, false, func(c *Config) { c.Image.Factory.Extensions = []string{"qemu-guest-agent"} })
	for name, id := range outputs[contract.OutputSchematics].(map[string]any) {
		assert.NotEqual(t, ids[name], id, name)
	}

	config := testConfig()
	p, err := planner.Plan(config.Spec)
	require.NoError(t, err)

	found, err := schematics(p)
	require.NoError(t, err)
	assert.Empty(t, found, "templates of which nothing is set")
}
