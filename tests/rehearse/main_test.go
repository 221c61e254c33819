package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/events"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/rehearsal"
)

// TestKeptDirectory holds that a rehearsal that is kept is left alone by the next one of its stack.
func TestKeptDirectory(t *testing.T) {
	t.Parallel()

	root := t.TempDir()

	dir, release, err := directory(root, "dev", true)
	require.NoError(t, err)

	file := filepath.Join(dir, "kubeconfig")
	require.NoError(t, os.WriteFile(file, nil, 0o600))

	_, _, err = directory(root, "dev", true)
	require.EqualError(t, err, "another rehearsal keeps "+dir+": end it first, or rehearse without --keep")
	assert.FileExists(t, file)

	require.NoError(t, release())

	_, release, err = directory(root, "dev", true)
	require.NoError(t, err)
	assert.NoFileExists(t, file)
	require.NoError(t, release())
}

// TestPlan plans a stack of each kind, and starts nothing.
func TestPlan(t *testing.T) {
	t.Parallel()

	root, err := rehearsal.Root()
	require.NoError(t, err)

	for name, node := range map[string]string{"smallest": "home-control-1", "k3s": "edge-server-1"} {
		var out bytes.Buffer

		o, err := parse([]string{name, "--plan"})
		require.NoError(t, err)
		require.NoError(t, run(t.Context(), o, &out))
		assert.Contains(t, out.String(), node)
		assert.Contains(t, out.String(), "\nNothing was contacted: ")

		stack, err := rehearsal.Find(root, name)
		require.NoError(t, err)

		out.Reset()

		dir := t.TempDir()
		require.NoError(t, showPlan(dir, stack, "svg", &out))

		drawn, err := os.ReadFile(filepath.Join(dir, "rehearsal", name+".svg"))
		require.NoError(t, err)
		assert.Contains(t, string(drawn), node)
		assert.Contains(t, out.String(), name+".svg")

		require.EqualError(t, showPlan(dir, stack, "png", &out), `--plan is text or svg, not "png"`)
	}
}

// TestFirstCommand runs the first command of the README: the stack comes up, and nothing is left of it. Its plugins are
// built from the repository, and nothing in the lab takes time.
func TestFirstCommand(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer

	o, err := parse([]string{"dev", "--fast", "--destroy", "--providers", "bridged"})
	require.NoError(t, err)
	require.NoError(t, run(t.Context(), o, &out), &out)
	assert.Contains(t, out.String(), "  all nodes ready\n")
	assert.Contains(t, out.String(), "  nothing is left: the lab holds what it held before")
}

// TestProgress holds what becomes of an operation that fails: its reason is shown without the engine's wrapping, and
// when it never began there is nothing to wait for.
func TestProgress(t *testing.T) {
	t.Parallel()

	failed := errors.New("exit status 255")

	for message, want := range map[string]string{
		"an unhandled error occurred: 1 error occurred:\n\t* pools: nothing\n\n":                          "pools: nothing",
		"an unhandled error occurred: program failed: \n1 error occurred:\n\t* pools: nothing":            "pools: nothing",
		"an unhandled error occurred: program failed: \n2 errors occurred:\n\t* pools: a\n\t* network: b": "2 errors occurred:\n\t* pools: a\n\t* network: b",
		"the VM is locked": "the VM is locked",
	} {
		err := progress{out: &bytes.Buffer{}, start: time.Now()}.run(func(p progress) error {
			p.events <- events.EngineEvent{EngineEvent: apitype.EngineEvent{
				DiagnosticEvent: &apitype.DiagnosticEvent{Severity: "error", Message: message},
			}}
			close(p.events)

			return failed
		})
		assert.EqualError(t, err, "the stack did not come about:\n"+want)
	}

	assert.Equal(t, failed, progress{out: &bytes.Buffer{}, start: time.Now()}.run(func(progress) error { return failed }))
}

// TestFindings holds what is shown of a policy pack: each finding once, with its level, and no steps of a preview; a
// rule that is enforced is the reason why there is no stack.
func TestFindings(t *testing.T) {
	t.Parallel()

	finding := func(level, message string) events.EngineEvent {
		return events.EngineEvent{EngineEvent: apitype.EngineEvent{PolicyEvent: &apitype.PolicyEvent{
			PolicyName: "verify-tls", EnforcementLevel: level, Message: "What must hold.\n" + message + "\n",
		}}}
	}

	var out bytes.Buffer

	p := progress{out: &out, start: time.Now(), said: map[string]bool{}, quiet: true}

	for _, failed := range []error{nil, errors.New("exit status 255")} {
		err := p.run(func(p progress) error {
			p.events <- events.EngineEvent{EngineEvent: apitype.EngineEvent{ResourcePreEvent: &apitype.ResourcePreEvent{
				Metadata: apitype.StepEventMetadata{Type: "talos:machine/secrets:Secrets", Op: apitype.OpCreate},
			}}}
			p.events <- finding("advisory", "a: must be true")
			if failed != nil {
				p.events <- finding("mandatory", "b: must be true")
				p.events <- events.EngineEvent{EngineEvent: apitype.EngineEvent{
					DiagnosticEvent: &apitype.DiagnosticEvent{Severity: "error", Message: "preview failed\n"},
				}}
			}
			close(p.events)

			return failed
		})
		if failed == nil {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, "the stack did not come about:\nrules that are enforced are broken: verify-tls")
		}
	}

	assert.Regexp(t,
		`^ +[\d.]+s  advisory       verify-tls: a: must be true\n +[\d.]+s  mandatory      verify-tls: b: must be true\n$`,
		out.String())
}
