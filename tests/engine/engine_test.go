package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/network"
	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/config"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/engine"
)

// open is Open with the log where go test shows it at once: a first build takes minutes.
func open(t *testing.T) *engine.Engine {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the pulumi CLI and the plugins when they are not there")
	}
	e, err := engine.Open(t.Context(), engine.Options{})
	require.NoError(t, err)
	return e
}

// secrets is the smallest program that runs real provider code: it makes a cluster's secrets and contacts nothing.
func secrets(ctx *pulumi.Context) error {
	s, err := machine.NewSecrets(ctx, "secrets", &machine.SecretsArgs{TalosVersion: pulumi.String("v1.12.4")})
	if err != nil {
		return err
	}
	ctx.Export("greeting", pulumi.String(config.Require(ctx, "greeting")))
	ctx.Export("token", pulumi.ToSecret(s.MachineSecrets.Secrets().BootstrapToken()))
	return nil
}

func TestInlineStack(t *testing.T) {
	// What the user's environment says must not matter.
	t.Setenv("PULUMI_ACCESS_TOKEN", "pul-not-a-token")
	t.Setenv("PULUMI_BACKEND_URL", "https://not-a-backend.invalid")
	t.Setenv("PULUMI_CONFIG_PASSPHRASE_FILE", "/nowhere")
	e := open(t)
	b, err := e.NewBackend(t.TempDir())
	require.NoError(t, err)
	ctx := t.Context()

	s, err := b.InlineStack(ctx, "smoke", "dev", secrets,
		auto.ConfigMap{"greeting": {Value: "hello"}, "other": {Value: "x"}})
	require.NoError(t, err)
	var log bytes.Buffer
	up, err := s.Up(ctx, optup.ProgressStreams(&log), optup.ErrorProgressStreams(&log))
	require.NoError(t, err, "%s", &log)
	require.NotContains(t, log.String(), "warning", "neither about plugins nor about anything else")
	require.Equal(t, "hello", up.Outputs["greeting"].Value)
	require.True(t, up.Outputs["token"].Secret)
	token, _ := up.Outputs["token"].Value.(string)
	require.NotEmpty(t, token)

	require.NotContains(t, log.String(), token)
	// Everything that a stack leaves behind: state, its history, settings. (Stack.Export would decrypt.)
	require.NoError(t, fs.WalkDir(os.DirFS(b.Dir()), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(b.Dir(), path))
		require.NotContains(t, string(content), token, path)
		return err
	}))

	t.Run("opened again, it goes on where it stood", func(t *testing.T) {
		b, err := e.NewBackend(b.Dir())
		require.NoError(t, err)
		s, err := b.InlineStack(ctx, "smoke", "dev", secrets, auto.ConfigMap{"greeting": {Value: "hello"}})
		require.NoError(t, err)
		present, err := s.GetAllConfig(ctx)
		require.NoError(t, err)
		require.Len(t, present, 1, "a key that the new configuration lacks is gone")
		_, err = s.Preview(ctx, optpreview.ExpectNoChanges())
		require.NoError(t, err)
	})

	t.Run("the CLI by hand", func(t *testing.T) {
		cmd := exec.CommandContext(ctx, e.CLI(), "stack", "ls", "--all", "--json")
		cmd.Env = b.Environ()
		cmd.Dir = t.TempDir()
		out, err := cmd.Output()
		require.NoError(t, err)
		var stacks []struct{ Name string }
		require.NoError(t, json.Unmarshal(out, &stacks))
		require.Len(t, stacks, 1)
		require.Contains(t, stacks[0].Name, "smoke/dev")
	})

	_, err = s.Destroy(ctx, optdestroy.ProgressStreams(&log))
	require.NoError(t, err, "%s", &log)
}

// TestProxmoxProvider has the other plugin call a server, which shows that its configuration arrives under the SDK's
// names.
func TestProxmoxProvider(t *testing.T) {
	e := open(t)
	b, err := e.NewBackend(t.TempDir())
	require.NoError(t, err)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api2/json/version" || r.Header.Get("Authorization") != "PVEAPIToken=pulumi@pve!talos=secret" {
			http.Error(w, "no", http.StatusNotImplemented)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"data": {"release": "9.0", "repoid": "0123456789abcdef", "version": "9.0.3"}}`)
	}))
	defer server.Close()

	s, err := b.InlineStack(t.Context(), "smoke", "dev", func(ctx *pulumi.Context) error {
		provider, err := proxmoxve.NewProvider(ctx, "proxmox", &proxmoxve.ProviderArgs{
			Endpoint: pulumi.String(server.URL),
			ApiToken: pulumi.String("pulumi@pve!talos=secret"),
			Insecure: pulumi.Bool(true),
			Ssh:      proxmoxve.ProviderSshArgs{Username: pulumi.String("root"), Agent: pulumi.Bool(false)},
		})
		if err != nil {
			return err
		}
		version := network.GetVersionOutput(ctx, pulumi.Provider(provider))
		ctx.Export("version", version.Version())
		return nil
	}, nil)
	require.NoError(t, err)
	var log bytes.Buffer
	up, err := s.Up(t.Context(), optup.ProgressStreams(&log), optup.ErrorProgressStreams(&log))
	require.NoError(t, err, "%s", &log)
	require.NotContains(t, log.String(), "warning")
	require.Equal(t, "9.0.3", up.Outputs["version"].Value)
}

// TestCompiledProgram runs a program the way `pulumi up` does: as a process that the language host starts.
func TestCompiledProgram(t *testing.T) {
	e := open(t)
	b, err := e.NewBackend(t.TempDir())
	require.NoError(t, err)
	ctx := t.Context()

	// The program imports modules of this one, so it is compiled here and its project lies elsewhere.
	dir := t.TempDir()
	build(ctx, t, "./testdata/program", filepath.Join(dir, "program"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Pulumi.yaml"), []byte(
		"name: compiled\nruntime:\n  name: go\n  options:\n    binary: program\n"), 0o600))

	s, err := b.LocalStack(ctx, dir, "dev", auto.ConfigMap{
		"greeting": {Value: "hello"},
		"secret":   {Value: "open sesame", Secret: true},
	})
	require.NoError(t, err)
	var log bytes.Buffer
	up, err := s.Up(ctx, optup.ProgressStreams(&log), optup.ErrorProgressStreams(&log))
	require.NoError(t, err, "%s", &log)
	require.NotContains(t, log.String(), "warning")
	require.Contains(t, log.String(), "said on standard output")
	require.NotContains(t, log.String(), "open sesame")
	require.Equal(t, auto.OutputValue{Value: "hello"}, up.Outputs["greeting"])
	require.Equal(t, auto.OutputValue{Value: "open sesame", Secret: true}, up.Outputs["secret"])
	require.Equal(t, auto.OutputValue{Value: "compiled/dev in organization"}, up.Outputs["where"])
	require.Equal(t, auto.OutputValue{Value: dir}, up.Outputs["root"])

	t.Run("its error is the engine's", func(t *testing.T) {
		require.NoError(t, s.RemoveConfig(ctx, "greeting"))
		_, err := s.Preview(ctx)
		require.ErrorContains(t, err, "missing required configuration variable 'compiled:greeting'")
	})

	t.Run("without a binary it says what to do", func(t *testing.T) {
		require.NoError(t, os.Remove(filepath.Join(dir, "program")))
		_, err := s.Preview(ctx)
		require.ErrorContains(t, err, "runtime.options.binary")
		require.ErrorContains(t, err, "go build -o")
	})

	_, err = s.Destroy(ctx)
	require.NoError(t, err)
}

// TestProgramDirectory leaves compiling to the language host.
func TestProgramDirectory(t *testing.T) {
	e := open(t)
	b, err := e.NewBackend(t.TempDir())
	require.NoError(t, err)
	ctx := t.Context()

	source, err := filepath.Abs("testdata/program")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Pulumi.yaml"), []byte(
		"name: compiled\nmain: "+source+"\nruntime: go\n"), 0o600))
	s, err := b.LocalStack(ctx, dir, "dev",
		auto.ConfigMap{"greeting": {Value: "hello"}, "secret": {Value: "x", Secret: true}})
	require.NoError(t, err)
	preview, err := s.Preview(ctx)
	require.NoError(t, err)
	require.Contains(t, preview.StdOut, "said on standard output")
}

// TestNestedModule has go test ./... include the nested module that is built here.
func TestNestedModule(t *testing.T) {
	if e := open(t); e.Providers() != engine.Bridged {
		t.Skip("its modules are not needed on this machine, and compiling them takes minutes")
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", ".")
	cmd.Dir = "../plugins"
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func build(ctx context.Context, t *testing.T, pkg, output string) {
	t.Helper()
	out, err := exec.CommandContext(ctx, "go", "build", "-o", output, pkg).CombinedOutput()
	require.NoError(t, err, "%s", strings.TrimSpace(string(out)))
}
