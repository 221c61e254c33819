package main

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"
)

// TestInputs: inputs become what a stack's configuration is, whatever they are wrapped in.
func TestInputs(t *testing.T) {
	t.Parallel()

	in := read(t, resource.PropertyMap{
		"environment":        resource.NewProperty("lab"),
		"proxmoxTokenSecret": resource.MakeSecret(resource.NewProperty("hidden")),
		"network": resource.NewProperty(resource.PropertyMap{
			"cidr": resource.MakeSecret(resource.NewProperty("10.0.0.0/24")), "mtu": resource.NewProperty(1400.0),
		}),
		"k3s":              resource.NewNullProperty(),
		"tailscaleAuthKey": resource.MakeSecret(resource.MakeComputed(resource.NewProperty(""))),
	})

	require.Equal(t, map[string]string{
		"environment": "lab", "proxmoxTokenSecret": "hidden", "network": `{"cidr":"10.0.0.0/24","mtu":1400}`,
	}, in.values)
	require.Equal(t, []string{"tailscaleAuthKey"}, in.unknown)
}

// TestUnknownInputs: what decides which resources there are is refused, with all other such keys, before anything is
// registered.
func TestUnknownInputs(t *testing.T) {
	t.Parallel()

	unknown := resource.MakeComputed(resource.NewProperty(""))
	in := read(t, resource.PropertyMap{
		"network": resource.NewProperty(resource.PropertyMap{"cidr": unknown}), "proxmoxTokenSecret": unknown,
		"tailscaleAuthKey": unknown,
	})

	props := pulumi.Map{}
	for _, key := range in.unknown {
		props[key] = pulumi.String("").ToStringOutput().ApplyT(func(s string) any { return s })
	}

	_, err := newCluster(nil, "home", in, props, pulumi.Protect(false))
	require.EqualError(t, err, `the configuration has 2 problems:
  - network: must be known in a preview: it decides which resources there are; give a value that depends on no resource, `+
		`such as one of the configuration of the stack
  - proxmoxTokenSecret: must be known in a preview: it decides which resources there are; give a value that depends on `+
		`no resource, such as one of the configuration of the stack`)
}

// TestProtect: a protected cluster is refused before anything is registered.
func TestProtect(t *testing.T) {
	t.Parallel()

	_, err := newCluster(nil, "home", inputs{}, pulumi.Map{}, pulumi.Protect(true))
	require.EqualError(t, err, "protect is not an option of a cluster: Pulumi refuses to delete a protected node only after "+
		"it was drained and reset; leave it out, and set protection for the pools")
}

func read(t *testing.T, given resource.PropertyMap) inputs {
	t.Helper()

	wire, err := plugin.MarshalProperties(given, plugin.MarshalOptions{KeepUnknowns: true, KeepSecrets: true})
	require.NoError(t, err)

	in, err := readInputs(wire)
	require.NoError(t, err)

	return in
}
