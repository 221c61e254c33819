package terminal

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPlain(t *testing.T) {
	for text, want := range map[string]string{
		"a\tb\nc":                    "a\tb\nc",
		"\x1b[2J\x1b]0;x\agone\r":    "[2J]0;xgone",
		"c1 \u009b31m and \u202eabc": "c1 31m and abc",
		"größer 日本":                  "größer 日本",
	} {
		assert.Equal(t, want, Plain(text))
	}
}

func TestError(t *testing.T) {
	require.NoError(t, Error(nil))
	assert.Equal(t, io.EOF, Error(io.EOF))

	err := Error(fmt.Errorf("\x1b[2Jread: %w", io.EOF))
	require.EqualError(t, err, "[2Jread: EOF")
	assert.True(t, errors.Is(err, io.EOF))
}
