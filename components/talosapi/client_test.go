package talosapi

import (
	"encoding/base64"
	"encoding/pem"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCAFingerprint(t *testing.T) {
	t.Parallel()

	of := func(kind, content string) Credentials {
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte(content)})

		return Credentials{CA: base64.StdEncoding.EncodeToString(text)}
	}

	got, err := of("CERTIFICATE", "hello").CAFingerprint()
	require.NoError(t, err)
	assert.Equal(t, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", got)

	for _, wrong := range []Credentials{{}, {CA: "-"}, of("PRIVATE KEY", "hello")} {
		got, err := wrong.CAFingerprint()
		require.ErrorContains(t, err, "the Talos API")
		assert.Empty(t, got)
	}
}
