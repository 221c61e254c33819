package engine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// Backend is a private place to run stacks: a directory with a Pulumi home of its own (plugins, no credentials), the
// state of its stacks, and the passphrase that encrypts their secrets. It is safe for concurrent use with different
// stacks.
type Backend struct {
	engine *Engine
	dir    string
	env    map[string]string
}

// NewBackend makes a backend in dir, or opens the one that is there: its stacks then go on where they stood. The
// directory is for the user's eyes only, since state holds secrets and the key to them lies next to it; remove it when
// done.
func (e *Engine) NewBackend(dir string) (*Backend, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	b := &Backend{engine: e, dir: dir}
	for _, d := range []string{dir, b.home(), b.state(), filepath.Join(b.home(), "plugins")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	passphrase, err := readOrCreate(filepath.Join(dir, "passphrase"), rand.Text())
	if err != nil {
		return nil, err
	}
	if err := linkPlugins(filepath.Join(b.home(), "plugins"), e.plugins...); err != nil {
		return nil, err
	}
	// The CLI writes all that it does to a log, compressed and encrypted, unless there is no place for it. It is
	// not read here, and takes a fifth of the time.
	if _, err := os.Stat(b.logs()); errors.Is(err, fs.ErrNotExist) {
		if err := os.WriteFile(b.logs(), nil, 0o600); err != nil {
			return nil, err
		}
	}
	b.env = map[string]string{
		"PULUMI_HOME":              b.home(),
		"PULUMI_BACKEND_URL":       (&url.URL{Scheme: "file", Path: b.state(), RawQuery: whole}).String(),
		"PULUMI_CONFIG_PASSPHRASE": passphrase,
		"PULUMI_SKIP_UPDATE_CHECK": "true",
		// The plugins are in place. Without this, operations on existing state spend seconds trying to download them.
		"PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
		// Tests are no pipeline, wherever they run.
		"PULUMI_DISABLE_CI_DETECTION": "true",
		// And a plugin that happens to be on the PATH is not what was chosen.
		"PULUMI_IGNORE_AMBIENT_PLUGINS": "true",
	}
	maps.Copy(b.env, e.env)
	return b, nil
}

// whole has the CLI write each file at once. By itself it keeps a note next to each, which it writes in place: when it
// is killed just then, the state cannot be loaded any more.
const whole = "metadata=skip"

func (b *Backend) home() string  { return filepath.Join(b.dir, "home") }
func (b *Backend) state() string { return filepath.Join(b.dir, "state") }
func (b *Backend) logs() string  { return filepath.Join(b.home(), "logs") }

// stateFile is where the CLI keeps the state of a stack.
func (b *Backend) stateFile(project, stack string) string {
	return stateFile(b.state(), project, stack)
}

func stateFile(dir, project, stack string) string {
	return filepath.Join(dir, ".pulumi", "stacks", project, stack+".json")
}

// State reads the state of a stack of a backend, with its secrets encrypted. The CLI is not run for it.
func State(ctx context.Context, s auto.Stack) (apitype.DeploymentV3, error) {
	settings, err := s.Workspace().ProjectSettings(ctx)
	if err != nil {
		return apitype.DeploymentV3{}, err
	}
	backend, err := url.Parse(s.Workspace().GetEnvVars()["PULUMI_BACKEND_URL"])
	if err != nil {
		return apitype.DeploymentV3{}, err
	}
	text, err := os.ReadFile(stateFile(backend.Path, settings.Name.String(), s.Name()))
	if err != nil {
		return apitype.DeploymentV3{}, err
	}
	var file struct {
		Checkpoint apitype.CheckpointV3 `json:"checkpoint"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return apitype.DeploymentV3{}, fmt.Errorf("the state of stack %s: %w", s.Name(), err)
	}
	if file.Checkpoint.Latest == nil {
		return apitype.DeploymentV3{}, nil // it was never updated
	}
	return *file.Checkpoint.Latest, nil
}

// KeepLogs has the CLI write its own logs from now on, which a new backend does without.
func (b *Backend) KeepLogs() error { return os.Remove(b.logs()) }

// CLI is the path of the pulumi command.
func (b *Backend) CLI() string { return b.engine.CLI() }

// Dir is the backend's directory.
func (b *Backend) Dir() string { return b.dir }

// Env are the variables that make the CLI use this backend. The passphrase is among them.
func (b *Backend) Env() map[string]string { return maps.Clone(b.env) }

// Environ is the whole environment for running the CLI by hand, as exec.Cmd takes it: the process's own without what
// would lead to other backends, accounts or hosts, and Env.
func (b *Backend) Environ() []string { return environ(b.env) }

// Options make an Automation API workspace use this backend.
func (b *Backend) Options() []auto.LocalWorkspaceOption {
	env := b.Env()
	// The Automation API adds to the process's environment and cannot take from it, but empty counts as absent.
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); foreign(name) {
			if _, ours := env[name]; !ours {
				env[name] = ""
			}
		}
	}
	return []auto.LocalWorkspaceOption{
		auto.Pulumi(tersely{b.engine.command}),
		auto.PulumiHome(b.home()),
		auto.SecretsProvider(b.engine.secrets),
		auto.EnvVars(env),
	}
}

// InlineStack opens or creates a stack whose program is a function of this process. A non-nil config becomes the whole
// configuration of the stack: keys that it lacks are removed. The working directory, which holds the stack's settings,
// is below Dir and the stack's alone. Further options come last and win; auto.EnvVars would take the place of the
// backend's variables, so add to them with SetEnvVars of the stack's workspace instead.
func (b *Backend) InlineStack(
	ctx context.Context, project, stack string, program pulumi.RunFunc, config auto.ConfigMap,
	opts ...auto.LocalWorkspaceOption,
) (auto.Stack, error) {
	dir := filepath.Join(b.dir, "work", project, stack)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return auto.Stack{}, err
	}
	opts = append(append(b.Options(), auto.WorkDir(dir)), opts...)
	open := auto.SelectStackInlineSource
	if _, err := os.Stat(b.stateFile(project, stack)); errors.Is(err, fs.ErrNotExist) {
		open = auto.NewStackInlineSource // the CLI need not look for it first
	}
	s, err := open(ctx, stack, project, program, opts...)
	if err != nil {
		return auto.Stack{}, fmt.Errorf("stack %s of %s: %w", stack, project, err)
	}
	return s, configure(ctx, s, config)
}

// LocalStack opens or creates a stack of the project in dir, which holds a Pulumi.yaml. The program is run by the
// language host, as `pulumi up` in that directory would. Stack settings are read from and written to dir.
func (b *Backend) LocalStack(
	ctx context.Context, dir, stack string, config auto.ConfigMap, opts ...auto.LocalWorkspaceOption,
) (auto.Stack, error) {
	s, err := auto.UpsertStackLocalSource(ctx, stack, dir, append(b.Options(), opts...)...)
	if err != nil {
		return auto.Stack{}, fmt.Errorf("stack %s in %s: %w", stack, dir, err)
	}
	return s, configure(ctx, s, config)
}

// configure makes config the configuration of the stack, unless it is nil.
func configure(ctx context.Context, s auto.Stack, config auto.ConfigMap) error {
	if config == nil {
		return nil
	}
	present, err := s.GetAllConfig(ctx)
	if err != nil {
		return err
	}
	var stale []string
	for key := range present {
		_, short, _ := strings.Cut(key, ":") // the project's own keys may be given without its name
		if _, full := config[key]; !full {
			if _, ok := config[short]; !ok {
				stale = append(stale, key)
			}
		}
	}
	if len(stale) > 0 {
		slices.Sort(stale)
		if err := s.RemoveAllConfig(ctx, stale); err != nil {
			return err
		}
	}
	return s.SetAllConfig(ctx, config)
}

// linkPlugins puts the plugins where the engine looks last, after what was switched off: a real directory each, which
// the engine insists on, with a link to the binary.
func linkPlugins(dir string, plugins ...plugin) error {
	for _, p := range plugins {
		if err := os.MkdirAll(filepath.Join(dir, p.directory()), 0o700); err != nil {
			return err
		}
		link := filepath.Join(dir, p.directory(), p.file())
		// A backend that is opened again may have been made with other plugins.
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Symlink(p.binary, link); err != nil {
			return err
		}
	}
	return nil
}

// environ is the process's environment without foreign variables, and then env.
func environ(env map[string]string) []string {
	result := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return foreign(name)
	})
	for _, name := range slices.Sorted(maps.Keys(env)) {
		result = append(result, name+"="+env[name])
	}
	return result
}

// foreign variables lead to the user's backends, accounts and hosts: those of Pulumi, and those that the Proxmox
// provider takes for what its configuration leaves out.
func foreign(name string) bool {
	return strings.HasPrefix(name, "PULUMI_") || strings.HasPrefix(name, "PROXMOX_VE_")
}

// readOrCreate returns the content of a file that only the user can read, and creates it with the given one.
func readOrCreate(path, content string) (string, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		existing, err := os.ReadFile(path)
		return string(existing), err
	}
	if err != nil {
		return "", err
	}
	_, err = file.WriteString(content)
	return content, errors.Join(err, file.Close())
}
