package rules

import (
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/download"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/storage"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"talos-proxmox/components/tokens"
)

// cluster registers the component under the inputs that it has.
func cluster(talos, kubernetes string) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error {
		return ctx.RegisterComponentResourceV2(tokens.TalosCluster, "atlas", pulumi.Map{
			"talosVersion": pulumi.String(talos), "kubernetesVersion": pulumi.String(kubernetes),
		}, &pulumi.ResourceState{})
	}
}

func machineSecrets(args machine.SecretsArgs) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error {
		_, err := machine.NewSecrets(ctx, "secrets", &args)

		return err
	}
}

// configured applies a machine configuration and patches.
func configured(configuration string, patches ...string) pulumi.RunFunc {
	return applied("config", "10.0.0.11", func(a *machine.ConfigurationApplyArgs) {
		a.MachineConfigurationInput = pulumi.ToSecret(pulumi.String(configuration)).(pulumi.StringOutput)
		a.ConfigPatches = pulumi.ToSecret(pulumi.ToStringArray(patches)).(pulumi.StringArrayOutput)
	})
}

func fromURL(url string) download.FileArgs { return download.FileArgs{Url: pulumi.String(url)} }

func disk(fileID string) func(*vm.VirtualMachineArgs) {
	return func(a *vm.VirtualMachineArgs) {
		a.Disks = vm.VirtualMachineDiskArray{vm.VirtualMachineDiskArgs{
			Interface: pulumi.String("scsi0"),
			FileId:    pulumi.String(fileID),
		}}
		a.Cdrom = vm.VirtualMachineCdromArgs{FileId: pulumi.String(fileID)}
	}
}

var versionCases = []ruleCase{
	{
		rule: "pinned-versions", name: "exact versions, tags and digests",
		program: all(
			cluster("v1.12.4", "v1.35.0-rc.1"),
			machineSecrets(machine.SecretsArgs{TalosVersion: pulumi.String("v1.12")}),
			configured("machine:\n  install: {image: ghcr.io/siderolabs/installer:v1.12.4}\n---\nkind: X\nimage: "+
				"registry:5000/a@sha256:0123",
				`{"machine": {"kubelet": {"image": ""}}}`),
		),
	},
	{
		rule: "pinned-versions", name: "Kubernetes belongs to others", program: cluster("v1.12.4", ""),
	},
	{
		rule: "pinned-versions", name: "versions that move",
		program: all(
			cluster("v1.12", "latest"),
			machineSecrets(machine.SecretsArgs{}),
			configured("machine:\n  install: {image: ghcr.io/siderolabs/installer}\n---\nkind: X\nimage: registry:5000/a:latest",
				`{"machine": {"pods": [{"spec": {"containers": [{"image": "busybox:stable"}]}}]}}`),
		),
		want: []string{
			"atlas.talosVersion: must be an exact version (given: v1.12); write it like v1.12.4",
			"atlas.kubernetesVersion: must be an exact version (given: latest); write it like v1.34.2",
			"config.machineConfigurationInput: must name images with an exact tag or a digest (given: " +
				"ghcr.io/siderolabs/installer); add the version after a colon",
			"config.machineConfigurationInput: must name images with an exact tag or a digest (given: " +
				"registry:5000/a:latest); add the version after a colon",
			"config.configPatches: must name images with an exact tag or a digest (given: busybox:stable); add the version " +
				"after a colon",
			"secrets.talosVersion: must be an exact version; set the version that the cluster begins with",
		},
	},
	{
		rule: "pinned-images", name: "a version in the address, a checksum, a file of the machine's own",
		program: all(
			downloaded("factory", fromURL("https://factory.talos.dev/image/376567988/v1.12.4/metal-amd64.iso")),
			downloaded("checked", download.FileArgs{
				Url:      pulumi.String("https://example.org/talos.iso"),
				Checksum: pulumi.String("abc"),
			}),
			uploaded("local", storage.FileArgs{SourceFile: storage.FileSourceFileArgs{Path: pulumi.String(
				"./latest/user-data")}}),
			machineOf("vm", disk("local:iso/talos-1.12.4.iso")),
		),
	},
	{
		rule: "pinned-images", name: "addresses that bring something else tomorrow",
		program: all(
			downloaded("latest", fromURL("https://me:hush@example.org/releases/latest/1.2.3.iso")),
			downloaded("none", fromURL("https://example.org/talos.iso")),
			uploaded("uploaded", storage.FileArgs{SourceFile: storage.FileSourceFileArgs{Path: pulumi.String(
				"https://example.org/current.img")}}),
			machineOf("vm", disk("local:iso/talos-latest.iso")),
		),
		want: []string{
			"latest.url: must name a version (given: https://me:xxxxx@example.org/releases/latest/1.2.3.iso); choose the " +
				"address of one version, or set the file's checksum",
			"none.url: must name a version (given: https://example.org/talos.iso); choose the address of one version, or set " +
				"the file's checksum",
			"uploaded.sourceFile.path: must name a version (given: https://example.org/current.img); choose the address of " +
				"one version, or set the file's checksum",
			"vm.cdrom.fileId: must name the file of one version (given: local:iso/talos-latest.iso); name the version in the " +
				"file's name",
			"vm.disks[0].fileId: must name the file of one version (given: local:iso/talos-latest.iso); name the version in " +
				"the file's name",
		},
	},
	{
		rule: "pinned-images", name: "a version, where checksums are required", settings: `{"requireChecksum": true}`,
		program: downloaded("factory", fromURL("https://factory.talos.dev/image/376567988/v1.12.4/metal-amd64.iso")),
		want: []string{
			"factory.url: must have a checksum (given: https://factory.talos.dev/image/376567988/v1.12.4/metal-amd64.iso); " +
				"set the checksum of the file",
		},
	},
}
