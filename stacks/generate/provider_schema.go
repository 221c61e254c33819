package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/stacks/config"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/stacks/provider/about"
)

// object is a part of a schema.
type object = map[string]any

// providerSchema makes the schema of the package for other languages from those of the configuration and the outputs.
func providerSchema(configuration, outputs string) (any, error) {
	c := converter{types: object{}, uses: map[string]string{}}
	settings := c.properties(configuration, "Config", func(name string) string {
		if name == "Cluster" { // the component has this name
			return "ClusterSettings"
		}

		return name
	})
	result := c.properties(outputs, "StackOutputs", func(name string) string {
		if name == "Versions" { // the configuration has a type of this name
			return "ContractVersions"
		}

		return name
	})

	if err := errors.Join(c.errs...); err != nil {
		return nil, err
	}

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
		contract.OutputKubeconfig, contract.OutputKubernetesCredentials, contract.OutputTalosconfig,
		contract.OutputSSHPrivateKey, contract.OutputWorkerConfiguration,
	} {
		state[key].(object)["secret"] = true
	}

	return object{
		"name": about.Package, "version": about.Version, "displayName": "Talos on Proxmox VE",
		"description": "Talos Linux Kubernetes clusters on Proxmox VE",
		"language": object{"nodejs": object{"respectSchemaVersion": true}, "python": object{
			"respectSchemaVersion": true, "pyproject": object{"enabled": true},
		}},
		"types": c.types,
		"resources": object{about.ClusterType: object{
			"isComponent": true,
			"description": "A Kubernetes cluster of Talos Linux or K3s nodes on Proxmox VE. Its inputs are the keys of a " +
				"stack's configuration; absent ones have the defaults that their descriptions name.",
			"inputProperties": settings["properties"], "requiredInputs": settings["required"],
			"properties": state, "required": result["required"],
		}},
	}, nil
}

// converter turns JSON Schemas into types of a Pulumi package.
type converter struct {
	types object
	errs  []error
	// uses are descriptions of values by their types: what a type is, is said where it is used first.
	uses map[string]string
}

// properties adds the definitions of a schema to the types, under other names, and returns the root's properties.
func (c *converter) properties(text, root string, rename func(string) string) object {
	var document struct {
		Defs map[string]object `json:"$defs"`
	}

	if err := json.Unmarshal([]byte(text), &document); err != nil {
		c.errs = append(c.errs, err)
	}

	var found object

	for _, name := range slices.Sorted(maps.Keys(document.Defs)) {
		def := document.Defs[name]
		properties := object{}

		values := def["properties"].(object)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			properties[key] = c.property(values[key].(object), rename(name)+strings.ToUpper(key[:1])+key[1:], rename)
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
func (c *converter) within(all, one object, name string, rename func(string) string) object {
	described := maps.Clone(one)
	described["description"] = all["description"]
	converted := c.property(described, name, rename)
	delete(converted, "description")

	return converted
}

func typeToken(name string) string { return about.Package + ":index:" + name }

// property converts the schema of one value. An enumeration becomes a type with a name. Defaults are left to the
// program, which knows what they follow from, so they are told, and not set by the SDKs.
func (c *converter) property(s object, name string, rename func(string) string) object {
	p := object{}

	if description, ok := s["description"].(string); ok {
		if value, ok := s["default"]; ok {
			text, err := json.Marshal(value)
			c.errs = append(c.errs, err)

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
			choices = append(choices, c.property(choice.(object), name, rename))
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
		p["type"], p["items"] = "array", c.within(s, s["items"].(object), name, rename)
	case s["type"] == "object":
		p["type"], p["additionalProperties"] = "object", object{"$ref": "pulumi.json#/Any"}
		if values, ok := s["additionalProperties"].(object); ok {
			p["additionalProperties"] = c.within(s, values, name, rename)
		}
	case slices.Contains([]any{"string", "boolean", "integer", "number"}, s["type"]):
		p["type"] = s["type"]
	default:
		c.errs = append(c.errs, fmt.Errorf("%s has type %v, which packages of Pulumi do not have", name, s["type"]))
	}

	return p
}
