package faults

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/tests/lab/journal"
)

// Call is a kind of call: what is alike in calls that do the same to different things.
type Call struct {
	Face journal.Face
	// Pattern is "POST /nodes/{host}/qemu/{vm}/clone", "/machine.MachineService/Bootstrap" or "qm set".
	Pattern string
}

func (c Call) String() string { return string(c.Face) + " " + c.Pattern }

// A variable of a path: how it looks, the name that takes its place, and what matches it again.
var variables = []struct {
	looks *regexp.Regexp
	name  string
	again string
}{
	{regexp.MustCompile(`/nodes/[^/]+`), "/nodes/{host}", `/nodes/[^/]+`},
	{regexp.MustCompile(`/qemu/\d+`), "/qemu/{vm}", `/qemu/\d+`},
	{regexp.MustCompile(`/content/.+$`), "/content/{volume}", `/content/.+`},
	{regexp.MustCompile(`/storage/[^/{]+`), "/storage/{store}", `/storage/[^/]+`},
	{regexp.MustCompile(`/mapping/pci/[^/]+`), "/mapping/pci/{mapping}", `/mapping/pci/[^/]+`},
	{regexp.MustCompile(`/pools/[^/]+`), "/pools/{pool}", `/pools/[^/]+`},
	{regexp.MustCompile(`/ha/resources/[^/]+`), "/ha/resources/{resource}", `/ha/resources/[^/]+`},
	{regexp.MustCompile(`/image/[^/]+/[^/]+/.+$`), "/image/{image}", `/image/.+`},
	{regexp.MustCompile(`/version/[^/]+/official`), "/version/{version}/official", `/version/[^/]+/official`},
	{regexp.MustCompile(`/api/v1/nodes/[^/]+`), "/api/v1/nodes/{node}", `/api/v1/nodes/[^/]+`},
	{
		regexp.MustCompile(`/namespaces/[^/]+/pods/[^/]+`), "/namespaces/{namespace}/pods/{pod}",
		`/namespaces/[^/]+/pods/[^/]+`,
	},
}

// task is the id of a task in a path. Its sixth part is what the task does.
var task = regexp.MustCompile(`/tasks/(UPID[^/]+)`)

// CallOf is the kind of a call that was made; false for calls that machines make by themselves.
func CallOf(e journal.Entry) (Call, bool) {
	pattern := e.Call

	switch e.Face {
	case journal.SSH:
		pattern = command(e.Call)
	case journal.Kubernetes:
		if !operators(e.Call) {
			return Call{}, false
		}
	case journal.Proxmox, journal.Talos, journal.Factory:
	}

	pattern = task.ReplaceAllStringFunc(pattern, func(found string) string {
		plain, err := url.PathUnescape(found)
		parts := strings.Split(plain, ":")

		if err != nil || len(parts) < 6 {
			return found
		}

		return "/tasks/{" + parts[5] + "}"
	})

	for _, v := range variables {
		pattern = v.looks.ReplaceAllString(pattern, v.name)
	}

	return Call{Face: e.Face, Pattern: pattern}, true
}

// command is a command line without what it is about: "qm set", "login root".
func command(line string) string {
	words := strings.Fields(line)
	if len(words) > 0 {
		words[0] = words[0][strings.LastIndex(words[0], "/")+1:]
	}

	return strings.Join(words[:min(2, len(words))], " ")
}

// operators tells what an operator asks of the Kubernetes API from what kubelets ask of it.
func operators(call string) bool {
	method, path, _ := strings.Cut(call, " ")

	switch {
	case path == "/readyz":
		return true
	case strings.HasSuffix(path, "/eviction"):
		return method == "POST"
	case strings.HasPrefix(path, "/api/v1/nodes/"):
		return method == "DELETE" || method == "PATCH" && !strings.HasSuffix(path, "/status")
	default:
		return false
	}
}

// expression matches the calls of the kind.
func (c Call) expression() *regexp.Regexp {
	text := regexp.QuoteMeta(c.Pattern)

	if c.Face == journal.SSH {
		return regexp.MustCompile(`^(\S*/)?` + text + `\b`)
	}

	for _, v := range variables {
		text = strings.ReplaceAll(text, regexp.QuoteMeta(v.name), v.again)
	}

	text = regexp.MustCompile(`/tasks/\\{(\w+)\\}`).ReplaceAllString(text, `/tasks/UPID[^/]*(:|%3A)$1(:|%3A)[^/]*`)

	return regexp.MustCompile("^" + text + "$")
}

// count counts the calls by their kind.
func count(entries []journal.Entry) map[Call]int {
	found := map[Call]int{}

	for _, e := range entries {
		if c, ok := CallOf(e); ok {
			found[c]++
		}
	}

	return found
}

// held counts the evictions of the same pod after the first.
func held(entries []journal.Entry) (again int) {
	asked := map[string]bool{}

	for _, e := range entries {
		if e.Face != journal.Kubernetes || !strings.HasSuffix(e.Call, "/eviction") {
			continue
		}

		if asked[e.Call] {
			again++
		}

		asked[e.Call] = true
	}

	return again
}

func compare(a, b Call) int { return strings.Compare(a.String(), b.String()) }

func sorted(calls map[Call]int) []Call {
	var all []Call
	for c := range calls {
		all = append(all, c)
	}

	slices.SortFunc(all, compare)

	return all
}
