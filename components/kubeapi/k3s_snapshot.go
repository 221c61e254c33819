package kubeapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrNoSnapshots says that a server takes none on request.
var ErrNoSnapshots = errors.New("its K3s takes no snapshots on request")

// SaveK3sSnapshot asks a server of K3s for a snapshot of etcd, as 'k3s etcd-snapshot save' does, and returns its name
// (K3s: pkg/etcd/snapshot_handler.go). The authority is that of the server's certificate, PEM.
func SaveK3sSnapshot(
	ctx context.Context, address string, authority []byte, token, name string, keep int,
) (string, error) {
	body, err := json.Marshal(map[string]any{
		"operation": "save", "name": []string{name}, "retention": keep,
	})
	if err != nil {
		return "", err
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"https://"+net.JoinHostPort(address, port)+"/db/snapshot", bytes.NewReader(body))
	if err != nil {
		return "", err
	}

	request.Header.Set("Content-Type", "application/json")
	request.SetBasicAuth("server", token)

	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)

	// A snapshot takes its time, a connection does not.
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12},
		DialContext:         (&net.Dialer{Timeout: requestTimeout}).DialContext,
		TLSHandshakeTimeout: requestTimeout,
	}
	defer transport.CloseIdleConnections()

	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", renewedByK3s(err)
	}
	defer response.Body.Close()

	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return "", err
	}

	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return "", ErrNoSnapshots
	default:
		var status metav1.Status
		if json.Unmarshal(answer, &status) == nil && status.Message != "" {
			return "", errors.New(status.Message)
		}

		return "", errors.New(response.Status)
	}

	var result struct {
		Created []string `json:"created"`
	}
	if err := json.Unmarshal(answer, &result); err != nil || len(result.Created) == 0 {
		return "", errors.New("its answer names no snapshot")
	}

	return result.Created[0], nil
}
