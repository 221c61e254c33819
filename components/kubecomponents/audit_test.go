package kubecomponents

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// TestAuditFaults: what an API server does not take, and what it would leave out.
func TestAuditFaults(t *testing.T) {
	t.Parallel()

	for policy, want := range map[string][]string{
		`{kind: Policy, metadata: {name: a}, omitStages: [Panic], rules: [{level: None, users: [a], resources: [{group: "",
			resources: [a], resourceNames: [b]}]}, {level: Request, nonResourceURLs: ["*", "/a*"],
			omitManagedFields: true}]}`: nil,
		`{rules: []}`:     {"the audit policy has no rules"},
		`{rules: {a: b}}`: {"a field of the audit policy has a value of another type"},
		`{rules: [{}]}`:   {"rules[0].level must be one of None, Metadata, Request, RequestResponse"},
		`{rule: [a: b]}`:  {"rule is not a field of an audit policy", "the audit policy has no rules"},
		`{omitStages: [a], rules: [{level: None, omitStages: [Panic, b]}]}`: {
			"omitStages[0] must be one of RequestReceived, ResponseStarted, ResponseComplete, Panic",
			"rules[0].omitStages[1] must be one of RequestReceived, ResponseStarted, ResponseComplete, Panic",
		},
		`{rules: [{level: None, namespaces: [a], nonResourceURLs: [a, "/*/a"]}]}`: {
			"rules[0].nonResourceURLs[0] must begin with /, and may end with *",
			"rules[0].nonResourceURLs[1] must begin with /, and may end with *",
			"rules[0].nonResourceURLs cannot be combined with resources or namespaces",
		},
		`{rules: [{level: None, resources: [{group: apps/v1}, {resourceNames: [a]}]}]}`: {
			"rules[0].resources[0].group must be a group without a version",
			"rules[0].resources[1].resourceNames needs resources",
		},
	} {
		var object map[string]any

		require.NoError(t, yaml.Unmarshal([]byte(policy), &object), policy)
		assert.Equal(t, want, AuditFaults(object), policy)
	}
}
