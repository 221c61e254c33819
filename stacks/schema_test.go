package stacks

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"talos-proxmox/stacks/schema"
)

// TestSchemaDescribesEveryKey: what editors show must be there.
func TestSchemaDescribesEveryKey(t *testing.T) {
	for key, s := range keysOfSchema(t) {
		if s.Description == "" {
			t.Errorf("%s has no description", key)
		}
	}
}

// TestStackFilesFitTheSchema: an editor finds nothing wrong with the files that are there.
func TestStackFilesFitTheSchema(t *testing.T) {
	text, err := os.ReadFile("schema/stack.schema.json")
	if err != nil {
		t.Fatal(err)
	}

	doc, err := validator.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}

	c := validator.NewCompiler()
	if err := c.AddResource("stack.json", doc); err != nil {
		t.Fatal(err)
	}

	s, err := c.Compile("stack.json")
	if err != nil {
		t.Fatal(err)
	}

	check := func(t *testing.T, text string) error {
		t.Helper()

		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}

		plain, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}

		doc, err := validator.UnmarshalJSON(bytes.NewReader(plain))
		if err != nil {
			t.Fatal(err)
		}

		return s.Validate(doc)
	}

	examples, err := filepath.Glob("examples/Pulumi.*.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatalf("no examples: %v", err)
	}

	for _, path := range append(examples, "../Pulumi.dev.yaml") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		// Examples are copied to the root.
		if want := "# yaml-language-server: $schema=stacks/schema/stack.schema.json\n"; !strings.HasPrefix(string(text), want) {
			t.Errorf("%s must begin with %q", path, want)
		}

		if err := check(t, string(text)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}

	const start = "config:\n  talos-proxmox:proxmox: {endpoint: {secure: AAAA}, hosts: []}\n  talos-proxmox:cluster: " +
		"{secure: AAAA}\n" +
		"  talos-proxmox:network: {cidr: 10.0.0.0/16}\n  talos-proxmox:pools: {}\n  aws:region: eu-central-1\n"

	if err := check(t, start+"  talos-proxmox:proxmoxTokenSecret: {secure: AAAA}\nencryptionsalt: v1:xyz\n"); err != nil {
		t.Errorf("encrypted values: %v", err)
	}

	for name, line := range map[string]string{
		"an unknown key":    "  talos-proxmox:clutser: {}\n",
		"a wrong type":      "  talos-proxmox:placement: {rebalance: perhaps}\n",
		"a misspelt secret": "  talos-proxmox:sshPrivateKey: {secured: AAAA}\n",
	} {
		if err := check(t, start+line); err == nil {
			t.Errorf("%s is not found", name)
		}
	}
}

// keysOfSchema are the keys of the configuration by their paths.
func keysOfSchema(t *testing.T) map[string]*validator.Schema {
	t.Helper()

	root, err := schema.Compile(schema.Config)
	require.NoError(t, err)

	return schema.Keys(root)
}
