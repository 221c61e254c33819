package factory_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/factory"
	"talos-proxmox/tests/lab/journal"
)

// The ids are those that factory.talos.dev gives.
func TestIDs(t *testing.T) {
	for text, want := range map[string]string{
		"customization: {}\n": "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba",
		"customization:\n  systemExtensions:\n    officialExtensions: [siderolabs/qemu-guest-agent]\n": "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515",
	} {
		s, err := factory.Parse([]byte(text))
		require.NoError(t, err)
		require.Equal(t, want, s.ID())
	}
}

// TestSchematicsAreShown: newer clients compare what they asked for with what the factory has kept.
func TestSchematicsAreShown(t *testing.T) {
	_, c := start(t, factory.Options{})

	code, body := c.do(http.MethodPost, "/schematics",
		"customization: {systemExtensions: {officialExtensions: [siderolabs/qemu-guest-agent]}, extraKernelArgs: [net.ifnames=0]}")
	require.Equal(t, http.StatusCreated, code)

	var reply struct{ ID, Schematic string }
	require.NoError(t, json.Unmarshal([]byte(body), &reply))
	require.Equal(t, `customization:
    extraKernelArgs:
        - net.ifnames=0
    systemExtensions:
        officialExtensions:
            - siderolabs/qemu-guest-agent
`, reply.Schematic)

	code, body = c.do(http.MethodGet, "/schematics/"+reply.ID, "")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, reply.Schematic, body)

	code, body = c.do(http.MethodGet, "/schematics/"+factory.Plain, "")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "customization: {}\n", body)

	code, body = c.do(http.MethodGet, "/schematics/"+strings.Repeat("0", 64), "")
	require.Equal(t, http.StatusNotFound, code)
	require.Equal(t, "schematic not found\n", body)
}

type client struct {
	*testing.T
	url string
}

func start(t *testing.T, o factory.Options) (*factory.Factory, client) {
	t.Helper()

	o.Size = func(factory.Asset) int64 { return 1 << 16 }

	return listen(t, factory.New(o))
}

func listen(t *testing.T, f *factory.Factory) (*factory.Factory, client) {
	t.Helper()

	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)

	return f, client{t, srv.URL}
}

func (c client) do(method, path, body string) (int, string) {
	c.Helper()

	req, err := http.NewRequestWithContext(c.Context(), method, c.url+path, strings.NewReader(body))
	require.NoError(c, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(c, err)

	defer resp.Body.Close()

	got, err := io.ReadAll(resp.Body)
	require.NoError(c, err)

	return resp.StatusCode, string(got)
}

func TestImages(t *testing.T) {
	f, c := start(t, factory.Options{})

	code, body := c.do(http.MethodPost, "/schematics",
		`{customization: {extraKernelArgs: [net.ifnames=0], meta: [{key: 10, value: "{}"}]}}`)
	require.Equal(t, http.StatusCreated, code)

	var reply struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(body), &reply))

	s, ok := f.Schematic(reply.ID)
	require.True(t, ok)
	require.Equal(t, []string{"net.ifnames=0"}, s.Customization.ExtraKernelArgs)

	code, body = c.do(http.MethodGet, "/image/"+reply.ID+"/v1.12.4/nocloud-amd64.raw.xz", "")
	require.Equal(t, http.StatusOK, code)
	require.Len(t, body, 1<<16)

	a, ok := factory.Identify([]byte(body[:factory.HeadSize]))
	require.True(t, ok)
	require.Equal(t, factory.Asset{Schematic: reply.ID, Version: "v1.12.4", Platform: "nocloud", Compression: "xz"}, a)

	for path, want := range map[string]int{
		"/image/" + strings.Repeat("0", 64) + "/v1.12.4/metal-amd64.iso": http.StatusNotFound,
		"/image/" + reply.ID + "/v0.1.0/metal-amd64.iso":                 http.StatusNotFound,
		"/image/" + reply.ID + "/v1.12.4/metal-amd64.vdi":                http.StatusBadRequest,
		"/image/" + reply.ID + "/v1.12.4/metal-amd64.iso.gz":             http.StatusBadRequest,
		"/image/" + reply.ID + "/v1.12.4/metal-riscv.iso":                http.StatusBadRequest,
		"/image/" + reply.ID + "/1.12.4/metal-amd64.iso":                 http.StatusOK,
	} {
		code, body := c.do(http.MethodGet, path, "")
		require.Equal(t, want, code, "%s: %s", path, body)
	}

	// What changes nothing is the schematic of the official images, new or not.
	for _, text := range []string{"customization: {}", "{}"} {
		code, body = c.do(http.MethodPost, "/schematics", text)
		require.Equal(t, http.StatusCreated, code, text)
		require.NoError(t, json.Unmarshal([]byte(body), &reply))
		require.Equal(t, factory.Plain, reply.ID, text)
	}

	code, _ = c.do(http.MethodGet, "/image/"+factory.Plain+"/v1.12.4/metal-amd64.iso", "")
	require.Equal(t, http.StatusOK, code)
}

func TestWrongSchematics(t *testing.T) {
	_, c := start(t, factory.Options{})

	code, body := c.do(http.MethodPost, "/schematics", "customization:\n  extensions: [a]\n")
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, body, "extensions")

	// an extension that does not exist is found out when an image is asked for
	code, body = c.do(http.MethodPost, "/schematics",
		"customization: {systemExtensions: {officialExtensions: [siderolabs/nothing]}}")
	require.Equal(t, http.StatusCreated, code)

	var reply struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(body), &reply))

	code, body = c.do(http.MethodGet, "/image/"+reply.ID+"/v1.12.4/metal-amd64.iso", "")
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, body, "siderolabs/nothing")
}

// TestNotPlayed: what the real factory makes and the lab's does not is refused, and noted.
func TestNotPlayed(t *testing.T) {
	for _, file := range []string{
		"kernel-amd64", "initramfs-amd64.xz", "metal-amd64.vhd", "vmware-amd64.ova", "aws-amd64.raw.xz", "metal-arm64.iso",
		"metal-arm64-secureboot.iso", "metal-amd64-uki.efi", "metal-amd64-secureboot-uki.efi", "installer-amd64.tar",
	} {
		j := &journal.Journal{}
		_, c := start(t, factory.Options{Journal: j})

		code, _ := c.do(http.MethodGet, "/image/"+factory.Plain+"/v1.12.4/"+file, "")
		require.Equal(t, http.StatusNotImplemented, code, file)
		require.ErrorContains(t, j.Unknown(), file)
	}

	j := &journal.Journal{}
	_, c := start(t, factory.Options{Journal: j})
	code, body := c.do(http.MethodPost, "/schematics", "customization: {embeddedMachineConfiguration: 'machine: {}'}")
	require.Equal(t, http.StatusNotImplemented, code)
	require.Contains(t, body, "embedded machine configuration")
	require.Error(t, j.Unknown())
}

// TestRenamedExtension: the factory still takes the name that an extension had.
func TestRenamedExtension(t *testing.T) {
	_, c := start(t, factory.Options{})

	_, body := c.do(http.MethodPost, "/schematics",
		"customization: {systemExtensions: {officialExtensions: [siderolabs/i915-ucode]}}")

	var reply struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(body), &reply))

	code, _ := c.do(http.MethodGet, "/image/"+reply.ID+"/v1.12.4/metal-amd64.iso", "")
	require.Equal(t, http.StatusOK, code)
}

func TestLists(t *testing.T) {
	_, c := start(t, factory.Options{Versions: []string{"v1.12.4"}})

	_, body := c.do(http.MethodGet, "/versions", "")
	require.JSONEq(t, `["v1.12.4"]`, body)

	_, body = c.do(http.MethodGet, "/version/v1.12.4/extensions/official", "")
	require.Contains(t, body, `"siderolabs/qemu-guest-agent"`)

	_, body = c.do(http.MethodGet, "/version/v1.12.4/overlays/official", "")
	require.JSONEq(t, `[]`, body)

	code, _ := c.do(http.MethodGet, "/version/v1.1.1/extensions/official", "")
	require.Equal(t, http.StatusNotFound, code)
}

func TestJournal(t *testing.T) {
	j := &journal.Journal{}
	_, c := start(t, factory.Options{Journal: j})

	j.Plant(journal.Fault{
		Face: journal.Factory, Call: regexp.MustCompile("/versions"), Kind: journal.Refuse,
		Message: "out of order",
	})

	code, body := c.do(http.MethodGet, "/versions", "")
	require.Equal(t, http.StatusInternalServerError, code)
	require.Contains(t, body, "out of order")

	// Go's client tries again by itself what it may repeat, so this one is a POST
	j.Plant(journal.Fault{Face: journal.Factory, Call: regexp.MustCompile("POST /schematics"), Kind: journal.Reset})

	_, err := http.Post(c.url+"/schematics", "application/yaml", strings.NewReader("customization: {}"))
	require.Error(t, err)
	require.NoError(t, j.Unknown())

	code, _ = c.do(http.MethodGet, "/pxe/x/y/z", "")
	require.Equal(t, http.StatusNotImplemented, code)
	require.ErrorContains(t, j.Unknown(), "GET /pxe/x/y/z")
}
