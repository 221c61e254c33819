package tests

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/events"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/engine"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// Bounds of the tests' own waits, and a latency that is longer than the engine needs for its own work.
const (
	wait = 3 * time.Minute
	slow = 3 * time.Second
)

// root is the project's directory, seen from this package.
const root = ".."

// TestMain has processes collect their garbage rarely, unless GOGC says otherwise: the CLI, the program and the plugins
// live for seconds, and a fifth of their work was that. It runs three tests for each two cores, unless -parallel says
// otherwise: a part of a test is waiting, and nodes that get no time miss questions.
func TestMain(m *testing.M) {
	const percent = 800

	if os.Getenv("GOGC") == "" {
		if err := os.Setenv("GOGC", strconv.Itoa(percent)); err != nil {
			panic(err)
		}

		debug.SetGCPercent(percent)
	}

	relaxTimers()

	// Programs of tests reach a lab, which needs no host keys where this suite runs in a pipeline.
	if err := os.Setenv("PULUMI_DISABLE_CI_DETECTION", "true"); err != nil {
		panic(err)
	}

	// Programs that tests build are not debugged. The variable takes the place of what 'go env -w' keeps.
	flags, err := exec.Command("go", "env", "GOFLAGS").Output()
	if err = errors.Join(err, os.Setenv("GOFLAGS", strings.TrimSpace(string(flags))+" -ldflags=-w")); err != nil {
		panic(err)
	}

	flag.Parse()

	stated := false

	flag.Visit(func(f *flag.Flag) { stated = stated || f.Name == "test.parallel" })

	if !stated {
		if err := flag.Set("test.parallel", strconv.Itoa((3*runtime.GOMAXPROCS(0)+1)/2)); err != nil {
			panic(err)
		}
	}

	code := m.Run()

	theBinaries.remove()
	os.Exit(code)
}

// relaxTimers lets timers be late by a millisecond, in this process and in those that it starts, where Linux allows it.
// The runtime of Go looks after itself up to 50,000 times a second in each of dozens of processes, which cost a tenth
// of the suite.
func relaxTimers() {
	threads, err := filepath.Glob("/proc/self/task/*")
	if err != nil {
		panic(err)
	}

	for _, thread := range threads {
		slack := filepath.Join("/proc", filepath.Base(thread), "timerslack_ns")
		_ = os.WriteFile(slack, []byte("1000000"), 0o600) // it takes a privilege
	}
}

// theEngine is opened once: the first time on a machine it builds the CLI and the plugins. Tests do not look for
// released plugins on the network unless they are told to. A key server encrypts the secrets of stacks: to make a key
// of a passphrase takes a sixth of a second each time that the CLI is run.
var theEngine = sync.OnceValues(func() (*engine.Engine, error) {
	providers := engine.Bridged
	if os.Getenv(engine.ProvidersVariable) != "" {
		providers = engine.Auto
	}

	return engine.Open(context.Background(), engine.Options{
		Providers: providers, SecretsProvider: secretsProvider,
		Env: map[string]string{"VAULT_ADDR": newKeyServer().URL, "VAULT_TOKEN": "tests"},
	})
})

// newBackend is a backend of the engine in a directory of the test.
func newBackend(t *testing.T) *engine.Backend {
	t.Helper()

	e, err := theEngine()
	require.NoError(t, err)

	backend, err := e.NewBackend(t.TempDir())
	require.NoError(t, err)

	return backend
}

// rehearse starts a lab for a stack and opens the stack, with nothing deployed. Nothing in the lab takes time. The test
// fails when the lab was asked for anything it does not know.
func rehearse(t *testing.T, stack string, change ...func(*rehearsal.Options)) *rehearsal.Rehearsal {
	t.Helper()

	e, err := theEngine()
	require.NoError(t, err)

	s, err := rehearsal.Find(root, stack)
	require.NoError(t, err)

	kubernetes, err := rehearsal.ParseKubernetes(os.Getenv(kubernetesVariable))
	require.NoError(t, err, kubernetesVariable)

	o := rehearsal.Options{Engine: e, Dir: t.TempDir(), Kubernetes: kubernetes}
	for _, c := range change {
		c(&o)
	}

	r, err := rehearsal.Start(t.Context(), s, o)
	require.NoError(t, err)

	t.Cleanup(func() {
		require.NoError(t, r.Close())
		require.NoError(t, r.Lab.Journal().Unknown())
		require.Empty(t, r.Lab.Journal().Unrecorded(), "no real Proxmox VE was asked that")
	})

	return r
}

// kubernetesVariable says what runs on control planes in tests that do not say it themselves: light or real.
const kubernetesVariable = "LAB_KUBERNETES"

// onRealKubernetes has control planes run the released etcd and Kubernetes. Those take their time, on a machine that is
// busy with other tests.
func onRealKubernetes(o *rehearsal.Options) { o.Kubernetes = rehearsal.RealKubernetes }

// onSimulatedKubernetes has them run the simulated ones, whatever the variable says: for tests that ask the API within
// a second of a fault, in which a released API server would still start.
func onSimulatedKubernetes(o *rehearsal.Options) { o.Kubernetes = rehearsal.LightKubernetes }

// onProxmox has the lab be a version of Proxmox VE.
func onProxmox(version world.Version) func(*rehearsal.Options) {
	return func(o *rehearsal.Options) { o.Proxmox = version }
}

// pathWith is the variable PATH that finds the commands of a directory before all others.
func pathWith(dir string) string {
	return "PATH=" + dir + string(filepath.ListSeparator) + os.Getenv("PATH")
}

// writeScript makes a shell script, as a command of a directory.
func writeScript(t *testing.T, dir, name, script string) {
	t.Helper()

	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o700)) //nolint:gosec // it is run
}

// newOutput keeps what the CLI prints. It is shown when the test fails.
func newOutput(t *testing.T) *engine.Transcript {
	o := &engine.Transcript{}

	t.Cleanup(func() {
		if t.Failed() {
			t.Log(o.String())
		}
	})

	return o
}

// up updates a stack.
func up(t *testing.T, s auto.Stack) {
	t.Helper()

	_, err := s.Up(engine.Terse(t.Context()), optup.ProgressStreams(newOutput(t)))
	require.NoError(t, err)
}

// upChanges updates a stack, and counts its resources by what became of them.
func upChanges(t *testing.T, s auto.Stack) map[string]int {
	t.Helper()

	var (
		changes map[string]int
		happens = make(chan events.EngineEvent)
		read    = make(chan struct{})
	)

	go func() {
		defer close(read)

		for e := range happens {
			if e.SummaryEvent != nil {
				changes = previewed(e.SummaryEvent.ResourceChanges)
			}
		}
	}()

	_, err := s.Up(engine.Terse(t.Context()), optup.ProgressStreams(newOutput(t)), optup.EventStreams(happens))
	require.NoError(t, err)

	<-read

	return changes
}

// upResult is up for tests that want to know its outputs, which takes the CLI twice more. There is no summary: see
// upChanges.
func upResult(t *testing.T, s auto.Stack) auto.UpResult {
	t.Helper()

	result, err := s.Up(engine.WithoutSummary(t.Context()), optup.ProgressStreams(newOutput(t)))
	require.NoError(t, err)

	return result
}

// failUp runs an update that must fail, and returns what was printed.
func failUp(t *testing.T, s auto.Stack) string {
	t.Helper()

	out := newOutput(t)
	_, err := s.Up(t.Context(), optup.ProgressStreams(out), optup.ErrorProgressStreams(out))
	require.Error(t, err)

	return out.String()
}

func destroy(t *testing.T, s auto.Stack) {
	t.Helper()

	require.NoError(t, rehearsal.Destroy(engine.Terse(t.Context()), s, optdestroy.ProgressStreams(newOutput(t))))
}

// requireNoChange holds that a refresh and a preview find nothing to do. That a preview alone finds nothing is held by
// requireSettled.
func requireNoChange(t *testing.T, s auto.Stack) {
	t.Helper()
	requireEmptyPreview(t, s, optpreview.Refresh())
}

// requireSettled is requireNoChange, and holds the same of a preview that does not refresh: what a resource was created
// with and what is read of it later may differ. One test for each kind of resource, boot source and system holds it.
func requireSettled(t *testing.T, s auto.Stack) {
	t.Helper()

	requireEmptyPreview(t, s)
	requireNoChange(t, s)
}

func requireEmptyPreview(t *testing.T, s auto.Stack, o ...optpreview.Option) {
	t.Helper()

	preview, err := s.Preview(t.Context(), append(o, optpreview.ProgressStreams(newOutput(t)), optpreview.Diff())...)
	require.NoError(t, err)
	requireOnlySame(t, previewed(preview.ChangeSummary))
}

func previewed(changes map[apitype.OpType]int) map[string]int {
	found := map[string]int{}
	for op, n := range changes {
		found[string(op)] = n
	}

	return found
}

func requireOnlySame(t *testing.T, changes map[string]int) {
	t.Helper()

	for op, n := range changes {
		require.True(t, op == "same" || n == 0, "%d resources to %s", n, op)
	}
}

// state is the stack's state as it is kept, with its secrets encrypted.
func state(t *testing.T, s auto.Stack) apitype.DeploymentV3 {
	t.Helper()

	d, err := engine.State(t.Context(), s)
	require.NoError(t, err)

	return d
}

// decrypted is the stack's state with its secrets in plain text.
func decrypted(t *testing.T, s auto.Stack) apitype.DeploymentV3 {
	t.Helper()

	exported, err := s.Export(t.Context())
	require.NoError(t, err)

	var d apitype.DeploymentV3
	require.NoError(t, json.Unmarshal(exported.Deployment, &d))

	return d
}

// urns are the identities of all resources, sorted.
func urns(t *testing.T, s auto.Stack) []string {
	t.Helper()

	var found []string
	for _, r := range state(t, s).Resources {
		found = append(found, string(r.URN))
	}

	slices.Sort(found)

	return found
}

// set changes one key of the stack's configuration; the path is below the project's namespace.
func set(t *testing.T, s auto.Stack, path, value string) {
	t.Helper()

	require.NoError(t, rehearsal.Set(t.Context(), s, path, value))
}

// unset takes one key out of the stack's configuration.
func unset(t *testing.T, s auto.Stack, path string) {
	t.Helper()

	require.NoError(t, rehearsal.Unset(t.Context(), s, path))
}

// stackFile writes a stack file into a directory of the test and returns its path.
func stackFile(t *testing.T, text string) string {
	t.Helper()

	path := filepath.Join(t.TempDir(), "Pulumi.test.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))

	return path
}

// devText is the stack dev, and where its GPU pool begins, which is its last.
func devText(t *testing.T) (text string, gpuPool int) {
	t.Helper()

	file, err := os.ReadFile(filepath.Join(root, "Pulumi.dev.yaml"))
	require.NoError(t, err)

	gpuPool = strings.Index(string(file), "    gpu:")
	require.Positive(t, gpuPool, "the stack dev has changed: adjust this test")

	return string(file), gpuPool
}

// devWith is the file of the stack dev with some lines replaced, without its GPU pool.
func devWith(t *testing.T, oldnew ...string) string {
	t.Helper()

	text, gpuPool := devText(t)

	for i := 0; i < len(oldnew); i += 2 {
		require.Contains(t, text[:gpuPool], oldnew[i], "the stack dev has changed: adjust this test")
	}

	return stackFile(t, strings.NewReplacer(oldnew...).Replace(text[:gpuPool]))
}

func calls(r *rehearsal.Rehearsal, contains string) []string {
	var found []string

	for _, e := range r.Lab.Journal().Entries() {
		if text := fmt.Sprint(e); strings.Contains(text, contains) {
			found = append(found, text)
		}
	}

	return found
}

// cli runs the pulumi CLI by hand on the rehearsed stack, and returns what it printed.
func cli(t *testing.T, r *rehearsal.Rehearsal, args ...string) string {
	t.Helper()

	command := exec.CommandContext(t.Context(), r.Engine().CLI(), append(args, "--stack", r.Stack.Name())...)
	command.Dir, command.Env = r.Stack.Workspace().WorkDir(), r.Backend.Environ()
	printed, err := command.Output()
	require.NoError(t, err)

	return string(printed)
}
