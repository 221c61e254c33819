package wait

import (
	"regexp"
	"strings"
)

// ClockError says that one side takes the certificate of the other for expired, or not yet valid.
type ClockError struct {
	// Fact is what is known.
	Fact string
	// Expired says that it is the other side's certificate that has expired, by the clock of this machine.
	Expired bool
}

func (e ClockError) Error() string {
	return e.Fact + ": its clock or that of this machine is wrong; correct it ('date -u' shows it), then run " +
		"'pulumi up' again"
}

// validity is how crypto/x509 says that a certificate is not good now.
var validity = regexp.MustCompile(`current time \S+ is (before|after) (\S+[0-9Z])`)

// Clock finds in the text of an error what clocks may be the cause of. Its own text does not change with the time, or
// each second would have news.
func Clock(text string) (ClockError, bool) {
	m := validity.FindStringSubmatch(text)

	switch {
	case m != nil && m[1] == "after":
		return ClockError{Fact: "its certificate has expired at " + m[2], Expired: true}, true
	case m != nil:
		return ClockError{Fact: "its certificate is not valid before " + m[2]}, true
	case strings.Contains(text, "remote error: tls: expired certificate"):
		return ClockError{Fact: "it rejects the certificate of this program as expired, or not yet valid"}, true
	default:
		return ClockError{}, false
	}
}
