package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/golden"
)

// TestRegistryPages keeps the pages that Pulumi's registry shows of a package current: docs/_index.md and
// docs/installation-configuration.md, made of the schema and of the examples that the engine tests run.
func TestRegistryPages(t *testing.T) {
	var about struct {
		DisplayName, Description string
		Resources                map[string]struct {
			InputProperties map[string]struct {
				Description string
				Secret      bool
			}
		}
	}

	require.NoError(t, json.Unmarshal([]byte(packageSchema), &about))

	cluster := about.Resources[clusterType]

	var secrets strings.Builder

	for _, key := range slices.Sorted(maps.Keys(cluster.InputProperties)) {
		if p := cluster.InputProperties[key]; p.Secret {
			fmt.Fprintf(&secrets, "| `%s` | %s |\n", key, p.Description)
		}
	}

	page := func(name, title, text string) {
		golden.Check(t, filepath.Join("docs", name), "---\n"+
			"# Written by go test ./stacks/provider -run TestRegistryPages -update: do not edit.\n"+
			"title: "+title+"\nmeta_desc: "+about.Description+", as one component for every language of Pulumi.\n"+
			"layout: package\n---\n\n"+text)
	}

	page("_index.md", about.DisplayName, about.Description+`.
The component `+"`Cluster`"+` creates the VMs, applies the machine configuration, bootstraps Kubernetes, and handles upgrades, scaling and recovery.

## Example

{{< chooser language "typescript,python,go,yaml" >}}
`+choosable("typescript", "typescript", example(t, "typescript/index.ts"))+
		choosable("python", "python", example(t, "python/__main__.py"))+
		choosable("go", "go", example(t, "go/main.go"))+
		choosable("yaml", "yaml", example(t, "yaml/Pulumi.yaml"))+`{{< /chooser >}}

Destroying a cluster takes two steps: set `+"`lifecycle.teardown`"+` to true and update, then run `+
		"`TALOS_PROXMOX_DESTROY=1 pulumi destroy --run-program`"+`, which compares each VM with the state before it deletes it.
`)

	page("installation-configuration.md", about.DisplayName+" Installation & Configuration", `## Installation

The package is not published. Build its plugin, and generate an SDK from it:

`+"```sh"+`
go build -o plugins/pulumi-resource-`+packageName+` ./stacks/provider
pulumi package add ./plugins/pulumi-resource-`+packageName+`
`+"```"+`

A release has a tag, `+"`v"+version+"`"+`, and for each operating system and architecture the plugin as `+
		"`pulumi-resource-"+packageName+"-v"+version+"-<os>-<arch>.tar.gz`"+`.
Programs in Go need no plugin: they embed the cluster.

## Configuration

The package has no configuration of a provider. Each cluster has its own Proxmox VE and credentials.
These inputs are always secret:

| Input | Meaning |
|---|---|
`+secrets.String())
}

// choosable is what the registry shows to who has chosen a language.
func choosable(language, syntax, text string) string {
	return "{{% choosable language " + language + " %}}\n\n```" + syntax + "\n" + text + "```\n\n{{% /choosable %}}\n"
}

// example is a file of the examples.
func example(t *testing.T, name string) string {
	t.Helper()

	text, err := os.ReadFile(filepath.Join("../examples", filepath.FromSlash(name)))
	require.NoError(t, err)

	return string(text)
}
