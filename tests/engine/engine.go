// Package engine finds or builds what runs a Pulumi program here: the pulumi CLI, the plugins of the two providers, and
// a language host for Go. Programs then run on private file backends: no account, no state and no credential of the
// user's is read or written, and with plugins built here nothing outside the machine is contacted.
//
// What has to be built comes from nested modules of this repository, once per machine: it is kept in a cache directory
// under a key of everything that went into it, so a change rebuilds and nothing else does. This needs the go command
// and a Unix system.
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blang/semver"
	"github.com/pulumi/pulumi/sdk/v3"
	"github.com/pulumi/pulumi/sdk/v3/go/auto"
)

// Providers says where the provider plugins come from.
type Providers string

const (
	// Auto takes the published plugins where they are at hand or can be fetched without much waiting, else bridged ones.
	Auto Providers = "auto"
	// Published are the plugins that the SDKs' authors release, of exactly the SDKs' versions.
	Published Providers = "published"
	// Bridged are built from the upstream Terraform providers in tests/plugins.
	Bridged Providers = "bridged"
)

// ParseProviders reads the value of a flag or a variable. The empty string is Auto.
func ParseProviders(s string) (Providers, error) {
	switch p := Providers(s); p {
	case "":
		return Auto, nil
	case Auto, Published, Bridged:
		return p, nil
	}
	return "", fmt.Errorf("providers: %q is none of %s, %s and %s", s, Auto, Published, Bridged)
}

// Environment variables that Open reads.
const (
	// CacheVariable overrides Options.CacheDir's default.
	CacheVariable = "TALOS_PROXMOX_CACHE"
	// ProvidersVariable decides what Auto means: published or bridged.
	ProvidersVariable = "TALOS_PROXMOX_PROVIDERS"
	// PluginsVariable names a directory with published plugins in Pulumi's layout: resource-talos-v0.7.1/ and so on.
	PluginsVariable = "TALOS_PROXMOX_PLUGINS"
	// BridgeVariable names another module file in tests/plugins that the bridged plugins are built with: newest for
	// newest.mod. Nothing depends on how tests end with it.
	BridgeVariable = "TALOS_PROXMOX_BRIDGE"
)

// Options are what a caller may choose; the zero value is fine.
type Options struct {
	// Providers says which plugins to use. Default Auto, which ProvidersVariable may decide.
	Providers Providers
	// Log receives progress, line by line: what was chosen, what is being built, for how long. Default os.Stderr; in a
	// test the terminal, where there is one, because go test withholds what a test prints until its package is done.
	Log io.Writer
	// CacheDir keeps what was built or fetched, some 500 MB. Default CacheVariable, else talos-proxmox in the user's
	// cache directory.
	CacheDir string
	// SecretsProvider encrypts the secrets of new stacks: a URL that 'pulumi stack init --secrets-provider' takes. Default
	// a passphrase of each backend's own.
	SecretsProvider string
	// Env are further variables of the CLI, such as those of the secrets provider.
	Env map[string]string
}

// Engine is a CLI, two provider plugins and a language host that work together. It is safe for concurrent use.
type Engine struct {
	command      auto.PulumiCommand
	cli          string // path of the binary
	cliOrigin    string // where it came from, for people
	providers    Providers
	plugins      []plugin
	pluginOrigin string
	builder      *builder
	source       string // directory of the repository
	secrets      string // provider of new stacks
	env          map[string]string
}

// Open finds or builds everything, and takes a second when nothing has to be built. The first call on a machine may
// build for several minutes; processes that call it at the same time wait for one of them. A choice that cannot be met
// is an error that says what was tried.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if o.Log == nil {
		o.Log = defaultLog()
	}
	wanted, err := chosen(o.Providers)
	if err != nil {
		return nil, err
	}
	cache, err := cacheDir(o.CacheDir)
	if err != nil {
		return nil, err
	}
	source, err := findSource(ctx)
	if err != nil {
		return nil, err
	}
	b := &builder{cache: cache, log: o.Log}

	e := &Engine{builder: b, source: source, secrets: cmp.Or(o.SecretsProvider, "passphrase"), env: o.Env}
	if err := e.findCLI(ctx, b, source, wanted); err != nil {
		return nil, err
	}
	if err := e.findPlugins(ctx, b, source, wanted); err != nil {
		return nil, err
	}
	if err := e.findLanguageHost(ctx, b, source); err != nil {
		return nil, err
	}
	fmt.Fprintln(o.Log, e.Describe())
	return e, nil
}

// Providers says which plugins are in use: Published or Bridged.
func (e *Engine) Providers() Providers { return e.providers }

// ProviderVersions says what figures were measured with:
// "bridged providers bpg/proxmox 0.73.0, siderolabs/talos 0.7.1".
func (e *Engine) ProviderVersions() string {
	if e.providers == Bridged {
		return "bridged providers " + e.pluginOrigin
	}
	var named []string
	for _, p := range e.plugins {
		named = append(named, p.name+" "+p.version)
	}
	return "published providers " + strings.Join(named, ", ")
}

// Describe says in one line what was chosen: the CLI with version and origin, the providers with origin.
func (e *Engine) Describe() string {
	return fmt.Sprintf("pulumi %s (%s), %s providers (%s)", e.command.Version(), e.cliOrigin, e.providers, e.pluginOrigin)
}

// CLI is the absolute path of the pulumi binary. Run it with the environment of a Backend.
func (e *Engine) CLI() string { return e.cli }

// Command is the pulumi command that stacks are run with.
func (e *Engine) Command() auto.PulumiCommand { return e.command }

// chosen settles what was asked for, which the environment decides where the caller left it open.
func chosen(p Providers) (Providers, error) {
	p, err := ParseProviders(string(p))
	if err != nil || p != Auto {
		return p, err
	}
	if p, err = ParseProviders(os.Getenv(ProvidersVariable)); err != nil {
		return "", fmt.Errorf("%s: %w", ProvidersVariable, err)
	}
	return p, nil
}

func defaultLog() io.Writer {
	if testing.Testing() {
		if tty, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0); err == nil {
			return tty
		}
	}
	return os.Stderr
}

func cacheDir(dir string) (string, error) {
	if dir == "" {
		dir = os.Getenv(CacheVariable)
	}
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no directory to build into: %w; set %s", err, CacheVariable)
		}
		dir = filepath.Join(user, "talos-proxmox")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", unwritable(dir, err)
	}
	return dir, nil
}

// unwritable says what to do about a directory that nothing can be built into.
func unwritable(dir string, err error) error {
	return fmt.Errorf("nothing can be built into %s: %w; set %s to a directory that can be written", dir, err,
		CacheVariable)
}

// findCLI takes the pulumi on PATH if it is recent enough, else the released one, where it can be fetched and nothing
// is to be built here by choice, else it builds one.
func (e *Engine) findCLI(ctx context.Context, b *builder, source string, wanted Providers) error {
	// 3.255.0 is the first version whose engine has all that the program uses. It is a version of the SDK's own type.
	minimum := sdk.Version
	minimum.Minor, minimum.Patch = 255, 0

	reason := "none on PATH"
	if path, err := exec.LookPath("pulumi"); err == nil {
		command, err := auto.NewPulumiCommand(&auto.PulumiCommandOptions{Version: minimum})
		if err == nil {
			if path, err = filepath.Abs(path); err != nil {
				return err
			}
			e.command, e.cli, e.cliOrigin = command, path, path
			return nil
		}
		reason = fmt.Sprintf("%s does not do: %v", path, err)
	}

	dir := cliDir(source)
	version, err := requiredVersion(dir, "github.com/pulumi/pulumi/pkg/v3")
	if err != nil {
		return err
	}
	if wanted != Bridged {
		root, err := b.fetchCLI(ctx, strings.TrimPrefix(version, "v"))
		if err == nil {
			return e.useCLI(root, "its release page", minimum)
		}
		fmt.Fprintf(b.log, "the released pulumi CLI: %v; one is built instead\n", err)
	}

	root, err := b.build(ctx, cliOf(dir, version, reason))
	if err != nil {
		return err
	}
	return e.useCLI(root, "built from source", minimum)
}

func cliDir(source string) string { return filepath.Join(source, "tests", "engine", "cli") }

func cliOf(dir, version, reason string) artefact {
	return artefact{
		name: "cli", binary: "bin/pulumi", what: "the pulumi CLI " + version + " (" + reason + ")",
		dir: dir, inputs: []string{dir}, target: "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
		// Without a version the Automation API cannot tell what it is talking to.
		ldflags: "-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=" + strings.TrimPrefix(version, "v"),
		// Without the tag, the client of Google's storage brings a service mesh along.
		tags: "disable_grpc_modules", minutes: 7,
	}
}

// useCLI takes the CLI in a directory.
func (e *Engine) useCLI(root, origin string, minimum semver.Version) error {
	command, err := auto.NewPulumiCommand(&auto.PulumiCommandOptions{Version: minimum, Root: root})
	if err != nil {
		return err
	}
	e.command, e.cli, e.cliOrigin = command, filepath.Join(root, "bin", "pulumi"), origin
	return nil
}

// findLanguageHost builds one unless the CLI was installed with its own. Pulumi looks for it next to the CLI first and
// in the plugin directory last.
func (e *Engine) findLanguageHost(ctx context.Context, b *builder, source string) error {
	const binary = "pulumi-language-go"
	cli, err := filepath.EvalSymlinks(e.cli)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(cli), binary)); err == nil {
		return nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	dir := filepath.Join(source, "tests", "engine", "languagehost")
	root, err := b.build(ctx, artefact{
		name: "languagehost", binary: binary, what: "a language host for Go",
		dir: dir, inputs: []string{dir, filepath.Join(source, "go.mod"), filepath.Join(source, "go.sum")}, target: ".",
		minutes: 1,
	})
	if err != nil {
		return err
	}
	e.plugins = append(e.plugins, plugin{
		kind: "language", name: "go", version: sdk.Version.String(), binary: filepath.Join(root, binary),
	})
	return nil
}
