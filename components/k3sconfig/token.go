package k3sconfig

import (
	"errors"
	"regexp"
)

// K3s takes two other forms of tokens for something else than a password: one that begins with the hash of an authority
// ("K10<hash>::server:<password>"), which has colons, and the bootstrap tokens of Kubernetes.
var (
	passwordForm  = regexp.MustCompile(`^[A-Za-z0-9._~+/=-]{16,}$`)
	bootstrapForm = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)
)

// CheckToken checks that a token is a password by itself. The error does not quote it.
func CheckToken(token string) error {
	if !passwordForm.MatchString(token) || bootstrapForm.MatchString(token) {
		return errors.New("must be a password of at least 16 letters, digits and . _ ~ + / = -, and no bootstrap token or " +
			"full token of K3s")
	}

	return nil
}
