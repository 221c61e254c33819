package rules

import (
	"encoding/base64"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/storage"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"talos-proxmox/components/tokens"
)

const (
	pem     = "-----BEGIN EC PRIVATE KEY-----\nhush\n"
	remedy  = "; take it from a secret configuration key, or wrap it in pulumi.ToSecret"
	kubecfg = pulumi.String("apiVersion: v1\nkind: Config\n")
)

// described is a VM with a text that people read.
func described(name, text string) pulumi.RunFunc {
	return machineOf(name, func(a *vm.VirtualMachineArgs) { a.Description = pulumi.String(text) })
}

// component registers one that is unknown, with inputs of its own.
func component(inputs pulumi.Map) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error {
		return ctx.RegisterComponentResourceV2("other:index:Cluster", "other", inputs, &pulumi.ResourceState{})
	}
}

// outputs stands for the stack, which the mocks do not register.
func outputs(outputs pulumi.Map) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error {
		return ctx.RegisterComponentResourceV2(tokens.Stack, "project-dev", outputs, &pulumi.ResourceState{})
	}
}

var secretCases = []ruleCase{
	{
		rule: "no-plain-secrets", name: "secrets that are marked, paths, and things that only look alike",
		program: all(
			component(pulumi.Map{
				"password":   pulumi.ToSecret(pulumi.String("hush")),
				"nested":     pulumi.ToSecret(pulumi.StringMap{"key": pulumi.String(pem)}),
				"kubeconfig": pulumi.String("~/.kube/config"), "secretName": pulumi.String("registry"),
				"authKey": pulumi.String(""),
			}),
			described("certificate", base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE-----\nMII"))),
			described("id", "pulumi@pve!talos"),
		),
	},
	{
		rule: "no-plain-secrets", name: "each form of secret, in whatever input",
		program: all(
			component(pulumi.Map{
				"password": pulumi.String("hush"), "nodes": pulumi.Array{pulumi.Map{"auth_key": pulumi.String("hush")}},
				"kubeconfig":           kubecfg,
				"machineConfiguration": pulumi.String("{machine: {type: worker}}"),
			}),
			applied("config", "node", func(a *machine.ConfigurationApplyArgs) {
				a.ConfigPatches = pulumi.StringArray{
					pulumi.String("a: b"),
					pulumi.String("machine:\n  token: abcdef.0123456789abcdef"),
				}
				a.ClientConfiguration = machine.ClientConfigurationArgs{
					CaCertificate: pulumi.String("x"), ClientCertificate: pulumi.String("x"), ClientKey: pulumi.String("hush"),
				}
			}),
			uploaded("snippet", storage.FileArgs{SourceRaw: storage.FileSourceRawArgs{
				FileName: pulumi.String("user-data"), Data: pulumi.String("key: " + base64.StdEncoding.EncodeToString([]byte(pem))),
			}}),
			described("age", "AGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQQQQ"),
			described("github", "ghp_0123456789abcdefghijklmnopqrstuvwxyz"),
			described("pem", pem),
			described("proxmox", "pulumi@pve!talos=01234567-89ab-cdef-0123-456789abcdef"),
			described("pulumi", "pul-0123456789abcdef0123456789abcdef01234567"),
			described("registry", "config:\n  auth:\n    username: me\n    password: hush"),
			described("tailscale", "tskey-auth-abc123"),
		),
		want: []string{
			"other.kubeconfig: must be secret, for it holds a kubeconfig" + remedy,
			"other.machineConfiguration: must be secret, for it holds a machine configuration" + remedy,
			"other.nodes[0].auth_key: must be secret, for it holds an authentication key" + remedy,
			"other.password: must be secret, for it holds a password" + remedy,
			"snippet.sourceRaw.data: must be secret, for it holds a private key" + remedy,
			"age.description: must be secret, for it holds an age key" + remedy,
			"github.description: must be secret, for it holds a GitHub token" + remedy,
			"pem.description: must be secret, for it holds a private key" + remedy,
			"proxmox.description: must be secret, for it holds the secret of a Proxmox VE API token" + remedy,
			"pulumi.description: must be secret, for it holds a Pulumi access token" + remedy,
			"registry.description: must be secret, for it holds the credentials of a registry" + remedy,
			"tailscale.description: must be secret, for it holds a Tailscale key" + remedy,
			"config.clientConfiguration.clientKey: must be secret, for it holds a private key" + remedy,
			"config.configPatches[1]: must be secret, for it holds a Talos or Kubernetes token" + remedy,
		},
	},
	{
		rule: "no-plain-outputs", name: "a secret kubeconfig, and inputs that are another rule's",
		program: all(outputs(pulumi.Map{"kubeconfig": pulumi.ToSecret(kubecfg)}), described("pem", pem)),
	},
	{
		rule: "no-plain-outputs", name: "a kubeconfig that is not secret",
		program: outputs(pulumi.Map{"kubeconfig": kubecfg}),
		want:    []string{"project-dev.kubeconfig: must be secret, for it holds a kubeconfig" + remedy},
	},
}
