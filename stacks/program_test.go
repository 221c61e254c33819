package stacks

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/spec"
	"talos-proxmox/stacks/config"
	"talos-proxmox/stacks/files"
)

// firstConfig is testConfig, with a Proxmox VE that does not answer.
func firstConfig() Config {
	c := testConfig()
	c.Proxmox.Endpoint = "https://127.0.0.1:1"

	return c
}

// secondConfig is a cluster that shares VMIDs and addresses with that of firstConfig, but not its name.
func secondConfig() Config {
	c := firstConfig()
	c.Cluster.Name = "edge"

	return c
}

// apart gives the second cluster VMIDs and addresses of its own.
func apart() Config {
	c := secondConfig()
	c.Pools = map[string]spec.Pool{
		"control": {Role: spec.RoleControlPlane, Count: new(1), VMIDs: "701-709", Addresses: "192.168.10.31-39"},
		"worker":  {Role: spec.RoleWorker, Count: new(1), VMIDs: "711-719", Addresses: "192.168.10.41-49"},
	}

	return c
}

// TestClustersClash: two clusters of one program that share what only one may have are refused before anything is
// registered, whether the program deploys them together or one after the other.
func TestClustersClash(t *testing.T) {
	clashes := []string{
		"cluster edge: pools.control.vmids", "cluster edge: pools.control.addresses",
		"cluster edge: pools.worker.vmids", "cluster edge: pools.worker.addresses",
	}
	elsewhere := secondConfig()
	elsewhere.Proxmox.Endpoint = "https://127.0.0.2:1"
	written := secondConfig()
	written.Proxmox.Endpoint = "HTTPS://127.0.0.1:1/api2/json"
	wrong := apart()
	wrong.Network.CIDR = "nonsense"

	for name, c := range map[string]struct {
		second Config
		want   []string
	}{
		"same VMIDs and addresses":       {secondConfig(), clashes},
		"same name":                      {func() Config { c := apart(); c.Cluster.Name = "k3s-dev"; return c }(), []string{"cluster k3s-dev: cluster.name", "cluster k3s-dev: pools.control.mac", "cluster k3s-dev: pools.worker.mac"}},
		"on another Proxmox VE":          {elsewhere, nil},
		"endpoint in other words":        {written, clashes},
		"own VMIDs and addresses":        {apart(), nil},
		"problem of one names its place": {wrong, []string{"cluster edge: network.cidr"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, together := range []bool{true, false} {
				err := previewOf(t, func(ctx *pulumi.Context) error {
					if together {
						_, err := DeployAll(ctx, []Config{firstConfig(), c.second})

						return err
					}

					if _, err := Deploy(ctx, firstConfig()); err != nil {
						return err
					}

					_, err := Deploy(ctx, c.second)

					return err
				}, together && c.want != nil)

				var problems spec.Problems

				if c.want == nil {
					require.NoError(t, err)

					continue
				}

				if !together && name == "problem of one names its place" {
					require.ErrorContains(t, err, "network.cidr")

					continue
				}

				require.ErrorAs(t, err, &problems)

				var paths []string
				for _, p := range problems {
					paths = append(paths, p.Path)
				}

				assert.Equal(t, c.want, paths)
			}
		})
	}
}

// TestUserDataClashes: hosts keep the user data of K3s nodes by their names, which clusters of one program must not
// share.
func TestUserDataClashes(t *testing.T) {
	clusters := make([]config.Planned, 2)

	for i, c := range []Config{k3sConfig(t), k3sConfig(t)} {
		c.Cluster.Name = []string{"edge", "shop"}[i]
		for name, p := range c.Pools {
			p.Names, p.VMIDs, p.Addresses = name+"-{n}", "", ""
			c.Pools[name] = p
		}

		c.Network.Addressing = spec.AddressingAgent

		p, err := c.Plan()
		require.NoError(t, err)

		clusters[i] = config.Planned{Config: c, Plan: p}
	}

	var paths []string
	for _, p := range config.CheckDisjoint(clusters) {
		paths = append(paths, p.Path)
	}

	assert.Subset(t, paths, []string{"cluster shop: pools.agent.names", "cluster shop: pools.server.names"})
}

// TestFilesOfAnotherOwner: credentials are not written over those of another stack or cluster, and nothing is
// registered before that is known.
func TestFilesOfAnotherOwner(t *testing.T) {
	withFiles := func(c Config) Config {
		c.Dir = t.TempDir()
		c.Outputs.Files = &spec.Files{Write: []spec.File{"kubeconfig"}}

		return c
	}

	config := withFiles(firstConfig())
	other := files.Owner{Organization: "organization", Project: "p", Stack: "other", Cluster: "k3s-dev"}
	deploy := func(configs ...Config) pulumi.RunFunc {
		return func(ctx *pulumi.Context) error {
			_, err := DeployAll(ctx, configs)

			return err
		}
	}

	require.NoError(t, files.Claim(config.Dir, "talos", other, nil, nil))
	require.ErrorContains(t, previewOf(t, deploy(config), true), "the configuration has 1 problem:\n"+
		"  - outputs.files.dir: must be a directory of cluster k3s-dev of stack organization/p/s, and holds files of "+
		"cluster k3s-dev of stack organization/p/other (given: ./talos); name another directory or, if the files are of "+
		"this stack under a former name, or of one that is gone, delete talos/.owner.json")

	require.ErrorContains(t, previewOf(t, deploy(config, apart()), true), "- cluster k3s-dev: outputs.files.dir: ")

	config.Outputs.Files.Dir = "dev"
	other.Stack = "s"
	require.NoError(t, files.Claim(config.Dir, "dev", other, nil, nil))
	require.NoError(t, previewOf(t, deploy(config), false))

	second := withFiles(apart())
	second.Dir, second.Outputs.Files.Dir = config.Dir, "./dev/"
	require.NoError(t, os.RemoveAll(filepath.Join(config.Dir, "dev")))
	require.ErrorContains(t, previewOf(t, deploy(config, second), true), "- cluster edge: outputs.files.dir: clashes "+
		"with cluster k3s-dev of this program (given: dev); choose another one for either")

	second.Outputs.Files.Dir = "edge"
	require.NoError(t, previewOf(t, deploy(config, second), false))
	assert.NoDirExists(t, filepath.Join(config.Dir, "edge"), "a preview writes nothing")
}

// TestSecretsOfTheProgram: secrets may be outputs of other resources.
func TestSecretsOfTheProgram(t *testing.T) {
	config := firstConfig()
	config.Tailscale = &spec.Tailscale{LoginServer: "https://headscale.lan"}
	config.Image.Schematic = &spec.Schematic{Extensions: []string{"tailscale"}}

	require.ErrorContains(t, previewOf(t, func(ctx *pulumi.Context) error {
		_, err := Deploy(ctx, config)

		return err
	}, true), "tailscaleAuthKey")

	config.Secrets.TailscaleAuthKey = pulumi.String("tskey").ToStringOutput().ApplyT(func(key string) string {
		return key + "-auth"
	}).(pulumi.StringOutput)

	require.NoError(t, previewOf(t, func(ctx *pulumi.Context) error {
		d, err := Deploy(ctx, config)
		if err != nil {
			return err
		}

		d.Cluster.ControlPlaneConfiguration.ApplyT(func(string) error { return nil })

		return nil
	}, false))
}

// TestOutputsOfExternal: with bootstrap: external, all outputs of the component can be used.
func TestOutputsOfExternal(t *testing.T) {
	config := firstConfig()
	config.Cluster.Bootstrap, config.Cluster.Versions.Kubernetes = spec.BootstrapExternal, ""

	require.NoError(t, previewOf(t, func(ctx *pulumi.Context) error {
		d, err := Deploy(ctx, config)
		if err != nil {
			return err
		}

		for _, output := range []pulumi.Output{
			d.Cluster.Endpoint, d.Cluster.Kubeconfig, d.Cluster.Talosconfig, d.Cluster.KubeconfigExpiry,
			d.Cluster.TalosconfigExpiry, d.Cluster.MachineSecrets, d.Cluster.ControlPlaneConfiguration,
			d.Cluster.WorkerConfiguration,
		} {
			applied := make(chan any, 1)

			pulumi.All(output).ApplyT(func(all []any) error {
				applied <- all[0]

				return nil
			})

			select {
			case value := <-applied:
				assert.Zero(t, value)
			case <-time.After(10 * time.Second):
				t.Errorf("%T is never known", output)
			}
		}

		return nil
	}, false))
}

// previewOf is the error of a program in a preview without Proxmox VE. With refused, it may register nothing.
func previewOf(t *testing.T, program pulumi.RunFunc, refused bool) error {
	t.Helper()

	r := &recorder{resources: map[string]registered{}}
	err := pulumi.RunErr(program, pulumi.WithMocks("p", "s", r), func(info *pulumi.RunInfo) { info.DryRun = true })

	if refused {
		assert.Empty(t, r.resources)
	}

	return err
}
