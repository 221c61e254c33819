package engine

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// source is a repository in which everything to be built is tiny. Its pulumi prints its version and does nothing else.
func source(t *testing.T) string {
	return write(t, map[string]string{
		"go.mod": "module " + module + "\n\nrequire (\n\tgithub.com/pulumiverse/pulumi-talos/sdk v0.7.1\n" +
			"\tgithub.com/muhlba91/pulumi-proxmoxve/sdk/v6 v6.18.1\n)\n",
		"tests/engine/cli/go.mod": "module cli\n\ngo 1.26\n\nrequire github.com/pulumi/pulumi/pkg/v3 v3.259.0\n" +
			"require github.com/pulumi/pulumi/sdk/v3 v3.259.0\n\n" +
			"replace github.com/pulumi/pulumi/pkg/v3 => ./pkg\nreplace github.com/pulumi/pulumi/sdk/v3 => ./sdk\n",
		"tests/engine/cli/pkg/go.mod": "module github.com/pulumi/pulumi/pkg/v3\n\ngo 1.26\n",
		"tests/engine/cli/pkg/cmd/pulumi/main.go": "package main\n\nimport (\n\t\"fmt\"\n\n" +
			"\t\"github.com/pulumi/pulumi/sdk/v3/go/common/version\"\n)\n\nfunc main() { fmt.Println(version.Version) }\n",
		"tests/engine/cli/sdk/go.mod":                       "module github.com/pulumi/pulumi/sdk/v3\n\ngo 1.26\n",
		"tests/engine/cli/sdk/go/common/version/version.go": "package version\n\nvar Version string\n",
		"tests/plugins/go.mod": "module plugins\n\ngo 1.26\n\n" +
			"require github.com/bpg/terraform-provider-proxmox v0.73.0\n" +
			"require github.com/siderolabs/terraform-provider-talos v0.7.1\n\n" +
			"replace github.com/bpg/terraform-provider-proxmox => ./proxmox\n" +
			"replace github.com/siderolabs/terraform-provider-talos => ./talos\n",
		"tests/plugins/main.go":        compiles,
		"tests/plugins/proxmox/go.mod": "module github.com/bpg/terraform-provider-proxmox\n\ngo 1.26\n",
		"tests/plugins/talos/go.mod":   "module github.com/siderolabs/terraform-provider-talos\n\ngo 1.26\n",
	})
}

// cli puts a pulumi of a version on the PATH, which installs plugins as the script's last lines say.
func cli(t *testing.T, version, install string) string {
	dir := write(t, map[string]string{
		"pulumi": "#!/bin/sh\n[ \"$1\" = version ] && echo " + version + " && exit\n" + install + "\n",
	})
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return filepath.Join(dir, "pulumi")
}

func newBuilder(t *testing.T) (*builder, *syncBuffer) {
	log := &syncBuffer{}
	return &builder{cache: t.TempDir(), log: log}, log
}

func TestCLIOnPath(t *testing.T) {
	for _, version := range []string{"v3.255.0", "v3.300.1"} {
		t.Run(version, func(t *testing.T) {
			path := cli(t, version, "")
			b, log := newBuilder(t)
			var e Engine
			require.NoError(t, e.findCLI(t.Context(), b, source(t), Bridged))
			require.Equal(t, path, e.CLI())
			require.Empty(t, log.String(), "nothing is built")
		})
	}
}

func TestCLIBuilt(t *testing.T) {
	path := cli(t, "v3.254.9", "")
	b, log := newBuilder(t)
	var e Engine
	require.NoError(t, e.findCLI(t.Context(), b, source(t), Bridged))
	require.NotEqual(t, path, e.CLI())
	require.Equal(t, "3.259.0", e.command.Version().String())
	require.Contains(t, log.String(), "building the pulumi CLI v3.259.0")
	require.Contains(t, log.String(), path+" does not do")
	require.Contains(t, log.String(), "3.254.9", "it says what is wrong with the one that is there")
}

// release serves a released CLI of the version that is built otherwise, with a language host. Its list of checksums is of
// another archive where it is tampered with.
func release(t *testing.T, tampered bool) {
	var archive bytes.Buffer
	packed := gzip.NewWriter(&archive)
	files := tar.NewWriter(packed)
	for name, content := range map[string]string{
		"pulumi/pulumi": "#!/bin/sh\necho v3.259.0\n", "pulumi/pulumi-language-go": "#!/bin/sh\n",
	} {
		require.NoError(t, files.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o755}))
		_, err := files.Write([]byte(content))
		require.NoError(t, err)
	}
	require.NoError(t, errors.Join(files.Close(), packed.Close()))

	name := fmt.Sprintf("pulumi-v3.259.0-%s-%s.tar.gz", runtime.GOOS, strings.Replace(runtime.GOARCH, "amd64", "x64", 1))
	sum := fmt.Sprintf("%x", sha256.Sum256(archive.Bytes()))
	if tampered {
		archive.WriteString("more")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/v3.259.0/pulumi-3.259.0-checksums.txt", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "%s  another.tar.gz\n%s  %s\n", strings.Repeat("0", len(sum)), sum, name)
	})
	mux.HandleFunc("/v3.259.0/"+name, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(archive.Bytes())
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	releasesCLIAt(t, server.URL+"/")
}

func releasesCLIAt(t *testing.T, url string) {
	before := cliReleases
	cliReleases = url
	t.Cleanup(func() { cliReleases = before })
}

func TestCLIFetched(t *testing.T) {
	release(t, false)
	cli(t, "v3.254.9", "")
	b, log := newBuilder(t)
	src := source(t)
	for range 2 {
		var e Engine
		require.NoError(t, e.findCLI(t.Context(), b, src, Auto))
		require.Equal(t, filepath.Join(b.cache, "released-cli-3.259.0", "bin", "pulumi"), e.CLI())
		require.NoError(t, e.findLanguageHost(t.Context(), b, src))
		require.Empty(t, e.plugins, "the release has the language host")
	}
	require.Equal(t, 1, strings.Count(log.String(), "downloading the released pulumi CLI 3.259.0"))
	require.NotContains(t, log.String(), "building")
	require.ElementsMatch(t, []string{"released-cli-3.259.0", "released-cli.lock"}, names(t, b.cache))
}

func TestCLINotToBeHad(t *testing.T) {
	for name, c := range map[string]struct {
		network func(*testing.T)
		says    string
	}{
		"without internet":      {offline, "cannot be reached"},
		"no such version":       {func(t *testing.T) { online(t) }, "404 Not Found"},
		"with another checksum": {func(t *testing.T) { release(t, true) }, "and its release says"},
	} {
		t.Run(name, func(t *testing.T) {
			c.network(t)
			cli(t, "v3.254.9", "")
			b, log := newBuilder(t)
			src := source(t)
			var e Engine
			require.NoError(t, e.findCLI(t.Context(), b, src, Auto))
			require.Contains(t, e.CLI(), filepath.Join(b.cache, "cli-"))
			require.Contains(t, log.String(), c.says)
			require.Contains(t, log.String(), "minutes of computing on")

			release(t, false)
			require.NoError(t, e.findCLI(t.Context(), b, src, Auto))
			require.Contains(t, log.String(), "asked again from", "that it failed is remembered")
		})
	}
}

// offline makes sure that nothing here asks the real network, nor finds the user's plugins.
func offline(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	answersAt(t, "http://"+listener.Addr().String())
	releasesCLIAt(t, "http://"+listener.Addr().String()+"/")
	t.Setenv("PULUMI_HOME", t.TempDir())
	t.Setenv(PluginsVariable, "")
}

func online(t *testing.T) {
	offline(t)
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	answersAt(t, server.URL)
	releasesCLIAt(t, server.URL+"/")
}

func answersAt(t *testing.T, url string) {
	before := releases
	releases = url
	t.Cleanup(func() { releases = before })
}

const (
	// installs makes what `pulumi plugin install resource <name> <version>` makes.
	installs = `dir="$PULUMI_HOME/plugins/$3-$4-v$5"; mkdir -p "$dir" && touch "$dir/pulumi-$3-$4"`
	fails    = `echo "404 HTTP error fetching plugin" >&2; exit 255`
)

// layout has published plugins where Pulumi keeps them.
func layout(t *testing.T, omit string) string {
	files := map[string]string{}
	for _, name := range []string{"talos-v0.7.1/pulumi-resource-talos", "proxmoxve-v6.18.1/pulumi-resource-proxmoxve"} {
		if filepath.Base(name) != omit {
			files["plugins/resource-"+name] = "#!"
		}
	}
	return write(t, files)
}

func find(t *testing.T, b *builder, wanted Providers) (*Engine, error) {
	e := &Engine{}
	src := source(t)
	require.NoError(t, e.findCLI(t.Context(), b, src, wanted))
	return e, e.findPlugins(t.Context(), b, src, wanted)
}

func TestPublishedAtHand(t *testing.T) {
	for _, wanted := range []Providers{Auto, Published} {
		t.Run("in the user's Pulumi, "+string(wanted), func(t *testing.T) {
			offline(t)
			cli(t, "v3.259.0", fails)
			home := layout(t, "")
			t.Setenv("PULUMI_HOME", home)
			b, log := newBuilder(t)
			e, err := find(t, b, wanted)
			require.NoError(t, err)
			require.Equal(t, Published, e.Providers())
			require.Equal(t, filepath.Join(home, "plugins/resource-talos-v0.7.1/pulumi-resource-talos"), e.plugins[0].binary)
			require.Empty(t, log.String())
		})
	}
	t.Run("in a directory that is named", func(t *testing.T) {
		offline(t)
		cli(t, "v3.259.0", fails)
		dir := filepath.Join(layout(t, ""), "plugins")
		t.Setenv(PluginsVariable, dir)
		b, _ := newBuilder(t)
		e, err := find(t, b, Auto)
		require.NoError(t, err)
		require.Equal(t, Published, e.Providers())
		require.Contains(t, e.Describe(), dir)
	})
	t.Run("in a directory that lacks one", func(t *testing.T) {
		offline(t)
		cli(t, "v3.259.0", fails)
		t.Setenv(PluginsVariable, filepath.Join(layout(t, "pulumi-resource-talos"), "plugins"))
		b, _ := newBuilder(t)
		_, err := find(t, b, Auto)
		require.ErrorContains(t, err, PluginsVariable, "a directory that was named is a choice, so there is no falling back")
		require.ErrorContains(t, err, "resource-talos-v0.7.1/pulumi-resource-talos")
		require.NotContains(t, err.Error(), "proxmoxve")
	})
	t.Run("half downloaded", func(t *testing.T) {
		offline(t)
		cli(t, "v3.259.0", fails)
		home := layout(t, "")
		t.Setenv("PULUMI_HOME", home)
		require.NoError(t, os.WriteFile(filepath.Join(home, "plugins/resource-talos-v0.7.1.partial"), nil, 0o600))
		b, _ := newBuilder(t)
		e, err := find(t, b, Auto)
		require.NoError(t, err)
		require.Equal(t, Bridged, e.Providers())
	})
}

func TestPublishedFetched(t *testing.T) {
	online(t)
	cli(t, "v3.259.0", installs)
	b, log := newBuilder(t)
	e, err := find(t, b, Auto)
	require.NoError(t, err)
	require.Equal(t, Published, e.Providers())
	require.Contains(t, log.String(), "downloading the published providers")

	cli(t, "v3.259.0", fails) // from now on they are in the cache
	_, err = find(t, b, Published)
	require.NoError(t, err)
}

func TestPublishedNotToBeHad(t *testing.T) {
	t.Run("asked for, it is an error", func(t *testing.T) {
		offline(t)
		cli(t, "v3.259.0", fails)
		b, _ := newBuilder(t)
		_, err := find(t, b, Published)
		require.ErrorContains(t, err, "published providers: talos 0.7.1 could not be fetched")
		require.ErrorContains(t, err, "404 HTTP error fetching plugin")
	})
	for name, network := range map[string]func(*testing.T){"without internet": offline, "refused": online} {
		t.Run(name, func(t *testing.T) {
			network(t)
			cli(t, "v3.259.0", fails)
			b, log := newBuilder(t)
			e, err := find(t, b, Auto)
			require.NoError(t, err)
			require.Equal(t, Bridged, e.Providers())
			require.Contains(t, log.String(), "bridged ones do instead")

			online(t)
			cli(t, "v3.259.0", installs)
			e, err = find(t, b, Auto)
			require.NoError(t, err)
			require.Equal(t, Bridged, e.Providers(), "that it failed is remembered")
			require.Contains(t, log.String(), "asked again from")

			yesterday := time.Now().Add(-refusedFor)
			require.NoError(t, os.Chtimes(filepath.Join(b.cache, "published-refused"), yesterday, yesterday))
			e, err = find(t, b, Auto)
			require.NoError(t, err)
			require.Equal(t, Published, e.Providers(), "for a day")
		})
	}
	t.Run("bridged does not ask", func(t *testing.T) {
		offline(t)
		cli(t, "v3.259.0", fails)
		t.Setenv("PULUMI_HOME", layout(t, ""))
		t.Setenv(PluginsVariable, "/nowhere")
		b, log := newBuilder(t)
		e, err := find(t, b, Bridged)
		require.NoError(t, err)
		require.Equal(t, Bridged, e.Providers())
		require.Equal(t, e.plugins[0].binary, e.plugins[1].binary, "one binary serves both")
		require.NotContains(t, log.String(), "published")
	})
}

// TestBridge: another module file has the plugins built with other versions.
func TestBridge(t *testing.T) {
	cli(t, "v3.259.0", fails)
	b, log := newBuilder(t)
	_, err := find(t, b, Bridged)
	require.NoError(t, err)

	dir := source(t)
	text, err := os.ReadFile(filepath.Join(dir, "tests/plugins/go.mod"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tests/plugins/newest.mod"),
		bytes.ReplaceAll(text, []byte("v0.73.0"), []byte("v0.111.1")), 0o600))

	t.Setenv(BridgeVariable, "newest")
	var e Engine
	require.NoError(t, e.findPlugins(t.Context(), b, dir, Bridged))
	require.Equal(t, "bpg/proxmox 0.111.1, siderolabs/talos 0.7.1", e.pluginOrigin)
	require.Equal(t, 2, strings.Count(log.String(), "building the bridged providers"), "not those of before")

	for _, name := range []string{"oldest", "../engine/cli/go"} {
		t.Setenv(BridgeVariable, name)
		require.EqualError(t, e.findPlugins(t.Context(), b, dir, Bridged),
			fmt.Sprintf("TALOS_PROXMOX_BRIDGE: %q has no module file in tests/plugins", name))
	}
}

func TestChosen(t *testing.T) {
	t.Setenv(ProvidersVariable, "bridged")
	p, err := chosen("")
	require.NoError(t, err)
	require.Equal(t, Bridged, p)
	p, err = chosen(Published)
	require.NoError(t, err)
	require.Equal(t, Published, p, "the caller goes first")

	t.Setenv(ProvidersVariable, "latest")
	_, err = chosen(Auto)
	require.EqualError(t, err, `TALOS_PROXMOX_PROVIDERS: providers: "latest" is none of auto, published and bridged`)
}

func TestEnvironment(t *testing.T) {
	t.Setenv("PULUMI_ACCESS_TOKEN", "secret")
	t.Setenv("PROXMOX_VE_API_TOKEN", "secret")
	t.Setenv("UNRELATED", "stays")
	b, err := (&Engine{}).NewBackend(t.TempDir())
	require.NoError(t, err)
	environ := b.Environ()
	require.NotContains(t, environ, "PULUMI_ACCESS_TOKEN=secret")
	require.NotContains(t, environ, "PROXMOX_VE_API_TOKEN=secret")
	require.Contains(t, environ, "UNRELATED=stays")
	require.Contains(t, environ, "PULUMI_HOME="+filepath.Join(b.Dir(), "home"))
}
