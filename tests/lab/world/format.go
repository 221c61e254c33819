package world

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// form is what kind of value a schema is of.
type form int

const (
	text form = iota
	boolean
	integer
	number
	drive
	network
)

// schema is what one value has to be (pve-common: JSONSchema.pm, check_prop).
type schema struct {
	form form
	// min and max bound numbers; a max of 0 is none.
	min, max int
	// enum are the values allowed.
	enum []string
	// pattern matches the whole value.
	pattern *regexp.Regexp
	// valid says what is wrong with a value of this format, empty when nothing is.
	valid func(string) string
	// minLength and maxLength bound texts; a maxLength of 0 is none.
	minLength, maxLength int
	// format is what a property string is made of; nil: the value is none, or any is taken.
	format format
}

// complaint says what is wrong with a value that was sent as path, empty when nothing is.
func (s schema) complaint(path, value string) string {
	switch s.form {
	case boolean:
		if value != "0" && value != "1" {
			return fmt.Sprintf("type check ('boolean') failed - got '%s'", value)
		}
	case integer:
		if _, err := strconv.Atoi(value); err != nil {
			return fmt.Sprintf("type check ('integer') failed - got '%s'", value)
		}
	case number:
		if _, err := strconv.ParseFloat(value, 64); err != nil {
			return fmt.Sprintf("type check ('number') failed - got '%s'", value)
		}
	case text, drive, network:
	}

	if s.format != nil {
		if _, err := s.format.parse(path, value); err != nil {
			return "invalid format - " + err.Error()
		}
	}

	if s.valid != nil {
		if wrong := s.valid(value); wrong != "" {
			return "invalid format - " + wrong
		}
	}

	if s.pattern != nil && !s.pattern.MatchString(value) {
		return "value does not match the regex pattern"
	}

	if s.maxLength > 0 && len(value) > s.maxLength {
		return fmt.Sprintf("value may only be %d characters long", s.maxLength)
	}

	if len(value) < s.minLength {
		return fmt.Sprintf("value must be at least %d characters long", s.minLength)
	}

	if s.form == integer || s.form == number {
		if wrong := s.outside(value); wrong != "" {
			return wrong
		}
	}

	if len(s.enum) > 0 && !slices.Contains(s.enum, value) {
		return fmt.Sprintf("value '%s' does not have a value in the enumeration '%s'", value, strings.Join(s.enum, ", "))
	}

	return ""
}

func (s schema) outside(value string) string {
	n, err := strconv.ParseFloat(value, 64)

	switch {
	case err != nil:
		return ""
	case s.max != 0 && n > float64(s.max):
		return fmt.Sprintf("value must have a maximum value of %d", s.max)
	case n < float64(s.min):
		return fmt.Sprintf("value must have a minimum value of %d", s.min)
	default:
		return ""
	}
}

// part is one property of a property string.
type part struct {
	schema
	// main is the property that takes a value without a key.
	main     bool
	required bool
	// requires is another property that this one needs; empty: none.
	requires string
}

// format is the schema of a property string: its parts by their keys.
type format map[string]part

// The values of most settings.
var (
	anything = schema{}
	flag     = schema{form: boolean}
	configID = schema{valid: func(value string) string {
		if !configIDs.MatchString(value) {
			return fmt.Sprintf("invalid configuration ID '%s'", value)
		}

		return ""
	}}
	nodeName = schema{valid: func(value string) string {
		if !nodeNames.MatchString(value) {
			return "value does not look like a valid node name"
		}

		return ""
	}}
)

var (
	configIDs = regexp.MustCompile(`(?i)^[a-z][a-z0-9_-]+$`)
	nodeNames = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?$`)
)

func atLeast(min int) schema { return schema{form: integer, min: min} }

func between(min, max int) schema { return schema{form: integer, min: min, max: max} }

func oneOf(values ...string) schema { return schema{enum: values} }

func inFormat(f format) schema { return schema{format: f} }

func driveIn(f format) schema { return schema{form: drive, format: f} }

func matching(pattern string) schema {
	return schema{pattern: regexp.MustCompile(`^(?:` + pattern + `)$`)}
}

// parse reads a property string that was sent as path. Booleans come back as 0 and 1, whatever they were written as.
func (f format) parse(path, value string) (properties, error) {
	p := properties{}

	for word := range strings.SplitSeq(value, ",") {
		if strings.TrimSpace(word) == "" {
			continue
		}

		key, v, pair := strings.Cut(word, "=")

		switch {
		case !pair:
			if key, v = f.mainKey(), word; key == "" {
				return nil, errors.New("value without key, but schema does not define a default key")
			}
		case key == "" || v == "":
			return nil, errors.New("missing key in comma-separated list property")
		}

		if _, twice := p[key]; twice {
			return nil, fmt.Errorf("duplicate key in comma-separated list property: %s", key)
		}

		known, ok := f[key]
		if !ok {
			return nil, fmt.Errorf("invalid key in comma-separated list property: %s", key)
		}

		if known.form == boolean {
			v = plainBoolean(v)
		}

		p[key] = v
	}

	return p, f.check(path, p)
}

func (f format) mainKey() string {
	for _, key := range sortedKeys(f) {
		if f[key].main {
			return key
		}
	}

	return ""
}

func (f format) check(path string, p properties) error {
	var wrong []string

	for _, key := range sortedKeys(f) {
		value, there := p[key]
		complaint := ""

		switch {
		case there:
			complaint = f[key].complaint(path+"."+key, value)
		case f[key].required:
			complaint = "property is missing and it is not optional"
		}

		if needed := f[key].requires; there && needed != "" && p[needed] == "" {
			wrong = append(wrong, fmt.Sprintf("%s.%s: missing property - '%s.%s' requires this property", path, needed, path,
				key))
		}

		if complaint != "" {
			wrong = append(wrong, path+"."+key+": "+complaint)
		}
	}

	if len(wrong) == 0 {
		return nil
	}

	return errors.New("format error\n" + strings.Join(wrong, "\n"))
}

// plainBoolean is how Proxmox VE understands the words for yes and no.
func plainBoolean(value string) string {
	switch strings.ToLower(value) {
	case "1", "on", "yes", "true":
		return "1"
	case "0", "off", "no", "false":
		return "0"
	default:
		return value
	}
}
