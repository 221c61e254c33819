package kubeapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// TestRemoved: objects of an API that the next version has no more are counted; where the API is not even there, there
// are none.
func TestRemoved(t *testing.T) {
	const kind = "/apis/resource.k8s.io/v1alpha3/podschedulingcontexts"

	for name, c := range map[string]struct {
		status int
		from   string
		want   []string
		err    string
	}{
		"in use": {http.StatusOK, "v1.31.4", []string{
			"2 objects use podschedulingcontexts.v1alpha3.resource.k8s.io, an API that is removed in Kubernetes " +
				"v1.32.0: migrate them to its successor first",
		}, ""},
		"not there":       {http.StatusNotFound, "v1.31.4", nil, ""},
		"forbidden":       {http.StatusForbidden, "v1.31.4", nil, "unknown"},
		"no minor change": {http.StatusOK, "v1.32.0", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, kind, r.URL.Path)
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(c.status)

				const item = `{"apiVersion":"resource.k8s.io/v1alpha3","kind":"PodSchedulingContext","metadata":{"name":"x"}}`

				fmt.Fprintf(w, `{"apiVersion":"resource.k8s.io/v1alpha3","kind":"PodSchedulingContextList","items":[%s,%s]}`, item,
					item)
			}))
			t.Cleanup(server.Close)

			found, err := (&Client{config: &rest.Config{Host: server.URL}}).Removed(t.Context(), c.from, "v1.32.0")
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
			} else {
				require.NoError(t, err)
			}

			assert.Equal(t, c.want, found)
		})
	}
}
