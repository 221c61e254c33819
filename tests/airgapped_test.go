package tests

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/siderolabs/crypto/x509"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/rehearsal"
)

// TestAirGapped follows stacks/docs/air-gapped.md: its stack comes up while the Image Factory and the world outside
// refuse all that they are asked, and neither is asked at all.
func TestAirGapped(t *testing.T) {
	t.Parallel()

	ca, err := x509.NewSelfSignedCertificateAuthority()
	require.NoError(t, err)

	// A text of JSON is one of YAML.
	authority, err := json.Marshal(string(ca.CrtPEM))
	require.NoError(t, err)

	text := strings.ReplaceAll(airGapped(t)[0], "registry-ca.pem", string(authority))

	r := rehearse(t, stackFile(t, text))

	for _, face := range []journal.Face{journal.Factory, journal.Guest} {
		r.Lab.Journal().Plant(journal.Fault{
			Face: face, Call: regexp.MustCompile(""), Times: 1 << 20, Kind: journal.Refuse, Message: "no route to host",
		})
	}

	outputs := upResult(t, r.Stack).Outputs
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

// airGapped are the stacks of stacks/docs/air-gapped.md: Talos, and K3s.
func airGapped(t *testing.T) []string {
	t.Helper()

	page := readFile(t, filepath.Join(root, "stacks", "docs", "air-gapped.md"))

	var shown []string
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1) {
		shown = append(shown, string(block[1]))
	}

	require.Len(t, shown, 2)

	return shown
}

// TestK3sAirGapped: K3s comes up and is upgraded from the mirrors of the page's stack, while the world outside refuses
// all that it is asked, and is not asked at all.
func TestK3sAirGapped(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, airGapped(t)[1]), func(o *rehearsal.Options) {
		o.Releases = []string{"v1.34.2+k3s1", "v1.34.3+k3s1"}
	})
	r.Lab.Journal().Plant(journal.Fault{
		Face: journal.Guest, Call: regexp.MustCompile(""), Times: 1 << 20, Kind: journal.Refuse, Message: "no route to host",
	})

	api := kubernetesClient(t, upResult(t, r.Stack).Outputs)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireNoChange(t, r.Stack)

	set(t, r.Stack, "cluster.versions.k3s", "v1.34.3+k3s1")
	up(t, r.Stack)
	assert.Equal(t, []string{"edge-agent-1 v1.34.3+k3s1", "edge-server-1 v1.34.3+k3s1"}, versionsOf(t, api))

	asked := map[string]int{}

	for _, e := range r.Lab.Journal().Entries() {
		assert.NotEqual(t, journal.Guest, e.Face, "%s", e)

		if e.Face == journal.Mirror {
			asked[e.Call]++
		}
	}

	for _, version := range []string{"v1.34.2", "v1.34.3"} {
		for _, file := range []string{"install.sh", "k3s", "sha256sum-amd64.txt", "k3s-airgap-images-amd64.tar.zst"} {
			call := "GET https://mirror.lan/k3s/" + version + "%2Bk3s1/" + file
			assert.Equal(t, 2, asked[call], call)
		}
	}

	assert.Equal(t, 2, asked["GET http://mirror.lan/ubuntu"])
}
