package spec

import (
	"net/url"
	"strconv"
)

// WrongPort is the rule that a URL or a host breaks for which HasWrongPort holds.
const WrongPort = "must have a port from 1 to 65535"

// HasWrongPort says that a URL has a port that there is not. Without one, it has that of its scheme.
func HasWrongPort(u *url.URL) bool { return u.Port() != "" && !IsPort(u.Port()) }

// IsPort says whether a text is the number of a port.
func IsPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)

	return err == nil && n > 0
}
