package tests

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/spec"
)

// module begins the paths of this module's packages, which a fork may change.
var module = strings.TrimSuffix(reflect.TypeFor[spec.Spec]().PkgPath(), "components/spec")

// TestImports holds the direction of imports: main, stacks, stacks/config, components, the operations on nodes
// (rollout/talos, rollout/k3s, rollout/vmrestart), rollout, proxmoxvm, machineconfig, talosimage, planner, plan, spec;
// pure packages know neither Pulumi nor the network; the lab knows nothing of ours, for a lab that used our code would
// agree with our mistakes.
func TestImports(t *testing.T) {
	t.Parallel()

	// What a package, or any below it, may import of this module; and of others what it may not. Siblings, such as the
	// operations of Talos and of K3s, do not import each other.
	rules := []struct {
		below   string
		may     []string
		mustNot []string
	}{
		{"components/spec", nil, []string{"github.com/", "net/http", "k8s.io/"}},
		{
			"components/planner",
			[]string{
				"components/kubecomponents", "components/plan", "components/planner", "components/planner/", "components/spec",
				"components/spelling",
			},
			[]string{"github.com/pulumi/", "net/http", "k8s.io/client-go"},
		},
		{"components/plan", []string{"components/spec"}, []string{"github.com/pulumi/", "net/http", "k8s.io/client-go"}},
		{"components/machineconfig/encode", nil, []string{"github.com/pulumi/", "net/http", "k8s.io/"}},
		{
			"components/machineconfig/manifests",
			[]string{"components/plan", "components/spec"},
			[]string{"github.com/pulumi/", "net/http", "k8s.io/client-go"},
		},
		{
			"components/machineconfig/patches",
			[]string{
				"components/kubecomponents", "components/machineconfig/encode", "components/machineconfig/manifests",
				"components/plan", "components/spec", "components/talosimage",
			},
			[]string{"github.com/pulumi/", "net/http", "k8s.io/"},
		},
		{
			"components/machineconfig/running",
			[]string{"components/machineconfig", "components/machineconfig/manifests", "components/spec"},
			[]string{"github.com/pulumi/", "net/http", "k8s.io/"},
		},
		{"components/machineconfig", []string{
			"components/kubecomponents", "components/plan", "components/spec", "components/machineconfig/",
			"components/talosimage",
		}, []string{"github.com/pulumi/", "net/http", "k8s.io/"}},
		{
			"components/talosimage",
			[]string{"components/impact", "components/machineconfig/encode", "components/plan", "components/spec"},
			[]string{"github.com/pulumi/", "net/http", "k8s.io/"},
		},
		{"components/cloudinit", nil, []string{"github.com/pulumi/", "net/http", "k8s.io/"}},
		{
			"components/k3sconfig",
			[]string{
				"components/cloudinit", "components/kubecomponents", "components/plan", "components/spec",
				"components/terminal",
			},
			[]string{"github.com/pulumi/", "net/http", "k8s.io/client-go/kubernetes", "k8s.io/client-go/rest"},
		},
		{"components/proxmoxapi", nil, []string{"github.com/pulumi/"}},
		{"components/spelling", nil, []string{"github.com/pulumi/", "net/http", "k8s.io/"}},
		{
			"components/kubecomponents",
			[]string{"components/spelling"},
			[]string{"github.com/pulumi/", "net/http", "k8s.io/client-go"},
		},
		{"components/upgradepath", nil, []string{"github.com/pulumi/", "net/http", "k8s.io/"}},
		{
			"components/impact",
			[]string{"components/spec", "components/upgradepath"},
			[]string{"github.com/pulumi/", "net/http", "k8s.io/"},
		},
		{
			"components/etcd",
			[]string{"components/impact", "components/spec"},
			[]string{"github.com/pulumi/", "net/http", "k8s.io/"},
		},
		{"components/terminal", nil, []string{"github.com/", "net/http", "k8s.io/"}},
		{"components/tokens", nil, []string{"github.com/", "net/http", "k8s.io/"}},
		{"components/atomicfile", nil, []string{"github.com/", "net/http", "k8s.io/"}},
		{"components/etcdbackup", []string{"components/atomicfile"}, []string{"github.com/pulumi/", "net/http", "k8s.io/"}},
		{"components/wait", nil, []string{"github.com/pulumi/", "net/http", "k8s.io/"}},
		{
			"components/talosapi",
			[]string{"components/etcd", "components/impact", "components/terminal", "components/wait"},
			[]string{"github.com/pulumi/"},
		},
		{"components/kubeapi", []string{"components/terminal", "components/wait"}, []string{"github.com/pulumi/"}},
		{"components/hookutil", []string{"components/terminal", "components/wait"}, []string{"net/http", "k8s.io/"}},
		{"components/rollout/k3s", []string{
			"components/hookutil", "components/k3sconfig", "components/kubeapi", "components/etcd", "components/impact",
			"components/upgradepath", "components/plan", "components/preflight/permissions",
			"components/proxmoxapi", "components/proxmoxvm", "components/proxmoxvm/", "components/rollout", "components/spec",
			"components/terminal", "components/tokens", "components/wait",
		}, []string{"net/http", "github.com/muhlba91/", "github.com/pulumiverse/"}},
		{"components/rollout/talos/bootstrap", []string{
			"components/etcdbackup", "components/rollout", "components/rollout/talos/cluster", "components/spec",
			"components/talosapi", "components/wait",
		}, []string{"net/http", "k8s.io/", "github.com/muhlba91/", "github.com/pulumiverse/"}},
		{"components/rollout/talos/changes", []string{
			"components/etcd", "components/hookutil", "components/impact", "components/kubeapi", "components/machineconfig",
			"components/machineconfig/running", "components/netprobe", "components/plan", "components/proxmoxvm",
			"components/proxmoxvm/vmidentity", "components/rollout", "components/rollout/talos/bootstrap",
			"components/rollout/talos/cluster", "components/rollout/talos/health", "components/spec", "components/talosapi",
			"components/talosimage", "components/wait",
		}, []string{"net/http", "github.com/muhlba91/", "github.com/pulumiverse/"}},
		{"components/rollout/talos/cluster", []string{
			"components/etcd", "components/etcdbackup", "components/hookutil", "components/kubeapi", "components/plan",
			"components/proxmoxvm", "components/rollout", "components/spec", "components/talosapi", "components/wait",
		}, []string{"net/http", "github.com/muhlba91/", "github.com/pulumiverse/"}},
		{"components/rollout/talos/health", []string{
			"components/kubeapi", "components/rollout/talos/cluster", "components/spec", "components/talosapi",
			"components/wait",
		}, []string{"net/http", "k8s.io/", "github.com/pulumi/"}},
		{"components/rollout/talos/removal", []string{
			"components/etcd", "components/hookutil", "components/impact", "components/kubeapi", "components/machineconfig",
			"components/plan", "components/proxmoxvm/vmidentity", "components/rollout", "components/rollout/talos/bootstrap",
			"components/rollout/talos/cluster", "components/spec", "components/talosapi", "components/tokens",
			"components/wait",
		}, []string{"net/http", "k8s.io/", "github.com/muhlba91/", "github.com/pulumiverse/"}},
		{"components/rollout/talos/talostest", []string{
			"components/plan", "components/proxmoxapi", "components/proxmoxvm", "components/rollout",
			"components/rollout/talos/cluster", "components/spec",
		}, []string{"github.com/", "net/http", "k8s.io/"}},
		{"components/rollout/talos", []string{
			"components/rollout/talos/bootstrap", "components/rollout/talos/changes", "components/rollout/talos/cluster",
			"components/rollout/talos/removal",
		}, []string{"github.com/", "net/http", "k8s.io/"}},
		{"components/rollout/vmrestart", []string{
			"components/hookutil", "components/impact", "components/plan", "components/proxmoxapi", "components/proxmoxvm",
			"components/proxmoxvm/", "components/rollout", "components/spec", "components/wait",
		}, []string{"net/http", "k8s.io/", "github.com/muhlba91/", "github.com/pulumiverse/"}},
		{"components/rollout", []string{
			"components/etcd", "components/impact", "components/kubeapi", "components/plan", "components/proxmoxvm",
			"components/proxmoxvm/", "components/spec", "components/upgradepath", "components/wait",
		}, []string{"github.com/pulumi/", "net/http"}},
		{"components/proxmoxvm", []string{
			"components/hookutil", "components/plan", "components/proxmoxapi", "components/proxmoxvm",
			"components/proxmoxvm/", "components/spec", "components/talosimage", "components/tokens", "components/wait",
		}, []string{"net/http", "k8s.io/"}},
		{"components/netprobe", nil, []string{"github.com/pulumi/", "net/http", "k8s.io/"}},
		{"components/factoryapi", nil, []string{"github.com/", "k8s.io/"}},
		{"components/preflight/checks", []string{
			"components/plan", "components/proxmoxapi", "components/proxmoxvm", "components/proxmoxvm/", "components/spec",
		}, []string{"github.com/pulumi/", "net/http", "k8s.io/"}},
		{"components/preflight/hosts", []string{
			"components/plan", "components/preflight/checks", "components/proxmoxapi", "components/proxmoxvm/vmidentity",
			"components/spec",
		}, []string{"github.com/pulumi/", "net/http", "k8s.io/"}},
		{
			"components/preflight/permissions",
			[]string{"components/plan", "components/preflight/checks", "components/proxmoxapi", "components/spec"},
			[]string{"github.com/pulumi/", "net/http", "k8s.io/"},
		},
		{"components/preflight/vms", []string{
			"components/etcd", "components/plan", "components/preflight/checks", "components/preflight/hosts",
			"components/proxmoxapi", "components/proxmoxvm", "components/proxmoxvm/", "components/spec",
		}, []string{"github.com/pulumi/", "net/http", "k8s.io/"}},
		{
			"components/preflight/preflighttest",
			[]string{"components/preflight/checks", "components/proxmoxapi"},
			[]string{"github.com/pulumi/", "net/http", "k8s.io/"},
		},
		{"components/preflight", []string{
			"components/factoryapi", "components/hookutil", "components/machineconfig", "components/netprobe", "components/plan",
			"components/preflight/", "components/proxmoxapi", "components/proxmoxvm", "components/proxmoxvm/",
			"components/spec", "components/spelling",
		}, []string{"net/http", "k8s.io/"}},
		{"components", []string{"components/"}, nil},
		{"stacks/schema", []string{"components/spec"}, []string{"github.com/pulumi/", "net/http", "k8s.io/"}},
		{"stacks/contract", []string{"components/spec", "stacks/schema"}, []string{"net/http", "k8s.io/"}},
		{"stacks/config", []string{
			"components/etcdbackup", "components/k3sconfig", "components/machineconfig", "components/machineconfig/manifests",
			"components/plan", "components/planner", "components/proxmoxapi", "components/spec", "stacks/schema",
		}, []string{"net/http", "k8s.io/", "github.com/muhlba91/", "github.com/pulumiverse/"}},
		{"stacks/files", nil, []string{"github.com/", "net/http", "k8s.io/"}},
		{"stacks/shellword", nil, []string{"github.com/", "net/http", "k8s.io/"}},
		{"stacks/export", []string{"stacks/contract"}, []string{"github.com/pulumi/", "net/http", "k8s.io/"}},
		{
			"stacks/planview",
			[]string{"components/plan", "components/spec", "components/talosimage"},
			[]string{"github.com/pulumi/", "net/http", "k8s.io/"},
		},
		{
			"stacks/migrate",
			[]string{"components/planner", "components/spec", "stacks/config", "stacks/contract"},
			[]string{"github.com/pulumi/", "net/http", "k8s.io/"},
		},
		{
			"stacks/nodesjson",
			[]string{"components/planner", "components/spec", "stacks/config", "stacks/contract"},
			[]string{"github.com/pulumi/", "net/http", "k8s.io/"},
		},
		// The operator's command registers no resources.
		{"stacks/ops", []string{
			"components/", "stacks/config", "stacks/contract", "stacks/export", "stacks/migrate", "stacks/nodesjson",
			"stacks/ops/", "stacks/planview", "stacks/shellword",
		}, []string{"github.com/muhlba91/", "github.com/pulumiverse/"}},
		{"stacks/provider/about", nil, []string{"github.com/", "net/http", "k8s.io/"}},
		{"stacks/provider", []string{
			"components/hookutil", "components/spec", "stacks", "stacks/config", "stacks/contract", "stacks/provider/about",
			"stacks/schema",
		}, nil},
		{"stacks/generate", []string{
			"components/spec", "policy/rules", "stacks/config", "stacks/contract", "stacks/migrate", "stacks/provider/about",
			"stacks/schema",
		}, []string{"net/http", "k8s.io/", "github.com/muhlba91/", "github.com/pulumiverse/"}},
		{"stacks/examples", []string{"components/spec", "stacks", "stacks/contract"}, nil},
		{"stacks", []string{
			"components", "components/", "stacks/config", "stacks/contract", "stacks/files", "stacks/shellword",
		}, nil},
		{"policy", []string{"components/plan", "components/spec", "components/tokens", "policy/"}, nil},
		// What is released is no code of ours.
		{"tests/lab", []string{"tests/lab/", "tests/upstream"}, []string{"github.com/pulumi/", "github.com/luthermonson/"}},
		{"tests/engine", []string{"tests/engine/"}, nil},
	}

	list := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "./...")
	list.Dir = root
	reader, err := list.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, list.Start())

	seen := 0

	for decoder := json.NewDecoder(reader); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}

		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}

		require.NoError(t, err)

		path := strings.TrimPrefix(p.ImportPath, module)

		for _, rule := range rules {
			if path != rule.below && !strings.HasPrefix(path, rule.below+"/") {
				continue
			}

			seen++

			for _, imported := range p.Imports {
				if ours, ok := strings.CutPrefix(imported, module); ok && !allowed(ours, rule.may) {
					t.Errorf("%s must not import %s", path, ours)
				}

				// Whoever proposes a configuration must not be able to have a command run by a preview of it.
				if runs := imported == "os/exec" || imported == "plugin"; runs && !strings.HasPrefix(path, "tests") &&
					!strings.HasPrefix(path, "stacks/ops") && path != "stacks/provider/release" {
					t.Errorf("%s must not import %s: the program runs no commands", path, imported)
				}

				for _, no := range rule.mustNot {
					if strings.HasPrefix(imported, no) {
						t.Errorf("%s must not import %s", path, imported)
					}
				}
			}

			// The first rule is the narrowest.
			break
		}
	}

	require.NoError(t, list.Wait())
	require.Greater(t, seen, 8, "the rules were held against packages")
}

// allowed says that a package is one of some. A path that ends with a slash stands for all packages below it.
func allowed(path string, some []string) bool {
	return slices.ContainsFunc(some, func(s string) bool {
		return path == s || strings.HasSuffix(s, "/") && strings.HasPrefix(path, s)
	})
}

// TestContractIsLight: who reads a cluster's outputs links Pulumi's SDK and little more.
func TestContractIsLight(t *testing.T) {
	t.Parallel()

	sdk := dependencies(t, "{{.ImportPath}}", "github.com/pulumi/pulumi/sdk/v3/go/pulumi")

	for _, path := range dependencies(t, "{{.ImportPath}}", module+"stacks/contract") {
		if slices.Contains(sdk, path) {
			continue
		}

		assert.Regexp(t, `^(`+strings.Join([]string{
			module + `(stacks/contract|stacks/schema|components/spec)`, `github.com/santhosh-tekuri/jsonschema/v6(/kind)?`,
			`golang.org/x/text/.*`, `sigs.k8s.io/yaml`, `go.yaml.in/yaml/v2`,
		}, "|")+`)$`, path)
	}
}

// TestModulesOfTests holds which modules others resolve with this one, although only its tests link them. They are
// small. What is heavy is in a module of its own, like the linter of workflows and the libraries of charts: `./...` does
// not reach into modules below, so all of tests cannot be one.
func TestModulesOfTests(t *testing.T) {
	t.Parallel()

	program := dependencies(t, "{{with .Module}}{{.Path}}{{end}}", ".", "./components/...", "./stacks/...", "./policy/...")
	extra := map[string]bool{}

	for _, path := range dependencies(t, "{{with .Module}}{{.Path}}{{end}}", "-test", "./...") {
		if !slices.Contains(program, path) {
			extra[path] = true
		}
	}

	assert.Equal(t, []string{
		"github.com/distribution/reference", "github.com/google/go-cmp", "github.com/kr/fs", "github.com/neticdk/go-stdlib",
		"github.com/pkg/sftp", "github.com/stretchr/testify", "k8s.io/component-helpers", "mvdan.cc/sh/v3",
		"pgregory.net/rapid",
	}, slices.Sorted(maps.Keys(extra)))
}

// dependencies are the packages that some link, in a format of go list.
func dependencies(t *testing.T, format string, packages ...string) []string {
	t.Helper()

	list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps", "-f", format}, packages...)...)
	list.Dir = root
	printed, err := list.Output()
	require.NoError(t, err)

	return strings.Fields(string(printed))
}
