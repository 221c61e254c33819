// Package zxcvbn takes the place of ccojocar/zxcvbn-go, a fork of the package that it asks: the CLI imports both, this
// one for 'pulumi env set' alone, and each loads its dictionaries whenever the CLI starts, a quarter of that time.
package zxcvbn

import (
	zxcvbn "github.com/nbutton23/zxcvbn-go"
	"github.com/nbutton23/zxcvbn-go/scoring"
)

// PasswordStrength is that of the other package.
func PasswordStrength(password string, userInputs []string) scoring.MinEntropyMatch {
	return zxcvbn.PasswordStrength(password, userInputs)
}
