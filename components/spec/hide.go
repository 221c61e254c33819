package spec

import "regexp"

// hidden is what kernel arguments hold that must not be shown: the value of what is called like a secret, and the login
// and the query of an address: a token in it may have any name.
var hidden = []struct {
	pattern *regexp.Regexp
	shown   string
}{
	{regexp.MustCompile(`(?i)([\w.-]*(?:token|secret|passw|passphrase|(?:auth|api|private|join)[_-]?key|credential|psk|` +
		`talos\.config\.(?:inline|early))[\w.-]*=)("[^"]*"|'[^']*'|[^&\s'"]+)`), "${1}***"},
	{regexp.MustCompile(`://[^/@\s]+@`), "://***@"},
	{regexp.MustCompile(`(://[^\s'"?]*\?)[^\s'"]+`), "${1}***"},
}

// HideSecrets is a text with kernel arguments, or arguments of a command, as every user with access may see it.
func HideSecrets(text string) string {
	for _, h := range hidden {
		text = h.pattern.ReplaceAllString(text, h.shown)
	}

	return text
}
