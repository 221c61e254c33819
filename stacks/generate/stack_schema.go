package main

import (
	"encoding/json"
	"maps"
	"slices"

	"talos-proxmox/stacks/config"
)

// stackFileSchema makes the schema of a stack's file from that of the configuration, for editors: the keys have the
// project's name before them, and any text may be encrypted.
func stackFileSchema(values string) (any, error) {
	var s map[string]any
	if err := json.Unmarshal([]byte(values), &s); err != nil {
		return nil, err
	}

	defs := s["$defs"].(map[string]any)
	whole := defs["Config"].(map[string]any)
	delete(defs, "Config")

	encryptable(defs)

	keys, names := map[string]any{}, []any{}

	properties := whole["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		keys[config.Project+":"+name] = orSecure(properties[name])
		names = append(names, config.Project+":"+name)
	}

	defs["Secure"] = map[string]any{
		"type": "object", "properties": map[string]any{"secure": map[string]any{"type": "string"}},
		"required": []any{"secure"}, "additionalProperties": false, "description": "A value that Pulumi has encrypted.",
	}

	var required []any
	for _, name := range whole["required"].([]any) {
		required = append(required, config.Project+":"+name.(string))
	}

	text := map[string]any{"type": "string"}
	file := map[string]any{
		"$schema": s["$schema"], "title": "Stack file of talos-proxmox", "type": "object", "$defs": defs,
		"properties": map[string]any{
			"config": map[string]any{
				"type": "object", "properties": keys, "required": required,
				// Other projects' keys are none of ours; an unknown one of ours is a mistake.
				"propertyNames": map[string]any{"anyOf": []any{
					map[string]any{"enum": names}, map[string]any{"not": map[string]any{"pattern": "^" + config.Project + ":"}},
				}},
			},
			"encryptionsalt": text, "encryptedkey": text, "secretsprovider": text, "environment": map[string]any{},
		},
		"additionalProperties": false,
	}

	return file, nil
}

// encryptable lets every text be encrypted.
func encryptable(node any) {
	switch n := node.(type) {
	case map[string]any:
		for key, child := range n {
			encryptable(child)

			if c, ok := child.(map[string]any); ok && c["type"] == "string" && key != "secure" {
				n[key] = orSecure(c)
			}
		}
	case []any:
		for _, child := range n {
			encryptable(child)
		}
	}
}

func orSecure(s any) any {
	both := map[string]any{"anyOf": []any{s, map[string]any{"$ref": "#/$defs/Secure"}}}

	if m, ok := s.(map[string]any); ok {
		if m["anyOf"] != nil {
			return s
		}

		for _, key := range []string{"description", "default"} {
			if m[key] != nil {
				both[key] = m[key]
				delete(m, key)
			}
		}
	}

	return both
}
