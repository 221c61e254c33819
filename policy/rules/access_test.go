package rules

import (
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/download"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/storage"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

func provider(args proxmoxve.ProviderArgs) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error {
		_, err := proxmoxve.NewProvider(ctx, "pve", &args)

		return err
	}
}

func downloaded(name string, args download.FileArgs) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error {
		args.ContentType, args.DatastoreId, args.NodeName = pulumi.String("iso"), pulumi.String("local"),
			pulumi.String("pve1")
		if args.Url == nil {
			args.Url = pulumi.String("https://factory.talos.dev/image/376567988/v1.12.4/metal-amd64.iso")
		}

		_, err := download.NewFile(ctx, name, &args)

		return err
	}
}

func uploaded(name string, args storage.FileArgs) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error {
		args.DatastoreId, args.NodeName = pulumi.String("local"), pulumi.String("pve1")
		_, err := storage.NewFile(ctx, name, &args)

		return err
	}
}

const endpoint = pulumi.String("https://pve.example.org:8006")

var accessCases = []ruleCase{
	{
		rule: "verify-tls", name: "everything is verified",
		program: all(
			provider(proxmoxve.ProviderArgs{Endpoint: endpoint, Insecure: pulumi.Bool(false), MinTls: pulumi.String("1.2")}),
			downloaded("iso", download.FileArgs{}),
			uploaded("snippet", storage.FileArgs{SourceFile: storage.FileSourceFileArgs{Path: pulumi.String(
				"https://example.org/a")}}),
		),
	},
	{
		rule: "verify-tls", name: "an endpoint on loopback has no way to be listened on",
		program: provider(proxmoxve.ProviderArgs{
			Endpoint: pulumi.String("https://127.3.0.1:8006"),
			Insecure: pulumi.Bool(true),
		}),
	},
	{
		rule: "verify-tls", name: "nothing is",
		program: all(
			provider(proxmoxve.ProviderArgs{
				Endpoint: pulumi.String("http://root:hush@pve.example.org:8006"), Insecure: pulumi.Bool(true),
				MinTls: pulumi.String("1.1"),
			}),
			downloaded("iso", download.FileArgs{Verify: pulumi.Bool(false)}),
			uploaded("snippet", storage.FileArgs{SourceFile: storage.FileSourceFileArgs{
				Path: pulumi.String("https://example.org/a"), Insecure: pulumi.Bool(true),
			}}),
		),
		want: []string{
			"iso.verify: must be true (given: false); trust the server's CA on the hosts",
			"snippet.sourceFile.insecure: must be false (given: true); trust the server's CA where Pulumi runs",
			"pve.endpoint: must begin with https:// (given: http://root:xxxxx@pve.example.org:8006); use the port that " +
				"Proxmox VE serves TLS on, 8006",
			"pve.insecure: must be false (given: true); give the host a trusted certificate, or trust its CA where Pulumi runs",
			"pve.minTls: must be at least 1.2 (given: 1.1); leave it out",
		},
	},
	{
		rule: "no-root-credentials", name: "a token of a user of its own",
		program: provider(proxmoxve.ProviderArgs{
			Endpoint: endpoint, ApiToken: pulumi.String("pulumi@pve!talos=secret"),
			Ssh: proxmoxve.ProviderSshArgs{Username: pulumi.String("pulumi")},
		}),
	},
	{
		rule: "no-root-credentials", name: "root by SSH, where it is allowed", settings: `{"allowSSH": true}`,
		program: provider(proxmoxve.ProviderArgs{
			Endpoint: endpoint,
			Ssh:      proxmoxve.ProviderSshArgs{Username: pulumi.String("root")},
		}),
	},
	{
		rule: "no-root-credentials", name: "root by password, by token and by SSH",
		program: provider(proxmoxve.ProviderArgs{
			Endpoint: endpoint, Username: pulumi.String("root@pam"), ApiToken: pulumi.String("root@pam!talos=hush"),
			Ssh: proxmoxve.ProviderSshArgs{
				Username:   pulumi.String("root"),
				PrivateKey: pulumi.ToSecret(pulumi.String("hush")).(pulumi.StringOutput),
			},
		}),
		want: []string{
			"pve.username: must not be root (given: root@pam); use an API token of a user that has only the role it needs",
			"pve.apiToken: must not be a token of root (given: root@pam!talos); make one for a user that has only the role it needs",
			"pve.ssh.username: must not be root (given: root); use one that may run the provider's commands with sudo, or set " +
				"allowSSH",
		},
	},
}
