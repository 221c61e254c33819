package tests

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/siderolabs/crypto/x509"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/journal"
)

// TestAirGapped follows stacks/docs/air-gapped.md: its stack comes up while the Image Factory and the world outside
// refuse all that they are asked, and neither is asked at all.
func TestAirGapped(t *testing.T) {
	t.Parallel()

	page := readFile(t, filepath.Join(root, "stacks", "docs", "air-gapped.md"))
	shown := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	require.Len(t, shown, 2)

	ca, err := x509.NewSelfSignedCertificateAuthority()
	require.NoError(t, err)

	// A text of JSON is one of YAML.
	authority, err := json.Marshal(string(ca.CrtPEM))
	require.NoError(t, err)

	text := bytes.ReplaceAll(shown[1], []byte("registry-ca.pem"), authority)

	r := rehearse(t, stackFile(t, string(text)))

	for _, face := range []journal.Face{journal.Factory, journal.Guest} {
		r.Lab.Journal().Plant(journal.Fault{
			Face: face, Call: regexp.MustCompile(""), Times: 1 << 20, Kind: journal.Refuse, Message: "no route to host",
		})
	}

	outputs := up(t, r.Stack).Outputs
	require.NoError(t, r.WaitReady(t.Context(), wait), "which takes Cilium")
	requireNoChange(t, r.Stack)

	for _, e := range r.Lab.Journal().Entries() {
		assert.NotContains(t, []journal.Face{journal.Factory, journal.Guest}, e.Face, "%s", e)
		assert.NotRegexp(t, `download-url|query-url-metadata`, e.Call)
	}

	for name, text := range configurations(t, r, outputs) {
		for _, want := range []string{
			"kind: RegistryMirrorConfig", "https://registry.lan:5000", "kind: TrustedRootsConfig", "BEGIN CERTIFICATE",
			"- " + r.Plan.TimeServers[0],
		} {
			assert.Contains(t, text, want, name)
		}

		assert.NotContains(t, text, "discovery.talos.dev", name)
		assert.NotContains(t, text, "time.cloudflare.com", name)
	}
}
