package factory_test

import (
	"encoding/binary"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/factory"
	"talos-proxmox/tests/lab/journal"
)

// TestCompressedImages holds that what can be decompressed holds the raw image, of the raw image's size.
func TestCompressedImages(t *testing.T) {
	for size, want := range map[int64]int64{
		1 << 16: 1 << 16, 16: factory.HeadSize, 300_001: 300_001,
		factory.HeadSize: factory.HeadSize,
	} {
		f := factory.New(factory.Options{Size: func(factory.Asset) int64 { return size }})
		a := factory.Asset{Schematic: factory.Plain, Version: "v1.12.4", Platform: "metal", Compression: "zst"}

		identified, ok := factory.Identify(f.Head(a))
		require.True(t, ok)
		require.Equal(t, a, identified)

		body := read(t, f, "/image/"+factory.Plain+"/v1.12.4/metal-amd64.raw.zst")
		require.Len(t, body, int(f.Size(a)))

		d, err := zstd.NewReader(strings.NewReader(body), zstd.WithDecoderConcurrency(1))
		require.NoError(t, err)
		raw, err := io.ReadAll(d)
		require.NoError(t, err)
		require.Len(t, raw, int(want))

		a.Compression = ""
		identified, ok = factory.Identify(raw)
		require.True(t, ok)
		require.Equal(t, a, identified)
	}
}

func TestQCOW2(t *testing.T) {
	f := factory.New(factory.Options{})
	a := factory.Asset{Schematic: factory.Plain, Version: "v1.12.4", Platform: "nocloud", QCOW2: true}

	head := f.Head(a)
	require.Equal(t, "QFI\xfb", string(head[:4]))
	require.EqualValues(t, 1306<<20, binary.BigEndian.Uint64(head[24:]))

	identified, ok := factory.Identify(head)
	require.True(t, ok)
	require.Equal(t, a, identified)
	require.Equal(t, "nocloud-amd64.qcow2", a.File())
}

func read(t *testing.T, f *factory.Factory, path string) string {
	t.Helper()

	_, c := listen(t, f)
	code, body := c.do(http.MethodGet, path, "")
	require.Equal(t, http.StatusOK, code, body)

	return body
}

func TestMirrorAndFaults(t *testing.T) {
	j := &journal.Journal{}
	f, c := start(t, factory.Options{Journal: j})
	f.Mirror("/isos/talos-1.12.4.iso", factory.Asset{
		Schematic: factory.Plain, Version: "v1.12.4", Platform: "metal",
		ISO: true,
	})

	code, body := c.do(http.MethodGet, "/isos/talos-1.12.4.iso", "")
	require.Equal(t, http.StatusOK, code)
	require.Len(t, body, 1<<16)

	code, _ = c.do(http.MethodGet, "/isos/talos-1.12.5.iso", "")
	require.Equal(t, http.StatusNotImplemented, code)

	j.Plant(journal.Fault{
		Face: journal.Factory, Call: regexp.MustCompile(`GET .*\.iso`), Kind: journal.Replace,
		Message: "Not Found",
	})
	code, body = c.do(http.MethodGet, "/isos/talos-1.12.4.iso", "")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "Not Found", body)

	j.Plant(journal.Fault{Face: journal.Factory, Call: regexp.MustCompile(`GET .*\.iso`), Kind: journal.Truncate})

	response, err := http.Get(c.url + "/isos/talos-1.12.4.iso")
	require.NoError(t, err)

	defer response.Body.Close()

	require.EqualValues(t, 1<<16, response.ContentLength)
	got, err := io.ReadAll(response.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Len(t, got, 1<<15)
}
