package checks

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/components/spec"
)

// IsLabel holds a text to RFC 1123, `[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?`: what Kubernetes takes for the parts of a
// node's name and Proxmox VE for a VM's. A regular expression would be slow, for this is asked of every node.
func IsLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}

	for i := range len(s) {
		if c := s[i]; c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}

	return true
}

// LinkName is what Linux takes for a bridge.
var LinkName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_.-]{0,14}$`)

// CheckBounds holds a number between two others, both included.
func (c *Checker) CheckBounds(path string, value, least, most int) {
	switch {
	case value < least:
		c.Problems.Add(path, fmt.Sprintf("must be at least %d", least), strconv.Itoa(value), "raise it")
	case value > most:
		c.Problems.Add(path, fmt.Sprintf("must be at most %d", most), strconv.Itoa(value), "lower it")
	}
}

// IsAddress says whether a text is an IP address.
func IsAddress(text string) bool {
	_, err := netip.ParseAddr(text)

	return err == nil
}

// OneOf holds a value against those there are.
func OneOf[T ~string](problems *spec.Problems, path string, value T, allowed ...T) bool {
	if slices.Contains(allowed, value) {
		return true
	}

	quoted := make([]string, len(allowed))
	for i, v := range allowed {
		quoted[i] = strconv.Quote(string(v))
	}

	problems.Add(path, "must be one of "+strings.Join(quoted, ", "), string(value), "choose one of them")

	return false
}

// At is the path of an element of a list.
func At(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// Checksum is how the operator states one.
var Checksum = regexp.MustCompile(`^sha256:([0-9a-f]{64})$`)

// CheckURL holds a text to a URL with one of the schemes, and without credentials.
func (c *Checker) CheckURL(path, text, example string, schemes ...string) {
	u, err := url.Parse(text)

	switch {
	case err == nil && u.User != nil:
		c.Problems.Add(path, "must not hold credentials: they would be in the configuration of every node", u.Redacted(),
			"leave them out")
	case err != nil || u.Host == "" || !slices.Contains(schemes, u.Scheme):
		if strings.Contains(text, "@") {
			text = "" // what stands before it may be a password
		}

		c.Problems.Add(path, "must be a URL", text, "write it like "+example)
	case spec.HasWrongPort(u):
		c.Problems.Add(path, spec.WrongPort, text, "write it like "+example)
	}
}

// CheckName holds a name, where one is set, to what Proxmox VE calls its objects.
func (c *Checker) CheckName(path string, name *string, what string) {
	if name != nil && !object.MatchString(*name) {
		c.Problems.Add(path, "must be the name of "+what, *name, "correct it")
	}
}

// Version admits what Talos, Kubernetes and Cilium release, with or without the leading v.
var Version = regexp.MustCompile(`^v?(\d+\.\d+\.\d+(?:-(?:alpha|beta|rc)\.\d+)?)$`)

// object is the name of a datastore, a resource pool, a high-availability group or a CPU type.
var object = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
