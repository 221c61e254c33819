// Package terminal makes texts of others safe to print.
package terminal

import (
	"strings"
	"unicode"
)

// Plain is a text without the control characters that a terminal would obey, and those that reorder what is read.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			return -1
		}

		return r
	}, text)
}

// Error is an error whose text is plain; nil for none.
func Error(err error) error {
	if err == nil || Plain(err.Error()) == err.Error() {
		return err
	}

	return plainError{err}
}

type plainError struct{ error }

// Error implements error.
func (e plainError) Error() string { return Plain(e.error.Error()) }

// Unwrap returns the error as it came.
func (e plainError) Unwrap() error { return e.error }
