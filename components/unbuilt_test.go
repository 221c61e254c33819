package components

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"talos-proxmox/components/plan"
)

// builtSpec is what these components carry out whole.
func builtSpec() plan.Spec {
	return plan.Spec{
		Hosts:   []plan.Host{{Name: "a"}, {Name: "b"}},
		Cluster: plan.Cluster{Name: "c", Versions: plan.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"}, CNI: plan.CNI{Name: plan.NoCNI}},
		Image:   plan.Image{Source: plan.Template, Template: plan.TemplateImage{Control: "9000", Worker: "9000", GPUWorker: "9000"}},
		Network: plan.Network{CIDR: "10.0.0.0/24", VLAN: 20},
		Pools: map[string]plan.Pool{
			"control": {Role: plan.ControlPlane, Count: new(1), Addresses: "10.0.0.11", Shape: plan.Shape{
				Cores: new(4), OnBoot: new(false), Labels: map[string]string{"a": "b"}, Tags: []string{"x"},
				Disk: plan.DiskOptions{Datastore: new("tank"), Interface: new("virtio0")},
			}},
		},
	}
}

func planOf(t *testing.T, s plan.Spec) *plan.Plan {
	t.Helper()

	p, err := plan.New(s)
	if err != nil {
		t.Fatal(err)
	}

	return p
}

func TestWhatIsBuiltIsNotRefused(t *testing.T) {
	if problems := unbuilt(planOf(t, builtSpec())); len(problems) > 0 {
		t.Error(problems)
	}
}

// TestUnbuilt asks for everything that can be planned and not be carried out yet: nothing of it is passed over.
func TestUnbuilt(t *testing.T) {
	const rule = "is not built yet: it can be planned, but not carried out"

	all := builtSpec()
	all.Given.MachineSecrets = true
	all.Given.TailscaleKey = true
	all.Cluster.Endpoint = plan.Endpoint{Mode: plan.DNS, Host: "api.example.com"}
	all.Cluster.CNI = plan.CNI{Name: plan.Cilium, Version: "1.18.4"}
	all.Image.Platform = plan.NoCloud
	all.Image.Schematic = &plan.Schematic{Extensions: []string{"tailscale"}}
	all.Network.Addressing, all.Network.MTU, all.Network.Gateway = plan.Static, 9000, "10.0.0.1"
	all.Tailscale = &plan.Tailscale{}
	all.Firewall.Enabled = new(true)
	all.Lifecycle.BootstrapWaitsForWorkers = true
	all.Outputs = plan.Outputs{Legacy: true, Files: &plan.Files{Dir: "talos", Write: []plan.File{"kubeconfig"}}}
	all.Pools["gpu"] = plan.Pool{
		Role: plan.Worker, Addresses: "10.0.0.31", GPUs: map[string]plan.GPUSpec{"1": {BDF: "0000:01:00.0", NodeSpec: plan.NodeSpec{Host: "a"}}},
		Shape: plan.Shape{
			NUMA: new(true), Firmware: new("ovmf"), SCSIController: new("virtio-scsi-single"), TPM: new(true), Serial: new(true),
			Protection: new(true), Startup: &plan.Startup{UpDelaySeconds: 1}, ResourcePool: new("p"), HAGroup: new("g"),
			ExtraDisks: []plan.ExtraDisk{{SizeGiB: 10}}, NICs: []plan.NIC{{}, {}},
			Disk: plan.DiskOptions{
				Cache: new("writeback"), AIO: new("threads"), Discard: new(false), SSD: new(true), IOThread: new(true), Backup: new(false), Replicate: new(false),
			},
		},
	}
	all.Pools["worker"] = plan.Pool{Role: plan.Worker, Count: new(1), Addresses: "10.0.0.21", Shape: plan.Shape{Ballooning: new(true), Machine: new("i440fx")}}

	external := builtSpec()
	external.Cluster.Bootstrap, external.Cluster.Versions.Kubernetes, external.Cluster.CNI = plan.External, "", plan.CNI{}
	external.Pools["control"] = plan.Pool{Role: plan.ControlPlane, Count: new(1), Addresses: "10.0.0.11"}

	factory := builtSpec()
	factory.Image, factory.Network.Gateway = plan.Image{}, "10.0.0.1"

	leave := "leave it out"
	problem := func(path, value, remedy string) plan.Problem {
		return plan.Problem{Path: path, Rule: rule, Value: value, Remedy: remedy}
	}

	for name, test := range map[string]struct {
		spec plan.Spec
		want plan.Problems
	}{
		"external": {external, plan.Problems{problem("cluster.bootstrap", "external", "use pulumi")}},
		"factory": {factory, plan.Problems{
			problem("image.source", "factory", "use template"), problem("image.platform", "nocloud", "use metal"),
			problem("network.addressing", "static", "use reserved"),
		}},
		"all": {all, plan.Problems{
			problem("cluster.endpoint.mode", "dns", "use firstControlPlane"), problem("cluster.cni.name", "cilium", "use flannel or none"),
			problem("image.platform", "nocloud", "use metal"), problem("network.addressing", "static", "use reserved"),
			problem("tailscale", "set", leave), problem("firewall.enabled", "true", "set it to false"), problem("machineSecrets", "set", leave),
			problem("lifecycle.bootstrapWaitsForWorkers", "true", leave), problem("outputs.files", "set", leave), problem("outputs.legacy", "true", leave),
			problem("pools.control.nics[0].mtu", "9000", leave), problem("pools.control.nics[0].firewall", "true", leave),
			problem("pools.gpu.gpus", "set", leave), problem("pools.gpu.numa", "true", leave), problem("pools.gpu.machine", "q35", leave),
			problem("pools.gpu.firmware", "ovmf", leave), problem("pools.gpu.scsiController", "virtio-scsi-single", leave),
			problem("pools.gpu.tpm", "true", leave), problem("pools.gpu.serial", "true", leave), problem("pools.gpu.protection", "true", leave),
			problem("pools.gpu.startup", "set", leave), problem("pools.gpu.resourcePool", "p", leave), problem("pools.gpu.haGroup", "g", leave),
			problem("pools.gpu.extraDisks", "1", leave), problem("pools.gpu.disk.cache", "writeback", leave), problem("pools.gpu.disk.aio", "threads", leave),
			problem("pools.gpu.disk.discard", "false", leave), problem("pools.gpu.disk.ssd", "true", leave), problem("pools.gpu.disk.iothread", "true", leave),
			problem("pools.gpu.disk.backup", "false", leave), problem("pools.gpu.disk.replicate", "false", leave), problem("pools.gpu.nics", "2", leave),
			problem("pools.gpu.nics[0].mtu", "9000", leave), problem("pools.gpu.nics[0].firewall", "true", leave),
			problem("pools.worker.ballooning", "true", leave), problem("pools.worker.machine", "i440fx", leave),
			problem("pools.worker.nics[0].mtu", "9000", leave), problem("pools.worker.nics[0].firewall", "true", leave),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, unbuilt(planOf(t, test.spec))); diff != "" {
				t.Error(diff)
			}
		})
	}
}
