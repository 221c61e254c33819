package k3sconfig

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFinished reads the status as cloud-init writes it at different times.
func TestFinished(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		status   string
		finished bool
		failed   []string
		err      string
	}{
		"under way": {status: `{"v1": {"datasource": "DataSourceNoCloud", "stage": "modules-final", "init": {"errors": [], "finished": 12.3, "start": 11.0},
			"modules-final": {"errors": [], "finished": null, "start": 20.5}}}`},
		"before the last stage": {status: `{"v1": {"stage": null, "modules-config": {"errors": [], "finished": 12.3}}}`},
		"done": {
			status:   `{"v1": {"stage": null, "modules-final": {"errors": [], "finished": 40.5}}}`,
			finished: true,
		},
		"failed": {
			status:   `{"v1": {"stage": null, "modules-final": {"errors": ["('package_update_upgrade_install', ...)"], "finished": 40.5}}}`,
			finished: true, failed: []string{"('package_update_upgrade_install', ...)"},
		},
		"no status": {status: "{", err: "cloud-init's status cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			finished, failed, err := Finished(c.status)
			if c.err != "" {
				require.EqualError(t, err, c.err)
			}

			assert.Equal(t, c.finished, finished)
			assert.Equal(t, c.failed, failed)
		})
	}
}

func TestTail(t *testing.T) {
	t.Parallel()

	assert.Equal(t, "b\nc", Tail("a\nb\nc\n", 2))
	assert.Equal(t, "a", Tail("a", 2))
	assert.Empty(t, Tail("", 2))
	assert.Equal(t, "a\n[31mb\tä", Tail("a\r\n\x1b[31mb\t\u009bä\x00\n", 2), "a terminal obeys nothing of it")
}

// TestAdvice: what servers refuse is explained, in the words of the versions of K3s that say it differently.
func TestAdvice(t *testing.T) {
	t.Parallel()

	for log, want := range map[string]string{
		"level=error msg=\"Failed to validate connection to cluster at https://10.0.0.11:6443: token CA hash does not " +
			"match the Cluster CA certificate hash: 1 != 2\"": "its servers have a different certificate authority " +
			"than the state",
		"level=info msg=\"Waiting to retrieve agent configuration; server is not ready: " +
			"https://127.0.0.1:6444/v1-k3s/config: 401 Unauthorized\"": "its servers reject its token",
		"level=error msg=\"Failed to validate connection to cluster at https://10.0.0.11:6443: tls: failed to verify " +
			"certificate: x509: certificate has expired or is not yet valid: current time 2026-01-01T00:00:00Z is before " +
			"2026-01-01T05:00:00Z\"": "its clock or that of its servers is wrong",
		"level=fatal msg=\"Error: preparing server: failed to bootstrap cluster data: failed to validate server " +
			"configuration: critical configuration value mismatch between servers\"": "its settings differ from those of " +
			"the server that it joins at",
		"level=info msg=\"Waiting for the agent's containerd\"": "",
	} {
		if want == "" {
			require.Empty(t, Advice(log))
		} else {
			require.Contains(t, Advice(log), want)
		}
	}
}
