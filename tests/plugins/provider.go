package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/bpg/terraform-provider-proxmox/fwprovider"
	"github.com/bpg/terraform-provider-proxmox/proxmoxtf/provider"
	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"
	pf "github.com/pulumi/pulumi-terraform-bridge/v3/pkg/pf/tfbridge"
	pftfgen "github.com/pulumi/pulumi-terraform-bridge/v3/pkg/pf/tfgen"
	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge"
	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge/tokens"
	shim "github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfshim"
	shimv2 "github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfshim/sdk-v2"
	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/x/muxer"
	"github.com/pulumi/pulumi-terraform-bridge/v3/unstable/metadata"
	"github.com/pulumi/pulumi/sdk/v3/go/common/diag"
	"github.com/pulumi/pulumi/sdk/v3/go/common/diag/colors"
	"github.com/siderolabs/terraform-provider-talos/pkg/talos"
)

// The versions are those of the SDKs, not of the providers underneath: the engine compares a plugin's version with the
// one that the SDK asks for, and warns or searches elsewhere when it is lower.
const (
	talosPkg, talosVersion     = "talos", "0.7.1"
	proxmoxPkg, proxmoxVersion = "proxmoxve", "6.18.1"
)

// providerInfo maps the Terraform provider behind the Pulumi package pkg onto the tokens of its SDK.
func providerInfo(ctx context.Context, pkg string) (tfbridge.ProviderInfo, error) {
	switch pkg {
	case talosPkg:
		return talosInfo(), nil
	case proxmoxPkg:
		info := proxmoxInfo(ctx)
		return info, dispatch(&info)
	}
	return tfbridge.ProviderInfo{}, fmt.Errorf(
		"no provider for %q: name the binary pulumi-resource-%s or pulumi-resource-%s",
		pkg, talosPkg, proxmoxPkg)
}

// talosInfo is the Talos provider. go.mod raises the Talos modules under it to those of the published plugin: with the
// provider's own, newer kinds of configuration documents would be "not registered".
func talosInfo() tfbridge.ProviderInfo {
	info := tfbridge.ProviderInfo{
		P:            pf.ShimProvider(talos.New()),
		Name:         talosPkg,
		Version:      talosVersion,
		MetadataInfo: tfbridge.NewProviderMetadata(nil),
	}
	info.MustComputeTokens(tokens.KnownModules("talos_", "index",
		[]string{"client", "cluster", "machine", "image_factory"}, tokens.MakeStandard(talosPkg)))
	info.SetAutonaming(255, "-")
	return info
}

// proxmoxInfo is the Proxmox VE provider, with the tokens of tokens.go.
func proxmoxInfo(ctx context.Context) tfbridge.ProviderInfo {
	upstream := provider.ProxmoxVirtualEnvironment()
	quiet(upstream.ResourcesMap["proxmox_virtual_environment_vm"], "cdrom", "enabled")

	info := tfbridge.ProviderInfo{
		// The upstream provider is written half with Terraform's old SDK and half with its framework.
		P:              pf.MuxShimWithPF(ctx, shimv2.NewProvider(upstream), fwprovider.New(proxmoxVersion)()),
		Name:           proxmoxPkg,
		ResourcePrefix: "proxmox",
		Version:        proxmoxVersion,
		MetadataInfo:   tfbridge.NewProviderMetadata(nil),
		Resources:      map[string]*tfbridge.ResourceInfo{},
		DataSources:    map[string]*tfbridge.DataSourceInfo{},
	}
	for name, m := range proxmoxResources {
		name = upstreamName(info.P.ResourcesMap(), name)
		info.Resources[name] = &tfbridge.ResourceInfo{Tok: tfbridge.MakeResource(proxmoxPkg, m.module, m.name)}
	}
	for name, m := range proxmoxFunctions {
		name = upstreamName(info.P.DataSourcesMap(), name)
		info.DataSources[name] = &tfbridge.DataSourceInfo{Tok: tfbridge.MakeDataSource(proxmoxPkg, m.module, m.name)}
	}
	// What came after the SDK was made has no token in it.
	for name := range info.P.ResourcesMap().Range {
		if info.Resources[name] == nil {
			info.IgnoreMappings = append(info.IgnoreMappings, name)
		}
	}
	for name := range info.P.DataSourcesMap().Range {
		if info.DataSources[name] == nil {
			info.IgnoreMappings = append(info.IgnoreMappings, name)
		}
	}
	info.SetAutonaming(255, "-")
	return info
}

// quiet takes the deprecation off a setting of a block: the published provider requires it and warns of nothing, and
// this one would warn with every VM.
func quiet(r *schema.Resource, block, setting string) {
	r.Schema[block].Elem.(*schema.Resource).Schema[setting].Deprecated = ""
}

// upstreamName is the full name of a resource or data source. Upstream is shortening its prefix; where it has, the old
// name still works, and would warn users about a name that they never wrote. Only proxmox_vm is another thing than its
// namesake.
func upstreamName(all shim.ResourceMap, name string) string {
	const old, short = "proxmox_virtual_environment_", "proxmox_"
	if name != "vm" && all.Get(old+name).DeprecationMessage() != "" {
		return short + name
	}
	return old + name
}

// dispatch decides, for a provider of two halves, which of them serves which token, and leaves that in the provider's
// metadata, where the bridge looks for it.
func dispatch(info *tfbridge.ProviderInfo) error {
	halves, ok := info.P.(interface {
		ResolveDispatch(*tfbridge.ProviderInfo) (muxer.DispatchTable, error)
	})
	if !ok {
		return nil
	}
	table, err := halves.ResolveDispatch(info)
	if err != nil {
		return err
	}
	return metadata.Set(info.GetMetadata(), "mux", table)
}

// packageSchema makes the Pulumi schema of a provider in memory.
func packageSchema(ctx context.Context, info tfbridge.ProviderInfo) ([]byte, error) {
	generated, err := pftfgen.GenerateSchema(ctx, pftfgen.GenerateSchemaOptions{
		ProviderInfo: info,
		// The generator's remarks are about documentation; the engine would show them to the user.
		DiagnosticsSink: diag.DefaultSink(io.Discard, io.Discard, diag.FormatOptions{Color: colors.Never}),
		XInMemoryDocs:   true,
	})
	if err != nil {
		return nil, err
	}
	// The engine refuses to compare versions with a schema that has none.
	var schema map[string]any
	if err := json.Unmarshal(generated.ProviderMetadata.PackageSchema, &schema); err != nil {
		return nil, err
	}
	schema["version"] = info.Version
	return json.Marshal(schema)
}
