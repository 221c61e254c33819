// Package rules checks resources as the Pulumi engine sees them: by their type tokens and properties, whoever
// registered them. It decides nothing about levels and talks to no server; command policy hands it to the engine.
package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"talos-proxmox/components/spec"
)

// Rule is one requirement. It checks either single resources, before anything is done to them, or the stack as a whole.
type Rule struct {
	// Name in kebab-case, as levels and settings are configured by.
	Name string
	// Must says what must hold, in one sentence.
	Must string
	// Remedy says what to change.
	Remedy string
	// Advice says that production does not enforce the rule. A lab enforces none.
	Advice bool
	// Settings are the JSON schemas of the rule's settings by name, each with its default for this stack.
	Settings map[string]map[string]any
	// Resource checks one resource by its inputs; nil for a rule about stacks. Settings that are not given have their
	// defaults.
	Resource func(settings map[string]any, r Resource) ([]Finding, error)
	// Stack checks all resources by their outputs; nil for a rule about resources.
	Stack func(s Stack) []Finding
}

// Mandatory says that an environment enforces the rule unless the policy configuration of the run says otherwise.
func (r Rule) Mandatory(e spec.Environment) bool { return !r.Advice && e != spec.EnvironmentLab }

// builder gives rules their settings and keeps what is wrong with those.
type builder struct {
	facts Facts
	errs  []error
}

// settings is what every struct of settings has.
type settings interface {
	passesOver(name string) bool
	check() error
}

// except is for structs of settings to embed.
type except struct {
	Except []string `json:"except" jsonschema_description:"Names of resources that the rule passes over; * stands for any text."`
}

// passesOver says whether a resource is excepted by its name.
func (e except) passesOver(name string) bool { return matches(e.Except, name) }

func (e except) check() error { return checkPatterns(e.Except) }

// matches says whether a text is one of the patterns, which are those of path.Match.
func matches(patterns []string, text string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, text)

		return ok && err == nil
	})
}

func checkPatterns(patterns []string) error {
	for _, pattern := range patterns {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("%q is not a pattern: %w", pattern, err)
		}
	}

	return nil
}

// perResource makes a rule that checks single resources.
func perResource[S settings](b *builder, r Rule, defaults S, check func(S, Resource) []Finding) Rule {
	stack := ofStack(b, &r, defaults)

	r.Resource = func(given map[string]any, resource Resource) ([]Finding, error) {
		text, err := json.Marshal(given)
		if err != nil {
			return nil, err
		}

		s, err := decode(text, stack)
		if err != nil {
			return nil, fmt.Errorf("settings of rule %s: %w", r.Name, err)
		}

		if s.passesOver(resource.Name) {
			return nil, nil
		}

		return check(s, resource), nil
	}

	return r
}

// perStack makes a rule that checks the stack. Its settings are those of the stack's configuration: the SDK hands
// policy configuration to resource rules only.
func perStack[S settings](b *builder, r Rule, defaults S, check func(S, Stack) []Finding) Rule {
	s := ofStack(b, &r, defaults)

	r.Stack = func(stack Stack) []Finding {
		return slices.DeleteFunc(check(s, stack), func(f Finding) bool { return s.passesOver(stack.name(f.URN)) })
	}

	return r
}

// ofStack puts what the stack's configuration says on top of the defaults, and describes the result.
func ofStack[S settings](b *builder, r *Rule, defaults S) S {
	s := defaults

	if text, ok := b.facts.Settings[r.Name]; ok {
		var err error
		if s, err = decode(text, defaults); err != nil {
			b.errs = append(b.errs, fmt.Errorf("%s.%s: %w", settingsKey, r.Name, err))

			return defaults
		}
	}

	described, err := describe(s)
	if err != nil {
		b.errs = append(b.errs, fmt.Errorf("settings of rule %s: %w", r.Name, err))
	}

	r.Settings = described

	return s
}

// decode reads settings strictly; what is not there has its default.
func decode[S settings](text []byte, defaults S) (S, error) {
	s := defaults

	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()

	err := d.Decode(&s)
	if err == nil {
		return s, s.check()
	}

	known, wrong := describe(defaults)

	return defaults, errors.Join(fmt.Errorf("%w (known: %s); correct the setting", err,
		strings.Join(sortedKeys(known), ", ")), wrong)
}

// describe returns the JSON schema of each setting, with its default.
func describe(s settings) (map[string]map[string]any, error) {
	reflector := jsonschema.Reflector{DoNotReference: true, Anonymous: true}

	var schema struct {
		Properties map[string]map[string]any `json:"properties"`
	}

	if err := convert(reflector.Reflect(s), &schema); err != nil {
		return nil, err
	}

	defaults := map[string]any{}
	if err := convert(s, &defaults); err != nil {
		return nil, err
	}

	for name, value := range defaults {
		if value != nil {
			schema.Properties[name]["default"] = value
		}
	}

	return schema.Properties, nil
}

func convert(from, to any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}

	return json.Unmarshal(text, to)
}
