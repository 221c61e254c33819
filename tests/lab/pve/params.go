package pve

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/tests/lab/world"
)

// values are the parameters of a call, from query and body.
type values struct{ url.Values }

// maxBody is far more than any call needs.
const maxBody = 1 << 20

// read takes the parameters from where clients put them: the query, a form, or a JSON object.
func read(r *http.Request, body []byte) (values, error) {
	v := values{r.URL.Query()}

	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))

	switch {
	case len(body) == 0:
		return v, nil
	case len(body) > maxBody:
		return v, &world.Error{Code: http.StatusRequestEntityTooLarge, Reason: "for data too large"}
	case kind == "application/x-www-form-urlencoded":
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return v, &world.Error{Code: http.StatusBadRequest, Reason: "unable to parse the form"}
		}

		for key, list := range form {
			v.Values[key] = append(v.Values[key], list...)
		}

		return v, nil
	case kind == "application/json":
		return v, v.readJSON(body)
	default:
		return v, unknownError{fmt.Errorf("a body of type %q", kind)}
	}
}

func (v values) readJSON(body []byte) error {
	var object map[string]any
	if err := json.Unmarshal(body, &object); err != nil {
		return &world.Error{Code: http.StatusBadRequest, Reason: "unable to parse JSON"}
	}

	for key, value := range object {
		switch value := value.(type) {
		case nil:
		case bool:
			v.Set(key, map[bool]string{true: "1", false: "0"}[value])
		case float64:
			v.Set(key, strconv.FormatFloat(value, 'f', -1, 64))
		case string:
			v.Set(key, value)
		case []any:
			for _, e := range value {
				v.Add(key, fmt.Sprint(e))
			}
		default:
			return world.Invalid(key, "type check ('string') failed")
		}
	}

	return nil
}

// param is one parameter a call knows.
type param struct {
	kind     string // str, int, bool
	required bool
	repeated bool
}

// params are the parameters a call knows. Written as "newid:int! name full:bool": a "!" says that it must be there, a
// "*" that it may be there several times; "CONFIG" stands for every setting of a VM.
type params struct {
	known  map[string]param
	config bool
}

func parameters(spec string) params {
	p := params{known: map[string]param{}}

	for _, word := range strings.Fields(spec) {
		if word == "CONFIG" {
			p.config = true

			continue
		}

		word, required := strings.CutSuffix(word, "!")
		word, repeated := strings.CutSuffix(word, "*")

		name, kind, _ := strings.Cut(word, ":")
		if kind == "" {
			kind = "str"
		}

		p.known[name] = param{kind, required, repeated}
	}

	return p
}

// check refuses what the call does not know, and what is not as its schema wants it.
func (p params) check(v values) (values, error) {
	names := make([]string, 0, len(v.Values))
	for name := range v.Values {
		names = append(names, name)
	}
	slices.Sort(names)

	for _, name := range names {
		known, ok := p.known[name]
		setting := p.config && (world.IsOption(name) || name == "cdrom")

		if !ok && !setting {
			return v, unknownError{fmt.Errorf("parameter '%s' not implemented", name)}
		}

		if len(v.Values[name]) > 1 && !known.repeated {
			return v, world.Invalid(name, "duplicate parameter (already defined) with conflicting values!")
		}

		if err := known.verify(name, v.Get(name)); err != nil {
			return v, err
		}
	}

	for name, known := range p.known {
		if known.required && !v.Has(name) {
			return v, world.Invalid(name, "property is missing and it is not optional")
		}
	}

	return v, nil
}

func (p param) verify(name, value string) error {
	switch p.kind {
	case "int":
		if _, err := strconv.Atoi(value); err != nil {
			return world.Invalid(name, "type check ('integer') failed - got '%s'", value)
		}
	case "bool":
		if !slices.Contains([]string{"0", "1", "true", "false", "on", "off", "yes", "no"}, value) {
			return world.Invalid(name, "type check ('boolean') failed - got '%s'", value)
		}
	}

	return nil
}

// flag reads a boolean, nil when it is not there.
func (v values) flag(name string) *bool {
	if !v.Has(name) {
		return nil
	}

	on := slices.Contains([]string{"1", "true", "on", "yes"}, v.Get(name))

	return &on
}

// plain is a text, with the words for yes and no as 1 and 0.
func (v values) plain(name string) string {
	switch text := v.Get(name); text {
	case "true", "on", "yes":
		return "1"
	case "false", "off", "no":
		return "0"
	default:
		return text
	}
}

func (v values) isSet(name string) bool {
	on := v.flag(name)

	return on != nil && *on
}

func (v values) number(name string) int {
	n, _ := strconv.Atoi(v.Get(name))

	return n
}

// optionalNumber reads a number, nil when it is not there.
func (v values) optionalNumber(name string) *int {
	if !v.Has(name) {
		return nil
	}

	n := v.number(name)

	return &n
}

// text reads a text, nil when it is not there.
func (v values) text(name string) *string {
	if !v.Has(name) {
		return nil
	}

	s := v.Get(name)

	return &s
}

// list reads a list in any of the separators Proxmox VE takes.
func (v values) list(name string) []string {
	return strings.FieldsFunc(v.Get(name), func(r rune) bool { return strings.ContainsRune(",; \x00", r) })
}

// config takes the settings of a VM out of the parameters.
func (v values) config() map[string]string {
	conf := map[string]string{}

	for name := range v.Values {
		if world.IsOption(name) || name == "cdrom" {
			conf[name] = v.Get(name)
		}
	}

	return conf
}
