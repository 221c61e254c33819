package rules

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/download"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/network"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/storage"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components"
	"talos-proxmox/components/tokens"
)

// ruleCase is a program and what one rule finds in it; nothing, when it passes.
type ruleCase struct {
	rule, name string
	// settings in the stack's configuration; empty: none.
	settings string
	facts    Facts
	program  pulumi.RunFunc
	want     []string
}

func cases() []ruleCase {
	return slices.Concat(accessCases, secretCases, versionCases, tagCases, controlPlaneCases, gpuCases, networkCases,
		diskCases, capacityCases, certificateCases)
}

// TestRules runs every case, and holds that each rule has one that it passes and one that it does not.
func TestRules(t *testing.T) {
	t.Parallel()

	passed, failed := map[string]bool{}, map[string]bool{}

	for _, c := range cases() {
		if len(c.want) == 0 {
			passed[c.rule] = true
		} else {
			failed[c.rule] = true
		}

		t.Run(c.rule+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, c.want, evaluate(t, c, registered(t, c.program)))
		})
	}

	every, err := All(Facts{})
	require.NoError(t, err)

	for _, r := range every {
		assert.True(t, passed[r.Name], "no case passes %s", r.Name)
		assert.True(t, failed[r.Name], "no case breaks %s", r.Name)
	}
}

// evaluate runs one rule on resources.
func evaluate(t *testing.T, c ruleCase, resources []Resource) []string {
	t.Helper()

	if c.settings != "" {
		c.facts.Settings = map[string]json.RawMessage{c.rule: json.RawMessage(c.settings)}
	}

	every, err := All(c.facts)
	require.NoError(t, err)

	i := slices.IndexFunc(every, func(r Rule) bool { return r.Name == c.rule })
	require.GreaterOrEqual(t, i, 0, "there is no rule %s", c.rule)

	var found []string

	if every[i].Stack != nil {
		for _, f := range every[i].Stack(NewStack(resources)) {
			found = append(found, f.String())
		}

		return found
	}

	for _, r := range NewStack(resources).resources {
		findings, err := every[i].Resource(nil, r)
		require.NoError(t, err)

		for _, f := range findings {
			assert.Equal(t, r.URN, f.URN)

			found = append(found, f.String())
		}
	}

	return found
}

// TestUnknown: what is not known yet, as most is in the first preview, breaks no rule.
func TestUnknown(t *testing.T) {
	t.Parallel()

	for _, c := range cases() {
		if len(c.want) == 0 {
			continue
		}

		var resources []Resource

		for _, r := range registered(t, c.program) {
			if r.Properties.Len() == 0 {
				continue // nothing is open about it
			}

			for key := range r.Properties.All {
				r.Properties = r.Properties.Set(key, property.New(property.Computed))
			}

			resources = append(resources, r)
		}

		assert.Empty(t, evaluate(t, c, resources), "%s/%s", c.rule, c.name)
	}
}

// TestExcept: each rule that speaks of resources passes over those that it is told to.
func TestExcept(t *testing.T) {
	t.Parallel()

	for _, c := range cases() {
		if len(c.want) == 0 || strings.HasPrefix(c.want[0], "host ") || strings.HasPrefix(c.want[0], "control planes") {
			continue
		}

		settings := map[string]any{}
		if c.settings != "" {
			require.NoError(t, json.Unmarshal([]byte(c.settings), &settings))
		}

		settings["except"] = []string{"nothing", "*"}
		text, err := json.Marshal(settings)
		require.NoError(t, err)

		c.settings = string(text)
		assert.Empty(t, evaluate(t, c, registered(t, c.program)), "%s/%s", c.rule, c.name)
	}
}

// TestTokens holds that the tokens which the rules look for are those that the SDKs and the components register.
func TestTokens(t *testing.T) {
	t.Parallel()

	registers := []string{string(resource.RootStackType), components.ClusterType}

	for _, r := range registered(t, all(
		machineOf("vm"), container("container"), provider(proxmoxve.ProviderArgs{}),
		downloaded("download", download.FileArgs{}), uploaded("file", storage.FileArgs{}),
		options(network.FirewallOptionsArgs{}),
		machineSecrets(machine.SecretsArgs{}), applied("config", "node", nil), credentialsOf(400, 30),
	)) {
		registers = append(registers, r.Type)
	}

	file, err := parser.ParseFile(token.NewFileSet(), "../../components/tokens/tokens.go", nil, 0)
	require.NoError(t, err)

	values := map[string]string{}

	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)

			values["tokens."+spec.Names[0].Name] = text
		}

		return true
	})

	files, err := filepath.Glob("*.go")
	require.NoError(t, err)

	used := map[string]bool{}

	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)

		for _, name := range regexp.MustCompile(`\btokens\.\w+`).FindAllString(string(text), -1) {
			used[values[name]] = !strings.HasSuffix(f, "_test.go") || used[values[name]]
		}
	}

	var looked []string

	for value, product := range used {
		if product && value != tokens.ProviderPrefix {
			looked = append(looked, value)
		}
	}

	assert.ElementsMatch(t, registers, looked)
}

// TestSettings: what is wrong with settings is an error, wherever they come from.
func TestSettings(t *testing.T) {
	t.Parallel()

	for settings, want := range map[string]string{
		`{"bridge-firewal": {}}`:                          `talos-proxmox-policy:rules.bridge-firewal: is not a rule (known: `,
		`{"bridge-firewall": {"publicBridge": []}}`:       `talos-proxmox-policy:rules.bridge-firewall: json: unknown field "publicBridge" (known: except, publicBridges); correct the setting`,
		`{"bridge-firewall": {"publicBridges": "vmbr0"}}`: `talos-proxmox-policy:rules.bridge-firewall: json: cannot unmarshal string`,
		`{"disk-discard": {"thinDatastores": ["[a"]}}`:    `talos-proxmox-policy:rules.disk-discard: "[a" is not a pattern: syntax error in pattern`,
		`{"verify-tls": {"except": ["[a"]}}`:              `talos-proxmox-policy:rules.verify-tls: "[a" is not a pattern: syntax error in pattern`,
	} {
		var f Facts
		require.NoError(t, json.Unmarshal([]byte(settings), &f.Settings))

		_, err := All(f)
		assert.ErrorContains(t, err, want)
	}

	every, err := All(Facts{Settings: map[string]json.RawMessage{"bridge-firewall": json.RawMessage(
		`{"publicBridges": ["vmbr9"]}`)}})
	require.NoError(t, err)

	bridges := every[slices.IndexFunc(every, func(r Rule) bool { return r.Name == "bridge-firewall" })]
	assert.Equal(t, []any{"vmbr9"}, bridges.Settings["publicBridges"]["default"],
		"the stack's configuration is the default of the run's")

	_, err = bridges.Resource(map[string]any{"publicBridge": []string{}}, Resource{})
	assert.EqualError(t, err, `settings of rule bridge-firewall: json: unknown field "publicBridge" (known: except, publicBridges); correct the setting`)
}

// TestNames: rules are known by kebab-case names, and say all that people need to be told.
func TestNames(t *testing.T) {
	t.Parallel()

	every, err := All(Facts{})
	require.NoError(t, err)

	kebab := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	seen := map[string]bool{}

	for _, r := range every {
		assert.Regexp(t, kebab, r.Name)
		assert.False(t, seen[r.Name], "two rules are called %s", r.Name)
		assert.True(t, strings.HasSuffix(r.Must, ".") && strings.HasSuffix(r.Remedy, "."), r.Name)
		assert.True(t, (r.Resource == nil) != (r.Stack == nil), "%s checks resources or stacks", r.Name)

		seen[r.Name] = true

		for name, schema := range r.Settings {
			assert.NotEmpty(t, schema["description"], "%s %s", r.Name, name)
		}
	}
}
