package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"talos-proxmox/stacks/provider/about"
)

// registryPages are the pages that Pulumi's registry shows of a package, by their names: made of the package's schema
// and of the examples that the engine tests run.
func registryPages(schema string) (map[string]string, error) {
	var described struct {
		DisplayName, Description string
		Resources                map[string]struct {
			InputProperties map[string]struct {
				Description string
				Secret      bool
			}
		}
	}

	if err := json.Unmarshal([]byte(schema), &described); err != nil {
		return nil, err
	}

	cluster := described.Resources[about.ClusterType]

	var secrets strings.Builder

	for _, key := range slices.Sorted(maps.Keys(cluster.InputProperties)) {
		if p := cluster.InputProperties[key]; p.Secret {
			fmt.Fprintf(&secrets, "| `%s` | %s |\n", key, p.Description)
		}
	}

	examples := map[string]string{}

	for _, name := range []string{"typescript/index.ts", "python/__main__.py", "go/main.go", "yaml/Pulumi.yaml"} {
		text, err := os.ReadFile("stacks/examples/" + name)
		if err != nil {
			return nil, err
		}

		examples[name] = string(text)
	}

	pages := map[string]string{}
	page := func(name, title, text string) {
		pages[name] = "---\n" +
			"# Written by go generate: do not edit.\n" +
			"title: " + title + "\nmeta_desc: " + described.Description + ", as one component for every language of Pulumi.\n" +
			"layout: package\n---\n\n" + text
	}

	page("_index.md", described.DisplayName, described.Description+`.
The component `+"`Cluster`"+` creates the VMs, applies the machine configuration, bootstraps Kubernetes, and handles upgrades, scaling and recovery.

## Example

{{< chooser language "typescript,python,go,yaml" >}}
`+choosable("typescript", "typescript", examples["typescript/index.ts"])+
		choosable("python", "python", examples["python/__main__.py"])+
		choosable("go", "go", examples["go/main.go"])+
		choosable("yaml", "yaml", examples["yaml/Pulumi.yaml"])+`{{< /chooser >}}

Destroying a cluster takes two steps: set `+"`lifecycle.teardown`"+` to true and update, then run `+
		"`TALOS_PROXMOX_DESTROY=1 pulumi destroy --run-program`"+`, which compares each VM with the state before it deletes it.
`)

	page("installation-configuration.md", described.DisplayName+" Installation & Configuration", `## Installation

The package is not published. Build its plugin, and generate an SDK from it:

`+"```sh"+`
go build -o plugins/pulumi-resource-`+about.Package+` ./stacks/provider
pulumi package add ./plugins/pulumi-resource-`+about.Package+`
`+"```"+`

A release has a tag, `+"`v"+about.Version+"`"+`, and for each operating system and architecture the plugin as `+
		"`pulumi-resource-"+about.Package+"-v"+about.Version+"-<os>-<arch>.tar.gz`"+`.
Programs in Go need no plugin: they embed the cluster.

## Configuration

The package has no configuration of a provider. Each cluster has its own Proxmox VE and credentials.
These inputs are always secret:

| Input | Meaning |
|---|---|
`+secrets.String())

	return pages, nil
}

// choosable is what the registry shows to who has chosen a language.
func choosable(language, syntax, text string) string {
	return "{{% choosable language " + language + " %}}\n\n```" + syntax + "\n" + text + "```\n\n{{% /choosable %}}\n"
}
