package main

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/workspace"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/policyx"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"talos-proxmox/components/spec"
)

// packOf is the pack as the engine asks for it, for a stack with this configuration.
func packOf(t *testing.T, config map[string]string) (policyx.PolicyPack, error) {
	t.Helper()

	ctx, err := pulumi.NewContext(t.Context(), pulumi.RunInfo{Project: "atlas", Stack: "dev", Config: config})
	require.NoError(t, err)

	return pack(ctx)
}

// TestLevels: a lab is advised of what production enforces, and production of what is no danger.
func TestLevels(t *testing.T) {
	t.Parallel()

	for environment, want := range map[spec.Environment]policyx.EnforcementLevel{
		spec.EnvironmentLab: policyx.EnforcementLevelAdvisory, spec.EnvironmentProduction: policyx.EnforcementLevelMandatory,
	} {
		p, err := packOf(t, map[string]string{"atlas:environment": string(environment)})
		require.NoError(t, err)
		assert.Equal(t, "talos-proxmox-policy", p.Name())

		for _, policy := range p.Policies() {
			if slices.Contains([]string{"disk-discard", "certificate-validity"}, policy.Name()) {
				assert.Equal(t, policyx.EnforcementLevelAdvisory, policy.EnforcementLevel())
			} else {
				assert.Equal(t, want, policy.EnforcementLevel(), policy.Name())
			}
		}
	}

	_, err := packOf(t, map[string]string{"talos-proxmox-policy:environment": "prod"})
	require.Error(t, err)

	_, err = packOf(t, map[string]string{"talos-proxmox-policy:rules": `{"no-such-rule": {}}`})
	require.Error(t, err)
}

// reports keeps what a policy reports.
type reports []string

func (r *reports) ReportViolation(message, urn string) { *r = append(*r, urn+" "+message) }

// TestPolicies hands resources through the SDK's types to one rule of each kind.
func TestPolicies(t *testing.T) {
	t.Parallel()

	p,
		err := packOf(t,
		map[string]string{"talos-proxmox-policy:rules": `{"host-capacity": {"hosts": {"pve": {"vcpu": 1}}}}`})
	require.NoError(t, err)

	policies := map[string]policyx.Policy{}
	for _, policy := range p.Policies() {
		policies[policy.Name()] = policy
	}

	machine := policyx.AnalyzerResource{
		Type: "proxmoxve:VM/virtualMachine:VirtualMachine", Name: "vm", URN: "urn:vm",
		Properties: property.NewMap(map[string]property.Value{
			"nodeName": property.New("pve"), "cpu": property.New(map[string]property.Value{"cores": property.New(2.0)}),
			"networkDevices": property.New([]property.Value{property.New(
				map[string]property.Value{"bridge": property.New("vmbr1")})}),
		}),
	}

	var got reports

	bridges := policies["bridge-firewall"].(policyx.ResourceValidationPolicy)
	assert.Contains(t, bridges.ConfigSchema().Properties, "publicBridges")
	require.NoError(t, bridges.Validate(t.Context(), policyx.ResourceValidationArgs{
		Manager: &got, Resource: machine, Config: map[string]any{"publicBridges": []any{"vmbr1"}},
	}))
	require.Error(t, bridges.Validate(t.Context(), policyx.ResourceValidationArgs{
		Manager: &got, Resource: machine, Config: map[string]any{"publicBridge": "vmbr1"},
	}))

	capacity := policies["host-capacity"].(policyx.StackValidationPolicy)
	assert.Nil(t, capacity.ConfigSchema(), "the SDK hands a stack rule no settings: it must not seem to take any")
	require.NoError(t, capacity.Validate(context.Background(), policyx.StackValidationArgs{
		Manager: &got, Resources: []policyx.AnalyzerResource{machine},
	}))

	assert.Equal(t, reports{
		"urn:vm vm.networkDevices[0].firewall: must be true on a public bridge (given: bridge vmbr1); set it to true",
		" host pve: must have the virtual CPUs that its 1 guests are promised (given: 2 promised, 1 to give); move a guest " +
			"to another host, make guests smaller, or set the host's actual capacity",
	}, got)
}

// TestProject: the engine reads the pack's settings, and takes the version from the pack.
func TestProject(t *testing.T) {
	t.Parallel()

	project, err := workspace.LoadPolicyPack("PulumiPolicy.yaml")
	require.NoError(t, err)
	assert.Equal(t, "go", project.Runtime.Name())
	assert.Empty(t, project.Version)
}

// TestExamples: the settings that the documentation shows are settings of rules.
func TestExamples(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile("../stacks/docs/policy.md")
	require.NoError(t, err)

	block := func(language string) []byte {
		_, rest, ok := strings.Cut(string(text), "   ```"+language+"\n")
		require.True(t, ok, language)

		shown, _, _ := strings.Cut(rest, "   ```\n")

		return []byte(shown)
	}

	var file struct{ Config map[string]any }
	require.NoError(t, yaml.Unmarshal(block("yaml"), &file))

	config := map[string]string{}

	for key, value := range file.Config {
		if s, ok := value.(string); ok {
			config[key] = s

			continue
		}

		encoded, err := json.Marshal(value)
		require.NoError(t, err)

		config[key] = string(encoded)
	}

	p, err := packOf(t, config)
	require.NoError(t, err)

	var run map[string]any
	require.NoError(t, json.Unmarshal(block("json"), &run))

	for name, settings := range run {
		i := slices.IndexFunc(p.Policies(), func(policy policyx.Policy) bool { return policy.Name() == name })
		require.True(t, i >= 0 || name == "all", "there is no rule %s", name)

		given, _ := settings.(map[string]any)
		delete(given, "enforcementLevel")

		for setting := range given {
			assert.Contains(t, p.Policies()[i].ConfigSchema().Properties, setting)
		}
	}
}
