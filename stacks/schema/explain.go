package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"talos-proxmox/components/spec"
)

// explainer turns what a schema says of values into problems.
type explainer struct {
	schema *jsonschema.Schema
	of     string // what the values are
	value  any    // that is explained
}

// Check holds values against a schema. of is what the values are, for messages.
func Check(s *jsonschema.Schema, of string, value any) (spec.Problems, error) {
	err := s.Validate(value)
	if err == nil {
		return nil, nil
	}

	invalid, ok := err.(*jsonschema.ValidationError) //nolint:errorlint // it is never wrapped
	if !ok {
		return nil, err
	}

	found := explainer{s, of, value}.explain(invalid)
	slices.SortStableFunc(found, func(a, b spec.Problem) int { return strings.Compare(a.Path, b.Path) })

	return found, nil
}

// explain turns the leaves of a validation error into the operator's words.
func (x explainer) explain(e *jsonschema.ValidationError) spec.Problems {
	switch e.ErrorKind.(type) {
	case *kind.OneOf:
		return x.explainChoice(e)
	case *kind.AnyOf:
		return x.explainFormats(e)
	}

	if len(e.Causes) > 0 {
		var all spec.Problems
		for _, cause := range e.Causes {
			all = append(all, x.explain(cause)...)
		}

		return all
	}

	path, schema := locate(x.schema, e.InstanceLocation)
	one := func(rule, value, remedy string) spec.Problems {
		return spec.Problems{{Path: path, Rule: rule, Value: value, Remedy: remedy}}
	}

	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		var all spec.Problems
		for _, name := range k.Properties {
			all = append(all, unknownKey(x.of, path, schema, name))
		}

		return all
	case *kind.Required:
		var all spec.Problems
		for _, name := range k.Missing {
			all = append(all, spec.Problem{Path: Join(path, name), Rule: "is required", Remedy: describe(schema, name)})
		}

		return all
	case *kind.Type:
		if text, ok := valueAt(x.value, e.InstanceLocation).(string); ok && slices.Contains(k.Want, "integer") {
			if n, ok := numberOf(path, text); ok {
				return one("must be "+TypeNames(k.Want), strconv.Quote(text), fmt.Sprintf("write %d", n))
			}
		}

		value := valueAt(x.value, e.InstanceLocation)

		return one("must be "+TypeNames(k.Want), shown(value, k.Got), retype(schema, k.Want, k.Got, value))
	case *kind.Enum:
		var want []string
		for _, v := range k.Want {
			want = append(want, fmt.Sprintf("%q", v))
		}

		return one("must be one of "+strings.Join(want, ", "), fmt.Sprint(k.Got), "choose one of them")
	case *kind.Minimum:
		return one("must be at least "+k.Want.RatString(), k.Got.RatString(), "raise it")
	case *kind.Maximum:
		return one("must be at most "+k.Want.RatString(), k.Got.RatString(), "lower it")
	default:
		return one(k.LocalizedString(message.NewPrinter(language.English)), "", "change the value")
	}
}

// explainChoice: a choice of types fails in as many ways as it has alternatives. Where the type fits one of them, that
// one says what is wrong; else the choice itself does.
func (x explainer) explainChoice(e *jsonschema.ValidationError) spec.Problems {
	var (
		wanted []string
		given  string
	)

	for _, cause := range e.Causes {
		for len(cause.Causes) == 1 {
			cause = cause.Causes[0]
		}

		k, mismatch := cause.ErrorKind.(*kind.Type)
		if !mismatch || len(cause.InstanceLocation) > len(e.InstanceLocation) {
			return x.explain(cause)
		}

		wanted, given = append(wanted, k.Want...), k.Got
	}

	path, schema := locate(x.schema, e.InstanceLocation)

	value := valueAt(x.value, e.InstanceLocation)

	return spec.Problems{{
		Path: path, Rule: "must be " + TypeNames(wanted), Value: shown(value, given),
		Remedy: retype(schema, wanted, given, value),
	}}
}

// explainFormats: a text may have one of several formats, and has none of them.
func (x explainer) explainFormats(e *jsonschema.ValidationError) spec.Problems {
	var (
		wanted []string
		given  any
	)

	for _, cause := range e.Causes {
		k, format := cause.ErrorKind.(*kind.Format)
		if !format {
			return x.explain(cause)
		}

		wanted, given = append(wanted, k.Want), k.Got
	}

	path, _ := locate(x.schema, e.InstanceLocation)

	return spec.Problems{{
		Path: path, Rule: "must be " + strings.Join(wanted, " or "), Value: fmt.Sprintf("%q", given),
		Remedy: "change the value",
	}}
}

// amount is a number that may have a unit: "20", "20G", "4 GiB".
var amount = regexp.MustCompile(`^(\d{1,9}) ?(?:([MGT])(?:i?B)?)?$`)

// numberOf is the whole number that a text means in the unit of its key, such as diskGiB; false: it means none.
func numberOf(key, text string) (int, bool) {
	const units = "MGT"

	m := amount.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}

	n, _ := strconv.Atoi(m[1]) // digits, by the pattern
	if m[2] == "" {
		return n, true
	}

	if !strings.HasSuffix(key, "MiB") && !strings.HasSuffix(key, "GiB") {
		return 0, false
	}

	given, wanted := strings.Index(units, m[2]), strings.IndexByte(units, key[len(key)-3])
	for ; given > wanted; given-- {
		n *= 1024
	}

	for ; given < wanted; given++ {
		if n%1024 != 0 {
			return 0, false
		}

		n /= 1024
	}

	return n, true
}

// retype says how what has another type is written.
func retype(s *jsonschema.Schema, wanted []string, given string, value any) string {
	want := func(kinds ...string) bool {
		return slices.ContainsFunc(kinds, func(k string) bool { return slices.Contains(wanted, k) })
	}

	switch {
	case want("string") && (given == "number" || given == "boolean"):
		return "write it in quotes"
	case want("integer", "number") && given == "string":
		return "write digits alone, without a unit or quotes"
	case want("boolean") && given == "string":
		return "write true or false, without quotes"
	case want("string") && given == "array":
		if parts := scalars(value); parts != nil {
			return "write it as one text: " + strings.Join(parts, ", ")
		}

		return "write it as one text"
	case want("array"):
		return "write it in brackets: [first, second]"
	case want("object") && s != nil && len(s.Properties) > 0:
		return "write its keys below it: " + strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", ")
	case want("object") && s != nil && given == "array":
		return `write each below its name or number: "1": ...`
	default:
		return "change the value"
	}
}

// longest is how much of a value is shown.
const longest = 40

// shown names the type of a value, and shows what is short. A text that may hold credentials is not shown.
func shown(value any, kind string) string {
	name := TypeNames([]string{kind})

	switch value.(type) {
	case map[string]any, nil:
		return name
	case []any:
		if scalars(value) == nil {
			return name
		}
	}

	text, err := json.Marshal(value)
	if err != nil || len(text) > longest || strings.ContainsAny(string(text), `@\\`) || strings.Contains(string(text), "://") {
		return name
	}

	return name + ", " + string(text)
}

// scalars are the elements of a list as they are written; nil: it is none, or holds more than values.
func scalars(value any) []string {
	var all []string

	list, _ := value.([]any)
	for _, one := range list {
		switch one.(type) {
		case string, bool, float64, json.Number:
			all = append(all, fmt.Sprint(one))
		default:
			return nil
		}
	}

	return all
}

// TypeNames names JSON types as people do.
func TypeNames(types []string) string {
	names := map[string]string{
		"object": "a block of keys", "array": "a list", "string": "text", "integer": "a whole number", "number": "a number",
		"boolean": "true or false", "null": "nothing",
	}

	var lines []string
	for _, t := range types {
		lines = append(lines, names[t])
	}

	return strings.Join(lines, " or ")
}

// describe is what the schema says of a key.
func describe(s *jsonschema.Schema, name string) string {
	key := s.Properties[name]
	if key == nil {
		return "set it"
	}

	text := key.Description
	if text == "" {
		text = Follow(key).Description
	}

	if text == "" {
		return "set it"
	}

	first, _, _ := strings.Cut(strings.TrimSuffix(text, "."), ". ")
	// Not the first letter of an abbreviation.
	if word, _, _ := strings.Cut(first, " "); word != strings.ToUpper(word) || len(word) == 1 {
		first = strings.ToLower(first[:1]) + first[1:]
	}

	return "set it: " + first
}
