package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
	"github.com/stretchr/testify/require"
)

var sdkModules = map[string]string{
	talosPkg:   "github.com/pulumiverse/pulumi-talos/sdk",
	proxmoxPkg: "github.com/muhlba91/pulumi-proxmoxve/sdk/v6",
}

// TestSchema compares what the plugins serve with what the Go SDKs expect. differences.txt lists where they part, and
// is the documentation of it: an entry that no longer holds fails as a new difference does.
func TestSchema(t *testing.T) {
	var found []string
	for pkg, module := range sdkModules {
		bridged := readSchema(t, pkg)
		for tok, properties := range readSDK(t, module) {
			served, ok := bridged[tok]
			if !ok {
				found = append(found, tok+": not served")
				continue
			}
			found = append(found, differences(tok, properties, served)...)
		}
	}
	slices.Sort(found)

	content, err := os.ReadFile("differences.txt")
	require.NoError(t, err)
	var known []string
	for line := range strings.Lines(string(content)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			known = append(known, line)
		}
	}
	for _, d := range found {
		if !slices.Contains(known, d) {
			t.Errorf("new: %s", d)
		}
	}
	for _, d := range known {
		if !slices.Contains(found, d) {
			t.Errorf("no longer so, remove it from differences.txt: %s", d)
		}
	}
}

// TestVersions holds the versions that the plugins report against those of the SDKs.
func TestVersions(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	for pkg, version := range map[string]string{talosPkg: talosVersion, proxmoxPkg: proxmoxVersion} {
		require.Contains(t, string(mod), fmt.Sprintf("\t%s v%s\n", sdkModules[pkg], version))
		require.Equal(t, version, packageSpec(t, pkg).Version)
	}
}

// differences are what a user of the SDK would notice: what it sends or reads and the plugin does not know, knows as
// something else, or demands though the SDK does not. What only the plugin knows does not matter, unless it demands it.
func differences(tok string, expected, served map[string]property) []string {
	var found []string
	missing := func(path string) bool { // something that path is part of
		for i, c := range path {
			if !strings.ContainsRune(".[{", c) {
				continue
			}
			_, wanted := expected[path[:i]]
			if _, there := served[path[:i]]; wanted && !there {
				return true
			}
		}
		return false
	}
	for path, want := range expected {
		got, ok := served[path]
		switch {
		case missing(path): // said already
		case !ok:
			found = append(found, fmt.Sprintf("%s: %s is not there", tok, path))
		case got.typ != want.typ:
			found = append(found, fmt.Sprintf("%s: %s is %s, not %s", tok, path, got.typ, want.typ))
		case strings.HasPrefix(path, "inputs") && got.required && !want.required && want.typ != "array" && want.typ != "map":
			found = append(found, fmt.Sprintf("%s: %s is required", tok, path))
		}
	}
	for path, got := range served {
		if _, ok := expected[path]; !ok && got.required && strings.HasPrefix(path, "inputs") {
			parent := path[:strings.LastIndex(path, ".")]
			if _, ok := expected[parent]; ok || parent == "inputs" {
				found = append(found, fmt.Sprintf("%s: %s is required and unknown to the SDK", tok, path))
			}
		}
	}
	return found
}

func packageSpec(t *testing.T, pkg string) schema.PackageSpec {
	t.Helper()
	info, err := providerInfo(t.Context(), pkg)
	require.NoError(t, err)
	content, err := packageSchema(t.Context(), info)
	require.NoError(t, err)
	var spec schema.PackageSpec
	require.NoError(t, json.NewDecoder(bytes.NewReader(content)).Decode(&spec))
	return spec
}

// readSchema is what a plugin serves, in the form of readSDK.
func readSchema(t *testing.T, pkg string) sdk {
	t.Helper()
	spec := packageSpec(t, pkg)
	result := sdk{}
	resource := func(tok string, r schema.ResourceSpec) {
		result[tok] = map[string]property{}
		addObject(result[tok], spec, "inputs", r.InputProperties, r.RequiredInputs)
		addObject(result[tok], spec, "outputs", r.Properties, nil)
	}
	resource("pulumi:providers:"+pkg, spec.Provider)
	for tok, r := range spec.Resources {
		resource(tok, r)
	}
	for tok, f := range spec.Functions {
		result[tok] = map[string]property{}
		if f.Inputs != nil {
			addObject(result[tok], spec, "inputs", f.Inputs.Properties, f.Inputs.Required)
		}
		if f.ReturnType != nil && f.ReturnType.ObjectTypeSpec != nil {
			addObject(result[tok], spec, "outputs", f.ReturnType.ObjectTypeSpec.Properties, nil)
		}
	}
	return result
}

func addObject(
	into map[string]property, spec schema.PackageSpec, path string, properties map[string]schema.PropertySpec,
	required []string,
) {
	for name, p := range properties {
		addType(into, spec, path+"."+name, p.TypeSpec, slices.Contains(required, name))
	}
}

func addType(into map[string]property, spec schema.PackageSpec, path string, typ schema.TypeSpec, required bool) {
	switch {
	case typ.Ref != "":
		into[path] = property{"object", required}
		object := spec.Types[strings.TrimPrefix(typ.Ref, "#/types/")]
		addObject(into, spec, path, object.Properties, object.Required)
	case typ.Type == "array":
		into[path] = property{"array", required}
		addType(into, spec, path+"[]", *typ.Items, false)
	case typ.Type == "object":
		into[path] = property{"map", required}
		if typ.AdditionalProperties != nil {
			addType(into, spec, path+"{}", *typ.AdditionalProperties, false)
		}
	default:
		into[path] = property{typ.Type, required}
	}
}
