// Package shellword writes words of commands that are printed to be copied.
package shellword

import (
	"regexp"
	"strings"
)

// plain is what no shell takes for anything but itself.
var plain = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// Quote is a word as a shell reads it. The brackets of an IPv6 address are a pattern to some.
func Quote(word string) string {
	if plain.MatchString(word) {
		return word
	}

	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
