package rules

import (
	"encoding/json"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/property"

	"talos-proxmox/components/spec"
	"talos-proxmox/components/tokens"
)

// Resource is what the rules see of a resource.
type Resource struct {
	Type, Name, URN string
	// Properties are the inputs for rules about resources, the outputs for rules about stacks.
	Properties property.Map
	// Parent is the URN of the parent; empty where it is not known.
	Parent string
	// Dependencies are URNs, also those of single properties.
	Dependencies         []string
	PropertyDependencies map[string][]string
}

// finding is one about a property of the resource, or about the resource when the path is empty.
func (r Resource) finding(path, rule, value, remedy string) Finding {
	at := r.Name
	if path != "" {
		at += "." + path
	}

	return Finding{URN: r.URN, Problem: spec.Problem{Path: at, Rule: rule, Value: value, Remedy: remedy}}
}

// at follows keys and positions. What is not there is null; what cannot be known yet is computed.
func (r Resource) at(path ...any) property.Value {
	if len(path) == 0 {
		return property.New(r.Properties)
	}

	first := r.Properties.Get(path[0].(string))
	if strings.HasPrefix(r.Type, tokens.ProviderPrefix) {
		first = decoded(first)
	}

	return at(first, path[1:]...)
}

func at(v property.Value, path ...any) property.Value {
	for _, step := range path {
		if v.IsComputed() {
			return v
		}

		switch step := step.(type) {
		case string:
			if !v.IsMap() {
				return property.Value{}
			}

			v = v.AsMap().Get(step)
		case int:
			if !v.IsArray() || step >= v.AsArray().Len() {
				return property.Value{}
			}

			v = v.AsArray().Get(step)
		}
	}

	return v
}

// decoded undoes what the engine does to the configuration of providers: anything but text is JSON in a text.
func decoded(v property.Value) property.Value {
	if !v.IsString() {
		return v
	}

	var parsed any
	if json.Unmarshal([]byte(v.AsString()), &parsed) != nil {
		return v
	}

	switch parsed.(type) {
	case bool, []any, map[string]any:
		return fromJSON(parsed).WithSecret(v.Secret())
	default:
		return v
	}
}

func fromJSON(parsed any) property.Value {
	switch p := parsed.(type) {
	case []any:
		values := make([]property.Value, len(p))
		for i := range p {
			values[i] = fromJSON(p[i])
		}

		return property.New(values)
	case map[string]any:
		values := map[string]property.Value{}
		for key := range p {
			values[key] = fromJSON(p[key])
		}

		return property.New(values)
	default:
		v, _ := property.Any(p) // JSON has nothing else

		return v
	}
}

// text is empty when the value is not text, or not known yet.
func text(v property.Value) string {
	if !v.IsString() {
		return ""
	}

	return v.AsString()
}

// is says whether the value is known and what is asked for.
func is(v property.Value, want bool) bool { return v.IsBool() && v.AsBool() == want }

// number is otherwise when the value is not a number, or not known yet.
func number(v property.Value, fallback int) int {
	if !v.IsNumber() {
		return fallback
	}

	return int(v.AsNumber())
}

// list is empty when the value is no list, or not known yet.
func list(v property.Value) []property.Value {
	if !v.IsArray() {
		return nil
	}

	return v.AsArray().AsSlice()
}

// known says that a value is given, and no more open than null.
func known(v property.Value) bool { return !v.HasComputed() }

// Finding is a resource that breaks a rule. Its problem's path begins with the name of the resource.
type Finding struct {
	// URN of the resource; empty when it is the stack.
	URN string
	spec.Problem
}
