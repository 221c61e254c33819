package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/ryanuber/go-glob"
)

// What varies from one answer to the next.
var (
	uuids  = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	times  = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	hashes = regexp.MustCompile(`\b(web|alone|held|agent)(-[a-z0-9]{6,10})?-[a-z0-9]{5}\b`) // pods of controllers
	cidrs  = regexp.MustCompile(`10\.244\.\d+\.0/24`)
	tokens = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)
	sums   = regexp.MustCompile(`X509SHA256=[0-9a-f]+`)
	stored = regexp.MustCompile(`(in record \(|version:)\d+`)
	ages   = regexp.MustCompile(`^\d+[smh](\d+[smh])?$`)
)

// plain takes out of a text what varies.
func (s *side) plain(v string) string {
	v = strings.ReplaceAll(v, s.address, "<address>")
	v = uuids.ReplaceAllString(v, "<uid>")
	v = times.ReplaceAllString(v, "<time>")
	v = stored.ReplaceAllString(v, "$1<version>")
	v = cidrs.ReplaceAllString(v, "<cidr>")
	v = tokens.ReplaceAllString(v, "<token>")
	v = sums.ReplaceAllString(v, "<sum>")
	v = hashes.ReplaceAllString(v, "$1-<pod>")

	return ages.ReplaceAllString(v, "<age>")
}

// record puts an answer on the tape.
func (s *side) record(label string, a answer) {
	facts := map[string]string{"code": strconv.Itoa(a.code)}

	for _, h := range []string{"Content-Type", "Warning", "Retry-After"} {
		for i, v := range a.header.Values(h) {
			facts[fmt.Sprintf("header.%s[%d]", h, i)] = s.plain(v)
		}
	}

	var body any
	if json.Unmarshal(a.body, &body) == nil {
		s.flatten(facts, "body", body)
	} else {
		facts["body"] = s.plain(string(a.body))
	}

	s.tape = append(s.tape, entry{label, facts})
}

// flatten writes the leaves of a document by their paths. Fields whose value cannot be foreseen have none.
func (s *side) flatten(out map[string]string, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			out[path] = "{}"
		}

		for key, value := range v {
			switch {
			case key == "managedFields":
				continue
			case key == "resourceVersion" && value != "":
				value = "<version>"
			}

			s.flatten(out, path+"."+key, value)
		}
	case []any:
		if len(v) == 0 {
			out[path] = "[]"
		}

		for i, value := range v {
			s.flatten(out, path+"["+identity(value, i)+"]", value)
		}
	default:
		out[path] = s.plain(fmt.Sprint(v))
	}
}

// identity is what an element of a list is known by.
func identity(v any, i int) string {
	m, _ := v.(map[string]any)

	for _, key := range []string{"name", "type", "groupVersion", "key"} {
		if id, ok := m[key].(string); ok && id != "" && m["reason"] == nil {
			return tokens.ReplaceAllString(id, "<token>")
		}
	}

	if meta, ok := m["metadata"].(map[string]any); ok {
		if id, ok := meta["name"].(string); ok {
			return id
		}
	}

	return strconv.Itoa(i)
}

// difference is a fact that is not the same on both sides. What is not there is "-", and the path says that it is
// missing in the lab, or extra.
type difference struct{ label, path, real, lab string }

func (d difference) String() string {
	return fmt.Sprintf("%s: %s\n    real: %s\n    lab:  %s", d.label, d.path, d.real, d.lab)
}

// known is a difference that stays, with the reason. Label and path may have stars.
type known struct{ label, path, why string }

// compare fails for each difference that is not known, and for what is known and no longer true.
func compare(t *testing.T, real, lab *side, table []known) {
	t.Helper()

	used := make([]bool, len(table))

	for _, d := range differences(t, real.tape, lab.tape) {
		i := slices.IndexFunc(table, func(k known) bool { return glob.Glob(k.label, d.label) && glob.Glob(k.path, d.path) })
		if i < 0 {
			t.Errorf("%s", d)

			continue
		}

		used[i] = true
	}

	for i, k := range table {
		if !used[i] {
			t.Errorf("%s: %s does not differ any more: take it out of the table", k.label, k.path)
		}
	}
}

func differences(t *testing.T, real, lab []entry) []difference {
	t.Helper()

	if len(real) != len(lab) {
		t.Fatalf("%d answers of the real one, %d of the lab's", len(real), len(lab))
	}

	var out []difference

	for i, r := range real {
		l := lab[i]
		if r.label != l.label {
			t.Fatalf("%s became %s", r.label, l.label)
		}

		if r.facts["code"] != l.facts["code"] {
			// then there is nothing alike in the bodies
			out = append(out, difference{r.label, "answer", gist(r.facts), gist(l.facts)})

			continue
		}

		all := maps.Clone(r.facts)
		maps.Copy(all, l.facts)

		for _, path := range sorted(all) {
			a, inReal := r.facts[path]
			b, inLab := l.facts[path]

			if inReal && inLab && a == b {
				continue
			}

			switch {
			case !inReal:
				out = append(out, difference{r.label, path + " extra", "-", b})
			case !inLab:
				out = append(out, difference{r.label, path + " missing", a, "-"})
			default:
				out = append(out, difference{r.label, path, a, b})
			}
		}
	}

	return out
}

// gist is what an answer says in one line.
func gist(facts map[string]string) string {
	return strings.Join(strings.Fields(strings.Join([]string{
		facts["code"], facts["body.reason"], facts["body.message"], facts["body"],
	}, " ")), " ")
}

func sorted(m map[string]string) []string {
	keys := slices.Collect(maps.Keys(m))
	sort.Strings(keys)

	return keys
}
