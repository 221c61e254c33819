package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks/config"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/stacks/schema"
	"talos-proxmox/tests/golden"
)

// object is a part of a schema.
type object = map[string]any

// TestSchema keeps schema.json current.
func TestSchema(t *testing.T) {
	outputs, err := os.ReadFile("../schema/outputs.schema.json")
	require.NoError(t, err)

	c := converter{types: object{}, uses: map[string]string{}}
	settings := c.properties(t, schema.Config, "Config", func(name string) string {
		if name == "Cluster" { // the component has this name
			return "ClusterSettings"
		}

		return name
	})
	result := c.properties(t, outputs, "StackOutputs", func(name string) string {
		if name == "Versions" { // the configuration has a type of this name
			return "ContractVersions"
		}

		return name
	})

	for _, key := range config.SecretKeys {
		secret := settings["properties"].(object)[key].(object)
		secret["secret"] = true
		secret["description"] = strings.ReplaceAll(secret["description"].(string), " Set it with --secret.", "")
	}

	for token, text := range c.uses {
		c.types[token].(object)["description"] = text
	}

	state := result["properties"].(object)
	delete(state, contract.OutputNextSteps)

	for _, key := range []string{
		contract.OutputKubeconfig, contract.OutputKubernetesCredentials, contract.OutputTalosconfig, contract.OutputSSHPrivateKey,
		contract.OutputWorkerConfiguration,
	} {
		state[key].(object)["secret"] = true
	}

	var b bytes.Buffer

	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	require.NoError(t, e.Encode(object{
		"name": packageName, "version": version, "displayName": "Talos on Proxmox VE",
		"description": "Talos Linux Kubernetes clusters on Proxmox VE",
		"language": object{"nodejs": object{"respectSchemaVersion": true}, "python": object{
			"respectSchemaVersion": true, "pyproject": object{"enabled": true},
		}},
		"types": c.types,
		"resources": object{clusterType: object{
			"isComponent": true,
			"description": "A Kubernetes cluster of Talos Linux or K3s nodes on Proxmox VE. Its inputs are the keys of a " +
				"stack's configuration; absent ones have the defaults that their descriptions name.",
			"inputProperties": settings["properties"], "requiredInputs": settings["required"],
			"properties": state, "required": result["required"],
		}},
	}))
	golden.Check(t, "schema.json", b.String())
}

// converter turns JSON Schemas into types of a Pulumi package.
type converter struct {
	types object
	// uses are descriptions of values by their types: what a type is, is said where it is used first.
	uses map[string]string
}

// properties adds the definitions of a schema to the types, under other names, and returns the root's properties.
func (c converter) properties(t *testing.T, text []byte, root string, rename func(string) string) object {
	t.Helper()

	var document struct {
		Defs map[string]object `json:"$defs"`
	}

	require.NoError(t, json.Unmarshal(text, &document))

	var found object

	for _, name := range slices.Sorted(maps.Keys(document.Defs)) {
		def := document.Defs[name]
		properties := object{}

		values := def["properties"].(object)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			properties[key] = c.property(t, values[key].(object), rename(name)+strings.ToUpper(key[:1])+key[1:], rename)
		}

		required, ok := def["required"]
		if !ok {
			required = []any{}
		}

		if name == root {
			found = object{"properties": properties, "required": required}
		} else {
			c.types[typeToken(rename(name))] = object{"type": "object", "properties": properties, "required": required}
		}
	}

	return found
}

// within converts what a list or a map has, whose type is described where these are.
func (c converter) within(t *testing.T, all, one object, name string, rename func(string) string) object {
	t.Helper()

	described := maps.Clone(one)
	described["description"] = all["description"]
	converted := c.property(t, described, name, rename)
	delete(converted, "description")

	return converted
}

func typeToken(name string) string { return packageName + ":index:" + name }

// property converts the schema of one value. An enumeration becomes a type with a name. Defaults are left to the
// program, which knows what they follow from, so they are told, and not set by the SDKs.
func (c converter) property(t *testing.T, s object, name string, rename func(string) string) object {
	t.Helper()

	p := object{}

	if description, ok := s["description"].(string); ok {
		if value, ok := s["default"]; ok {
			text, err := json.Marshal(value)
			require.NoError(t, err)

			description += " Default: " + string(text) + "."
		}

		p["description"] = description
	}

	use := func(token string) {
		p["$ref"] = "#/types/" + token
		if text, ok := s["description"].(string); ok && c.uses[token] == "" {
			c.uses[token] = text
		}
	}

	switch {
	case s["$ref"] != nil:
		use(typeToken(rename(strings.TrimPrefix(s["$ref"].(string), "#/$defs/"))))
	case s["oneOf"] != nil:
		var choices []any
		for _, choice := range s["oneOf"].([]any) {
			choices = append(choices, c.property(t, choice.(object), name, rename))
		}

		p["oneOf"] = choices
	case s["enum"] != nil && s["type"] == "string":
		var values []any
		for _, value := range s["enum"].([]any) {
			values = append(values, object{"value": value})
		}

		c.types[typeToken(name)] = object{"type": "string", "enum": values}
		use(typeToken(name))
	case s["type"] == "array":
		p["type"], p["items"] = "array", c.within(t, s, s["items"].(object), name, rename)
	case s["type"] == "object":
		p["type"], p["additionalProperties"] = "object", object{"$ref": "pulumi.json#/Any"}
		if values, ok := s["additionalProperties"].(object); ok {
			p["additionalProperties"] = c.within(t, s, values, name, rename)
		}
	default:
		require.Contains(t, []any{"string", "boolean", "integer", "number"}, s["type"], name)
		p["type"] = s["type"]
	}

	return p
}
