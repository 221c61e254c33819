package stacks

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"talos-proxmox/components/spec"
	"talos-proxmox/stacks/config"
	"talos-proxmox/stacks/schema"
	"talos-proxmox/tests/golden"
)

// generate makes the schema of the configuration from the Go types, their tags and their comments.
func generate(t *testing.T) *jsonschema.Schema {
	s := reflector(t).Reflect(&Config{})
	s.Title = "Configuration of a talos-proxmox stack"

	// Certificates are no keys.
	authorities, _ := s.Definitions["Cluster"].Properties.Get("trustedCAs")
	authorities.Items = &jsonschema.Schema{Type: "string"}

	return s
}

// reflector makes schemas of Go types, with the comments of their fields.
func reflector(t *testing.T) *jsonschema.Reflector {
	t.Helper()

	r := &jsonschema.Reflector{Anonymous: true, Mapper: func(t reflect.Type) *jsonschema.Schema {
		text := &jsonschema.Schema{Type: "string"}

		switch t {
		case reflect.TypeFor[spec.Range](), reflect.TypeFor[spec.TemplateRef]():
			return &jsonschema.Schema{OneOf: []*jsonschema.Schema{text, {Type: "integer"}}}
		case reflect.TypeFor[spec.Schematic]():
			return &jsonschema.Schema{OneOf: []*jsonschema.Schema{text, {Type: "array", Items: text}}}
		case reflect.TypeFor[spec.Patch]():
			return &jsonschema.Schema{OneOf: []*jsonschema.Schema{text, {Type: "object"}}}
		}

		return nil
	}}

	// The paths that comments are found at follow from the directory they are read in.
	module := strings.TrimSuffix(reflect.TypeFor[Config]().PkgPath(), "/stacks/config")

	for _, dir := range []string{"stacks", "components/spec"} {
		t.Chdir("..")

		if err := r.AddGoComments(module, dir); err != nil {
			t.Fatal(err)
		}

		t.Chdir("stacks")
	}

	for key, text := range r.CommentMap {
		r.CommentMap[key] = strings.Join(strings.Fields(text), " ")
	}

	// What a type is, is said where it is used.
	for key := range r.CommentMap {
		if parts := strings.Split(key, "."); len(parts) == 2 {
			delete(r.CommentMap, key)
		}
	}

	return r
}

// stackFile is the schema of the file, for editors: the keys have the project's name before them, and any text may be
// encrypted.
func stackFile(t *testing.T, values []byte) []byte {
	t.Helper()

	var s map[string]any
	if err := json.Unmarshal(values, &s); err != nil {
		t.Fatal(err)
	}

	defs := s["$defs"].(map[string]any)
	whole := defs["Config"].(map[string]any)
	delete(defs, "Config")

	encryptable(defs)

	keys, names := map[string]any{}, []any{}

	properties := whole["properties"].(map[string]any)
	for _, name := range sortedKeys(properties) {
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

	return indented(t, file)
}

func sortedKeys(m map[string]any) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}

	slices.Sort(keys)

	return keys
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

func indented(t *testing.T, value any) []byte {
	t.Helper()

	var b bytes.Buffer

	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")

	if err := e.Encode(value); err != nil {
		t.Fatal(err)
	}

	return b.Bytes()
}

// TestSchema keeps the generated files current.
func TestSchema(t *testing.T) {
	values := indented(t, generate(t))

	for path, got := range map[string][]byte{
		"schema/config.schema.json": values,
		"schema/stack.schema.json":  stackFile(t, values),
	} {
		golden.Check(t, path, string(got))
	}
}

// TestSchemaDescribesEveryKey: what editors show must be there.
func TestSchemaDescribesEveryKey(t *testing.T) {
	for key, s := range allKeys(t) {
		if s.Description == "" {
			t.Errorf("%s has no description", key)
		}
	}
}

// allKeys are the keys of the configuration by their paths, with <name> for what the operator names.
func allKeys(t *testing.T) map[string]*validator.Schema {
	t.Helper()

	root, err := schema.Compile(schema.Config)
	if err != nil {
		t.Fatal(err)
	}

	found := map[string]*validator.Schema{}

	var walk func(path string, s *validator.Schema)

	walk = func(path string, s *validator.Schema) {
		s = schema.Follow(s)

		for name, child := range s.Properties {
			found[schema.Join(path, name)] = child
			walk(schema.Join(path, name), child)
		}

		if items := schema.Follow(s.Items2020); items != nil && len(items.Properties) > 0 {
			walk(path+"[]", items)
		}

		if more, ok := s.AdditionalProperties.(*validator.Schema); ok {
			walk(schema.Join(path, "<name>"), more)
		}
	}

	walk("", root)

	return found
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
