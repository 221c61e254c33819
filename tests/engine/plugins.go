package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// plugin is one executable that the engine starts.
type plugin struct {
	kind, name, version string // resource, talos, 0.7.1
	binary              string // path of the executable
}

// directory is what Pulumi calls the plugin's directory among its plugins; file is what it starts there.
func (p plugin) directory() string { return fmt.Sprintf("%s-%s-v%s", p.kind, p.name, p.version) }
func (p plugin) file() string      { return fmt.Sprintf("pulumi-%s-%s", p.kind, p.name) }

// sdks are the providers that the program uses, by the Go modules of their SDKs. A published plugin has its SDK's
// version and is fetched from the server that the SDK names (pulumi-plugin.json in it).
var sdks = []struct{ name, module, server string }{
	{"talos", "github.com/pulumiverse/pulumi-talos/sdk", "github://api.github.com/pulumiverse"},
	{"proxmoxve", "github.com/muhlba91/pulumi-proxmoxve/sdk/v6", "github://api.github.com/muhlba91/pulumi-proxmoxve"},
}

// releases answers wherever published plugins can be fetched at all. (A variable for the tests.)
var releases = "https://api.github.com/"

const (
	// Auto asks for a sign of life first, so that a machine without internet waits for seconds only; a slow line may
	// then take its time to bring some 100 MB, within reason.
	reachTimeout, fetchTimeout = 5 * time.Second, 3 * time.Minute
	// refusedFor is how long Auto remembers that they could not be had, so that not every run asks again.
	refusedFor = 24 * time.Hour
)

// findPlugins settles where the provider plugins come from.
func (e *Engine) findPlugins(ctx context.Context, b *builder, source string, wanted Providers) error {
	plugins := make([]plugin, len(sdks))
	for i, s := range sdks {
		version, err := requiredVersion(source, s.module)
		if err != nil {
			return err
		}
		plugins[i] = plugin{kind: "resource", name: s.name, version: strings.TrimPrefix(version, "v")}
	}

	if wanted != Bridged {
		origin, err := e.findPublished(ctx, b, plugins, wanted)
		if err == nil {
			e.plugins, e.providers, e.pluginOrigin = plugins, Published, origin
			return nil
		}
		if wanted == Published || os.Getenv(PluginsVariable) != "" {
			return fmt.Errorf("published providers: %w", err)
		}
		fmt.Fprintf(b.log, "published providers: %v; bridged ones do instead\n", err)
	}

	modules, err := bridgeModules(source)
	if err != nil {
		return err
	}
	root, err := b.build(ctx, bridged(source, modules))
	if err != nil {
		return err
	}
	for i := range plugins {
		plugins[i].binary = filepath.Join(root, "providers") // both: the name it is started by tells it which it is
	}
	if modules == "" {
		modules = filepath.Join(source, "tests", "plugins", "go.mod")
	}
	versions, err := bridgedVersions(modules)
	e.plugins, e.providers, e.pluginOrigin = plugins, Bridged, versions
	return err
}

// bridgeModules is the module file that the bridged plugins are built with; empty: go.mod.
func bridgeModules(source string) (string, error) {
	name := os.Getenv(BridgeVariable)
	if name == "" {
		return "", nil
	}
	dir := filepath.Join(source, "tests", "plugins")
	file := filepath.Join(dir, name+".mod")
	if _, err := os.Stat(file); err != nil || filepath.Dir(file) != dir {
		return "", fmt.Errorf("%s: %q has no module file in tests/plugins", BridgeVariable, name)
	}
	return file, nil
}

// bridgedVersions are those of the upstream Terraform providers in a module file, as figures name them.
func bridgedVersions(modules string) (string, error) {
	var named []string
	for _, upstream := range []struct{ name, module string }{
		{"bpg/proxmox", "github.com/bpg/terraform-provider-proxmox"},
		{"siderolabs/talos", "github.com/siderolabs/terraform-provider-talos"},
	} {
		version, err := versionIn(modules, upstream.module)
		if err != nil {
			return "", err
		}
		named = append(named, upstream.name+" "+strings.TrimPrefix(version, "v"))
	}
	return strings.Join(named, ", "), nil
}

func bridged(source, modules string) artefact {
	dir := filepath.Join(source, "tests", "plugins")
	return artefact{
		name: "plugins", binary: "providers", what: "the bridged providers", dir: dir, inputs: []string{dir}, target: ".",
		modules: modules, minutes: 6, finish: []string{"schemas"},
	}
}

// findPublished fills in the plugins' binaries, from a directory or the network, and says where they came from.
func (e *Engine) findPublished(ctx context.Context, b *builder, plugins []plugin, wanted Providers) (string, error) {
	if dir := os.Getenv(PluginsVariable); dir != "" {
		dir, err := filepath.Abs(dir)
		if err != nil {
			return "", err
		}
		if err := locate(plugins, dir); err != nil {
			return "", fmt.Errorf("%s: %w", PluginsVariable, err)
		}
		return dir, nil
	}

	fetched := filepath.Join(b.cache, "published")
	for _, home := range []string{pulumiHome(), fetched} {
		dir := filepath.Join(home, "plugins")
		if locate(plugins, dir) == nil {
			return dir, nil
		}
	}

	if wanted == Auto {
		if err := b.refused("published"); err != nil {
			return "", err
		}
	}
	err := e.fetch(ctx, b, plugins, fetched, wanted)
	if err != nil && wanted == Auto && ctx.Err() == nil {
		err = b.remember("published", err)
	}
	return "their release pages", err
}

// pulumiHome is where the user's own Pulumi keeps its plugins; they are read, never written.
func pulumiHome() string {
	if home := os.Getenv("PULUMI_HOME"); home != "" {
		return home
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "" // no plugins there, then
	}
	return filepath.Join(home, ".pulumi")
}

// locate fills in the binaries of plugins that are all in one directory of Pulumi's layout.
func locate(plugins []plugin, dir string) error {
	var missing []error
	for i, p := range plugins {
		plugins[i].binary = filepath.Join(dir, p.directory(), p.file())
		if _, err := os.Stat(plugins[i].binary); err != nil {
			missing = append(missing, err)
		} else if _, err := os.Stat(filepath.Join(dir, p.directory()) + ".partial"); err == nil {
			missing = append(missing, fmt.Errorf("%s: its download was not finished", p.directory()))
		}
	}
	return errors.Join(missing...)
}

// fetch has the CLI download the plugins into a Pulumi home in the cache.
func (e *Engine) fetch(ctx context.Context, b *builder, plugins []plugin, home string, wanted Providers) error {
	if wanted == Auto {
		if err := reach(ctx, releases); err != nil {
			return err
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, fetchTimeout)
		defer cancel()
	}
	const what = "the published providers"
	unlock, err := b.lock(ctx, "published", what)
	if err != nil {
		return err
	}
	defer unlock()
	dir := filepath.Join(home, "plugins")
	if locate(plugins, dir) == nil { // another process was faster
		return nil
	}
	stop := b.report("downloading "+what, "downloading")
	defer stop()
	for i, p := range plugins {
		cmd := exec.CommandContext(ctx, e.cli, "plugin", "install", p.kind, p.name, p.version, "--server", sdks[i].server)
		cmd.Env = environ(map[string]string{"PULUMI_HOME": home, "PULUMI_SKIP_UPDATE_CHECK": "true"})
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s could not be fetched: %w: %s", p.name, p.version, errors.Join(ctx.Err(), err),
				strings.TrimSpace(string(out)))
		}
	}
	return locate(plugins, dir)
}

// reach asks a server of releases for a sign of life.
func reach(ctx context.Context, releases string) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, releases, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("the release pages cannot be reached: %w", err)
	}
	return resp.Body.Close()
}
