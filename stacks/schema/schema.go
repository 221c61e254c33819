// Package schema holds the JSON Schemas of the configuration and of the outputs, and says in plain words how values
// differ from them.
package schema

import (
	"bytes"
	_ "embed"
	"fmt"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"talos-proxmox/components/spec"
)

// Contract is the JSON Schema of the contract, for programs in other languages. It is made of contract.Contract by
// go generate.
//
//go:embed contract.schema.json
var Contract []byte

// Config is the JSON Schema of the configuration: which keys there are, of which type. It is made of
// config.Config by go generate.
//
//go:embed config.schema.json
var Config []byte

// compiled is the schema as a validator.
var compiled = sync.OnceValues(func() (*jsonschema.Schema, error) { return Compile(Config) })

// Compile makes a validator of a schema.
func Compile(schema []byte) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, err
	}

	const url = "schema.json"

	c := jsonschema.NewCompiler()
	c.AssertFormat()

	if err := c.AddResource(url, doc); err != nil {
		return nil, err
	}

	return c.Compile(url)
}

// CheckConfig holds the configuration against the schema: unknown keys, missing keys, wrong types, values out of range.
func CheckConfig(values map[string]any) (spec.Problems, error) {
	s, err := compiled()
	if err != nil {
		return nil, fmt.Errorf("the configuration schema: %w", err)
	}

	return Check(s, "the configuration", values)
}

// KeyTypes are the top-level keys, each with the type it has in JSON.
func KeyTypes() (map[string]string, error) {
	s, err := compiled()
	if err != nil {
		return nil, err
	}

	types := map[string]string{}

	for name, key := range Follow(s).Properties {
		types[name] = Follow(key).Types.ToStrings()[0]
	}

	return types, nil
}
