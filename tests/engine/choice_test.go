package engine

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
		"tests/plugins/go.mod":                              "module plugins\n\ngo 1.26\n",
		"tests/plugins/main.go":                             compiles,
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
			require.NoError(t, e.findCLI(t.Context(), b, source(t)))
			require.Equal(t, path, e.CLI())
			require.Empty(t, log.String(), "nothing is built")
		})
	}
}

func TestCLIBuilt(t *testing.T) {
	path := cli(t, "v3.254.9", "")
	b, log := newBuilder(t)
	var e Engine
	require.NoError(t, e.findCLI(t.Context(), b, source(t)))
	require.NotEqual(t, path, e.CLI())
	require.Equal(t, "3.259.0", e.command.Version().String())
	require.Contains(t, log.String(), "building the pulumi CLI v3.259.0")
	require.Contains(t, log.String(), path+" does not do")
	require.Contains(t, log.String(), "3.254.9", "it says what is wrong with the one that is there")
}

// offline makes sure that nothing here asks the real network, nor finds the user's plugins.
func offline(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	answersAt(t, "http://"+listener.Addr().String())
	t.Setenv("PULUMI_HOME", t.TempDir())
	t.Setenv(PluginsVariable, "")
}

func online(t *testing.T) {
	offline(t)
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	answersAt(t, server.URL)
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
	require.NoError(t, e.findCLI(t.Context(), b, src))
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
