package k3s

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/components/k3s"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/wait"
)

// snapshotName begins the names of the snapshots. K3s adds the node and the time, and keeps lifecycle.backup.keep of a
// name on each server.
const snapshotName = "pulumi"

// errNoSnapshots says that a server takes none on request.
var errNoSnapshots = errors.New("its K3s takes no snapshots on request")

// backupEtcd has a server keep etcd on its disk before something happens to a node. Another one is asked first: what it
// keeps outlives the node.
func (c *Cluster) backupEtcd(ctx context.Context, node string) error {
	if c.Plan.Backup == nil {
		return nil
	}

	identity, known := c.Identity.Get(ctx, c.Plan.NodeTimeout)
	if !known {
		return fmt.Errorf("the identity of the cluster is not known after %s", c.Plan.NodeTimeout)
	}

	servers := slices.Clone(c.Plan.ControlPlanes())
	slices.SortStableFunc(servers, func(a, b plan.Node) int { return order(a.Name == node) - order(b.Name == node) })

	var failed []string

	for _, server := range servers {
		address := c.Addresses.Get(server.Name)
		if address == "" {
			continue
		}

		ask, cancel := context.WithTimeout(ctx, c.Plan.TransferTimeout)
		taken, err := takeSnapshot(ask, address, identity, c.Plan.Backup.Keep)

		cancel()

		switch {
		case errors.Is(err, errNoSnapshots):
			c.Warn("lifecycle.backup: " + server.Name + ": " + err.Error() + " (before April 2024); " +
				"the last one that it took by its own schedule is all there is")

			return nil
		case err == nil:
			c.Progress(fmt.Sprintf("etcd is kept on %s as %s", server.Name, taken))

			return nil
		}

		failed = append(failed, fmt.Sprintf("%s: %v", server.Name, wait.Reason(err)))
	}

	return fmt.Errorf("no server has taken a snapshot of etcd (%s); mend that, or set lifecycle.backup.enabled to false",
		strings.Join(failed, "; "))
}

// takeSnapshot asks a server for a snapshot, as 'k3s etcd-snapshot save' does, and returns its name (K3s:
// pkg/etcd/snapshot_handler.go).
func takeSnapshot(ctx context.Context, address string, identity k3s.Identity, keep int) (string, error) {
	body, err := json.Marshal(map[string]any{
		"operation": "save", "name": []string{snapshotName}, "retention": keep,
	})
	if err != nil {
		return "", err
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"https://"+net.JoinHostPort(address, "6443")+"/db/snapshot", bytes.NewReader(body))
	if err != nil {
		return "", err
	}

	request.Header.Set("Content-Type", "application/json")
	request.SetBasicAuth("server", identity.Token)

	authority := x509.NewCertPool()
	authority.AppendCertsFromPEM([]byte(identity.ServerCA.Certificate))

	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()

	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()

	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return "", err
	}

	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return "", errNoSnapshots
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
		return "", fmt.Errorf("it names no snapshot: %q", answer)
	}

	return result.Created[0], nil
}
