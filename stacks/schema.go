package stacks

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/agext/levenshtein"
	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"talos-proxmox/components/plan"
)

// Schema returns the JSON Schema of the configuration, made from the Go types: the one place that says which keys exist.
func Schema() *jsonschema.Schema {
	r := jsonschema.Reflector{DoNotReference: true, Anonymous: true, Mapper: func(t reflect.Type) *jsonschema.Schema {
		switch t {
		case reflect.TypeFor[plan.Range]():
			return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string"}, {Type: "integer"}}}
		case reflect.TypeFor[plan.Patch]():
			return &jsonschema.Schema{Type: "string"}
		}

		return nil
	}}
	s := r.Reflect(&Config{})
	s.Title = "talos-proxmox stack configuration"

	return s
}

// compiled is the schema as a validator.
var compiled = sync.OnceValues(func() (*validator.Schema, error) {
	text, err := json.Marshal(Schema())
	if err != nil {
		return nil, err
	}

	doc, err := validator.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		return nil, err
	}

	const url = "config.json"

	c := validator.NewCompiler()
	if err := c.AddResource(url, doc); err != nil {
		return nil, err
	}

	return c.Compile(url)
})

// checkKeys holds the configuration against the schema: unknown keys, missing keys, wrong types, values out of range.
func checkKeys(values map[string]any) (plan.Problems, error) {
	s, err := compiled()
	if err != nil {
		return nil, fmt.Errorf("the configuration schema: %w", err)
	}

	err = s.Validate(values)
	if err == nil {
		return nil, nil
	}

	invalid, ok := err.(*validator.ValidationError) //nolint:errorlint // it is never wrapped
	if !ok {
		return nil, err
	}

	return explain(invalid), nil
}

// explain turns the leaves of a validation error into the operator's words, ordered by path.
func explain(e *validator.ValidationError) plan.Problems {
	// A choice of types fails in as many ways as it has alternatives; the choice itself says it better.
	_, choice := e.ErrorKind.(*kind.OneOf)

	if len(e.Causes) > 0 && !choice {
		var all plan.Problems
		for _, cause := range e.Causes {
			all = append(all, explain(cause)...)
		}

		slices.SortStableFunc(all, func(a, b plan.Problem) int { return strings.Compare(a.Path, b.Path) })

		return all
	}

	path := pathOf(e.InstanceLocation)

	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		var all plan.Problems
		for _, name := range k.Properties {
			all = append(all, unknownKey(e.InstanceLocation, name))
		}

		return all
	case *kind.Required:
		var all plan.Problems
		for _, name := range k.Missing {
			all = append(all, plan.Problem{Path: join(path, name), Rule: "is required", Remedy: describe(e.InstanceLocation, name)})
		}

		return all
	case *kind.Type:
		return plan.Problems{{Path: path, Rule: "must be " + article(k.Want), Value: article([]string{k.Got}), Remedy: "change the value"}}
	case *kind.OneOf:
		return plan.Problems{{Path: path, Rule: "must be text or a number", Remedy: "change the value"}}
	case *kind.Enum:
		var want []string
		for _, v := range k.Want {
			want = append(want, fmt.Sprintf("%q", v))
		}

		return plan.Problems{{
			Path: path, Rule: "must be one of " + strings.Join(want, ", "), Value: fmt.Sprint(k.Got), Remedy: "choose one of them",
		}}
	case *kind.Minimum:
		return plan.Problems{{Path: path, Rule: "must be at least " + k.Want.RatString(), Value: k.Got.RatString(), Remedy: "raise it"}}
	case *kind.Maximum:
		return plan.Problems{{Path: path, Rule: "must be at most " + k.Want.RatString(), Value: k.Got.RatString(), Remedy: "lower it"}}
	default:
		return plan.Problems{{Path: path, Rule: k.LocalizedString(message.NewPrinter(language.English)), Remedy: "change the value"}}
	}
}

// pathOf writes a location as a configuration path, "proxmox.hosts[0].name".
func pathOf(location []string) string {
	path := ""
	for _, step := range location {
		path = join(path, step)
	}

	return path
}

func join(path, step string) string {
	switch {
	case step != "" && strings.Trim(step, "0123456789") == "" && path != "":
		return path + "[" + step + "]"
	case path == "":
		return step
	default:
		return path + "." + step
	}
}

// article names JSON types as people do.
func article(types []string) string {
	names := map[string]string{
		"object": "a block of keys", "array": "a list", "string": "text", "integer": "a whole number", "number": "a number",
		"boolean": "true or false", "null": "nothing",
	}

	var said []string
	for _, t := range types {
		said = append(said, names[t])
	}

	return strings.Join(said, " or ")
}

// unknownKey names the nearest key that exists at the same place.
func unknownKey(location []string, name string) plan.Problem {
	p := plan.Problem{Path: join(pathOf(location), name), Rule: "is not a key of the configuration"}

	known := keysAt(location)
	best, distance := "", len(name)/2+1

	for _, k := range slices.Sorted(maps.Keys(known)) {
		if d := levenshtein.Distance(strings.ToLower(name), strings.ToLower(k), nil); d < distance {
			best, distance = k, d
		}
	}

	if best != "" {
		p.Remedy = fmt.Sprintf("did you mean %q?", best)
	} else {
		p.Remedy = "known here: " + strings.Join(slices.Sorted(maps.Keys(known)), ", ")
	}

	return p
}

// describe is what the schema says of a key.
func describe(location []string, name string) string {
	if s := keysAt(location)[name]; s != nil && s.Description != "" {
		return "state it: " + strings.ToLower(s.Description[:1]) + strings.TrimSuffix(s.Description[1:], ".")
	}

	return "state it"
}

// keysAt are the keys that the schema knows at a location.
func keysAt(location []string) map[string]*jsonschema.Schema {
	s := schemaOnce()

	for _, step := range location {
		switch next, ok := s.Properties.Get(step); {
		case ok:
			s = next
		case s.Items != nil:
			s = s.Items
		default:
			s = s.AdditionalProperties
		}

		if s == nil || s.Properties == nil && s.Items == nil && s.AdditionalProperties == nil {
			return nil
		}
	}

	keys := map[string]*jsonschema.Schema{}

	if s.Properties != nil {
		for k, v := range s.Properties.FromOldest() {
			keys[k] = v
		}
	}

	return keys
}

var schemaOnce = sync.OnceValue(Schema)
