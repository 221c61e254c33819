// Package factoryapi is a client of Talos' Image Factory.
package factoryapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// requestTimeout bounds a request.
const requestTimeout = 10 * time.Second

// Extensions are the names of the extensions that a factory has for a version of Talos.
func Extensions(ctx context.Context, factory, talos string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	at, err := url.JoinPath(factory, "version", talos, "extensions", "official")
	if err != nil {
		return nil, err
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}

	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()

	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", at, response.Status)
	}

	var all []struct {
		Name string `json:"name"`
	}

	if err := json.NewDecoder(response.Body).Decode(&all); err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}

	names := make([]string, 0, len(all))
	for _, e := range all {
		names = append(names, e.Name)
	}

	return names, nil
}
