package main

import (
	"reflect"
	"strings"

	"github.com/invopop/jsonschema"

	"talos-proxmox/components/spec"
	"talos-proxmox/stacks/config"
)

// configSchema makes the schema of the configuration from the Go types, their tags and their comments.
func configSchema() (*jsonschema.Schema, error) {
	r, err := reflector()
	if err != nil {
		return nil, err
	}

	s := r.Reflect(&config.Config{})
	s.Title = "Configuration of a talos-proxmox stack"

	// Certificates are no keys.
	authorities, _ := s.Definitions["Cluster"].Properties.Get("trustedCAs")
	authorities.Items = &jsonschema.Schema{Type: "string"}

	return s, nil
}

// reflector makes schemas of Go types, with the comments of their fields. The working directory must be the module's.
func reflector() (*jsonschema.Reflector, error) {
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

	module := strings.TrimSuffix(reflect.TypeFor[config.Config]().PkgPath(), "/stacks/config")

	// Comments are found by paths from the module's directory, which is the working directory.
	for _, dir := range []string{"stacks", "components/spec"} {
		if err := r.AddGoComments(module, dir); err != nil {
			return nil, err
		}
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

	return r, nil
}
