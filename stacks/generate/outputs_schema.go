package main

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"talos-proxmox/stacks/contract"
)

// contractSchema makes the schema of the contract.
func contractSchema() (*jsonschema.Schema, error) {
	return outputsSchema("Output "+contract.OutputContract+" of a talos-proxmox stack", &contract.Contract{})
}

// outputsSchema makes the schema of a Go type that outputs have.
func outputsSchema(title string, of any) (*jsonschema.Schema, error) {
	r, err := reflector()
	if err != nil {
		return nil, err
	}

	s := r.Reflect(of)
	s.Title = title
	refine(s)

	for _, def := range s.Definitions {
		refine(def)
	}

	return s, nil
}

// refine says what tags cannot: which texts are addresses, which lists come together.
func refine(s *jsonschema.Schema) {
	if s.Properties == nil {
		return
	}

	address := func() *jsonschema.Schema {
		return &jsonschema.Schema{Type: "string", AnyOf: []*jsonschema.Schema{{Format: "ipv4"}, {Format: "ipv6"}}}
	}

	var legacy []string

	for p := s.Properties.Oldest(); p != nil; p = p.Next() {
		switch p.Key {
		case "ip":
			p.Value.AnyOf = address().AnyOf
		case contract.OutputNodeIPMap:
			p.Value.AdditionalProperties = address()
		case contract.OutputNodeVMIDMap:
			p.Value.AdditionalProperties.Minimum = json.Number("100")
		case contract.OutputControlPlaneEndpoints, contract.OutputControlPlaneIPs, contract.OutputWorkerIPs,
			contract.OutputGPUWorkerIPs:
			p.Value.Items = address()
		}

		if strings.HasPrefix(p.Value.Description, "With outputs.legacy: ") {
			legacy = append(legacy, p.Key)
		}
	}

	for _, name := range legacy {
		if s.DependentRequired == nil {
			s.DependentRequired = map[string][]string{}
		}

		s.DependentRequired[name] = slices.DeleteFunc(slices.Clone(legacy), func(other string) bool { return other == name })
	}
}
