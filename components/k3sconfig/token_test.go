package k3sconfig

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCheckToken(t *testing.T) {
	t.Parallel()

	for token, fine := range map[string]bool{
		strings.Repeat("a1", 32): true, "a-token/of+the=operators": true, "short": false, "with spaces in between": false,
		"K10" + strings.Repeat("0", 64) + "::server:password": false, "abcdef.0123456789abcdef": false,
	} {
		err := CheckToken(token)
		assert.Equal(t, fine, err == nil, token)

		if err != nil {
			assert.NotContains(t, err.Error(), token)
		}
	}
}
