package state

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blang/semver"
	"github.com/pulumi/pulumi/sdk/v3"
	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks/config"
)

// cli is a CLI that knows the stacks dev, which is selected, and prod.
type cli struct{ ran *[]string }

func (cli) Version() semver.Version { return sdk.Version }

func (c cli) Run(
	_ context.Context, _ string, _ io.Reader, _, _ []io.Writer, _ []string, args ...string,
) (stdout, stderr string, code int, err error) {
	command := strings.Join(args, " ")
	*c.ran = append(*c.ran, command)

	switch {
	case strings.HasPrefix(command, "stack ls"):
		return `[{"name": "prod"}, {"name": "dev", "current": true}]`, "", 0, nil
	case strings.Contains(command, "--stack gone"):
		return "", "error: no stack named 'gone' found", 6, errors.New("exit status 6")
	case strings.Contains(command, "--show-secrets"):
		return `{"kubeconfig": "secret"`, "error: lost the connection", 255, errors.New("exit status 255")
	default:
		return "{}", "", 0, nil
	}
}

func project(t *testing.T) string {
	t.Helper()

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Pulumi.yaml"), []byte("name: home\nruntime: go\n"), 0o600))

	return dir
}

// TestLocked: a lock is that of the stack that was named, whichever one is selected.
func TestLocked(t *testing.T) {
	stack, err := Open(t.Context(), project(t), "prod", auto.Pulumi(cli{new([]string)}))
	require.NoError(t, err)

	const next = ": wait for it, or, when none does any more, run: pulumi cancel --stack prod"

	for printed, want := range map[string]string{
		"":                                    "another operation runs on the stack" + next,
		"x\ncreated by a@b (pid 7) at noon\n": "another operation runs on the stack (created by a@b (pid 7) at noon)" + next,
	} {
		err := stack.locked(printed)
		require.ErrorIs(t, err, ErrLocked)
		assert.EqualError(t, err, want)
	}
}

// TestOpen: no stack is selected, not for a moment: the command may be cut off in it.
func TestOpen(t *testing.T) {
	dir := project(t)

	for name, want := range map[string][]string{
		"prod": {"stack tag ls --json --stack prod"},
		"":     {"stack ls --json", "stack tag ls --json --stack dev"},
	} {
		var ran []string

		stack, err := Open(t.Context(), dir, name, auto.Pulumi(cli{&ran}))
		require.NoError(t, err)
		assert.Equal(t, "home", stack.Project())
		assert.Equal(t, want, ran)
	}

	_, err := Open(t.Context(), dir, "gone", auto.Pulumi(cli{new([]string)}))
	require.EqualError(t, err,
		"the backend has no stack gone of the project in "+dir+": run: pulumi stack init gone")
}

// TestErrorsWithoutSecrets: what a command printed before it failed is not quoted, for it holds secrets in plain text.
func TestErrorsWithoutSecrets(t *testing.T) {
	stack, err := Open(t.Context(), project(t), "prod", auto.Pulumi(cli{new([]string)}))
	require.NoError(t, err)

	_, err = stack.Outputs(t.Context())
	require.EqualError(t, err, "could not get secret outputs: exit status 255: lost the connection")

	_, err = stack.ExportDecrypted(t.Context())
	require.EqualError(t, err, "could not export stack: exit status 255: lost the connection")

	err = brief(errors.New("it failed\ncode: 1\nstdout: a\nstderr: secret\nb\nstderr: error: why"))
	require.EqualError(t, err, "it failed: why")
}

// configured is a CLI that knows the configuration of a stack.
type configured struct {
	cli
	config string
}

func (c configured) Run(ctx context.Context, dir string, in io.Reader, out, errs []io.Writer, env []string, args ...string,
) (stdout, stderr string, code int, err error) {
	if args[0] == "config" {
		return c.config, "", 0, nil
	}

	return c.cli.Run(ctx, dir, in, out, errs, env, args...)
}

// TestPlainSecrets: secrets that 'pulumi up' refuses are refused by a check, and keep no other command from reading the
// configuration.
func TestPlainSecrets(t *testing.T) {
	values, err := config.ReadValues("../../examples/Pulumi.smallest.yaml")
	require.NoError(t, err)

	values["proxmoxTokenSecret"] = config.Placeholder

	open := func(plain string) *Pulumi {
		all := map[string]any{}
		for key, value := range values {
			all["home:"+key] = map[string]any{"value": value, "secret": key == "proxmoxTokenSecret" && key != plain}
		}

		if plain != "" {
			all["home:"+plain] = map[string]any{"value": config.Placeholder, "secret": false}
		}

		text, err := json.Marshal(all)
		require.NoError(t, err)

		stack, err := Open(t.Context(), project(t), "prod", auto.Pulumi(configured{cli{new([]string)}, string(text)}))
		require.NoError(t, err)

		return stack
	}

	require.NoError(t, open("").CheckConfig(t.Context()))

	for _, key := range config.SecretKeys {
		require.ErrorContains(t, open(key).CheckConfig(t.Context()),
			"  - "+key+": is in plain text in the stack's file; run: pulumi config set --secret "+key)
	}

	_, err = open("proxmoxTokenSecret").Config(t.Context())
	require.NoError(t, err)
}
