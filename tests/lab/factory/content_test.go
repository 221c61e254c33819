package factory_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
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

// TestCompressedImages holds that what can be decompressed holds the image, of the image's size.
func TestCompressedImages(t *testing.T) {
	for size, want := range map[int64]int64{
		1 << 16: 1 << 16, 16: factory.HeadSize, 300_001: 300_001, 20 << 20: 20 << 20, factory.HeadSize: factory.HeadSize,
	} {
		for _, file := range []string{
			"metal-amd64.raw.zst", "metal-amd64.raw.gz", "nocloud-amd64.qcow2.zst", "nocloud-amd64.qcow2.gz",
			"metal-amd64.raw.tar.gz", "metal-amd64-secureboot.raw.zst",
		} {
			f := factory.New(factory.Options{Size: func(factory.Asset) int64 { return size }})
			a, err := factory.ParseFile(factory.Plain, "v1.12.4", file)
			require.NoError(t, err)
			require.Equal(t, file, a.File())

			identified, ok := factory.Identify(f.Head(a))
			require.True(t, ok)
			require.Equal(t, a, identified)

			body := read(t, f, "/image/"+factory.Plain+"/v1.12.4/"+file)
			require.Len(t, body, int(f.Size(a)))

			plain := decompressed(t, a.Compression, body)
			require.Len(t, plain, int(want), file)

			if a.Compression != "tar.gz" {
				a.Compression = ""
			}

			identified, ok = factory.Identify(plain)
			require.True(t, ok)
			require.Equal(t, a, identified, "an archive is no disk")
		}
	}
}

func decompressed(t *testing.T, compression, body string) []byte {
	t.Helper()

	if compression == "zst" {
		d, err := zstd.NewReader(strings.NewReader(body), zstd.WithDecoderConcurrency(1))
		require.NoError(t, err)
		plain, err := io.ReadAll(d)
		require.NoError(t, err)

		return plain
	}

	d, err := gzip.NewReader(strings.NewReader(body))
	require.NoError(t, err)
	plain, err := io.ReadAll(d)
	require.NoError(t, err)

	if compression == "gz" {
		return plain
	}

	archive := tar.NewReader(bytes.NewReader(plain))
	header, err := archive.Next()
	require.NoError(t, err)
	require.Equal(t, "disk.raw", header.Name)

	file, err := io.ReadAll(archive)
	require.NoError(t, err)

	return file
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
