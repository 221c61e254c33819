package factoryapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/factoryapi"
)

// TestExtensions: the names are those of the version, below the path of the factory.
func TestExtensions(t *testing.T) {
	t.Parallel()

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/below/version/v1.12.4/extensions/official" {
			http.Error(w, "version is not available", http.StatusNotFound)

			return
		}

		_, _ = w.Write([]byte(`[{"name":"siderolabs/zfs","ref":"ghcr.io/siderolabs/zfs:2.3"}]`))
	}))
	defer server.Close()

	names, err := factoryapi.Extensions(t.Context(), server.URL+"/below", "v1.12.4")
	require.NoError(t, err)
	assert.Equal(t, []string{"siderolabs/zfs"}, names)

	_, err = factoryapi.Extensions(t.Context(), server.URL+"/below", "v0.1.0")
	assert.ErrorContains(t, err, "404 Not Found")
	assert.True(t, strings.Contains(err.Error(), server.URL))
}
