package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/preflight/permissions"
	"talos-proxmox/stacks/config"
	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// allPrivileges asks for every privilege to be taken away, instead of a sample.
const allPrivileges = "TALOS_PROXMOX_ALL_PRIVILEGES"

// privilege is a row of the page's table.
type privilege struct {
	name, call string
	needed     []string // by which stacks
}

// permissionsPage reads the table of the page, and the role that it makes on Proxmox VE 9.
func permissionsPage(t *testing.T) (table []privilege, role []string) {
	t.Helper()

	page, err := os.ReadFile(filepath.Join(root, "stacks", "docs", "permissions.md"))
	require.NoError(t, err)

	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z][A-Za-z.]+)` \\| (.*) \\| (.*) \\|$").FindAllStringSubmatch(
		string(page), -1) {
		table = append(table, privilege{row[1], row[2], strings.Split(row[3], ", ")})
	}

	made := regexp.MustCompile(`pveum role add TalosProxmox -privs "([^"]+)"`).FindStringSubmatch(string(page))
	require.NotNil(t, made)

	return table, strings.Fields(made[1])
}

// TestRolesOfVersions: each role that a page makes is one that its version of Proxmox VE accepts.
func TestRolesOfVersions(t *testing.T) {
	t.Parallel()

	command := regexp.MustCompile(`pveum role add TalosProxmox -privs "([^"]+)"`)

	for page, versions := range map[string][]world.Version{
		"README.md": {world.Version9, world.Version8}, "stacks/docs/permissions.md": {world.Version9, world.Version8},
	} {
		text, err := os.ReadFile(filepath.Join(root, page))
		require.NoError(t, err)

		made := command.FindAllStringSubmatch(string(text), -1)
		require.Len(t, made, len(versions), page)

		for i, version := range versions {
			assert.Subset(t, version.Privileges(), strings.Fields(made[i][1]), "%s for %s", page, version)
		}
	}
}

// limited is a stack with what it takes of the table, by the third column.
type limited struct {
	stack string   // name or file
	needs []string // words of the third column
	// change is done between the first update and the second; nil: nothing.
	change func(*testing.T, *rehearsal.Rehearsal)
}

func limitedStacks(t *testing.T) map[string]limited {
	t.Helper()

	const templates, downloads, agent, gpus, drive = "templates", "downloads", "guest agent", "GPUs", "cloud-init drive"

	with := func(stack, more string) string {
		text, err := os.ReadFile(filepath.Join(root, stack))
		require.NoError(t, err)

		return stackFile(t, string(text)+more)
	}

	const cloned = "  talos-proxmox:image: { source: template, template: { control: talos-v1.14.1-base, worker: " +
		"talos-v1.14.1-base } }\n"

	return map[string]limited{
		"dev":         {"dev", []string{templates, gpus}, nil},
		"smallest":    {"smallest", []string{downloads, drive}, nil},
		"k3s-dev-vms": {"k3s-dev-vms", []string{templates, gpus}, nil},
		"atlas":       {"atlas", []string{downloads, agent}, nil},
		"enterprise":  {"enterprise", []string{agent}, nil},
		"atlas without its images": {
			with("stacks/examples/Pulumi.atlas.yaml", "  talos-proxmox:lifecycle: { keepImages: false }\n"),
			[]string{downloads, agent, "`lifecycle.keepImages: false`"},
			nil,
		},
		"k3s": {"k3s", []string{templates, agent, "K3s", drive, "`firewall.enabled`"}, nil},
		"options": {
			with("stacks/examples/Pulumi.smallest.yaml",
				cloned+"  talos-proxmox:defaults: { startup: { order: 2 }, haGroup: racks, resourcePool: talos }\n"),
			[]string{templates, "`startup`", "`haGroup`", "`resourcePool`"},
			func(t *testing.T, r *rehearsal.Rehearsal) {
				t.Helper()
				require.NoError(t, r.Lab.World().CreatePool("others", ""))
				set(t, r.Stack, "defaults.resourcePool", "others")
			},
		},
		"templates": {with("stacks/examples/Pulumi.smallest.yaml", cloned), []string{templates}, nil},
		"firewall": {
			with("stacks/examples/Pulumi.smallest.yaml", cloned+"  talos-proxmox:firewall: { enabled: true }\n"),
			[]string{templates, "`firewall.enabled`"},
			nil,
		},
		"rebalance": {
			stackFile(t, pair{"iso", "metal", "", "reserved"}.stack()),
			[]string{agent, "`placement.rebalance`"},
			func(t *testing.T, r *rehearsal.Rehearsal) {
				t.Helper()
				set(t, r.Stack, "placement.rebalance", "true")
				set(t, r.Stack, "pools.worker.host", "pve2")
			},
		},
	}
}

// of are the privileges that a stack needs.
func (l limited) of(table []privilege) []string {
	var names []string

	for _, p := range table {
		if slices.ContainsFunc(p.needed, func(by string) bool { return by == "all" || slices.Contains(l.needs, by) }) {
			names = append(names, p.name)
		}
	}

	return names
}

// TestPreviewReadsOnly: the role of the page for previews shows what an update would do, as the update's own token does,
// and is not enough for the update.
func TestPreviewReadsOnly(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	set(t, r.Stack, "pools.worker.count", "2")

	table := func() string {
		out := newOutput(t)
		_, err := r.Stack.Preview(t.Context(), optpreview.ProgressStreams(out), optpreview.ErrorProgressStreams(out))
		require.NoError(t, err)

		var lines []string

		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, " +  ") && !strings.Contains(line, "pulumi:providers:") {
				lines = append(lines, line)
			}
		}

		slices.Sort(lines)

		return strings.Join(slices.Compact(lines), "") + strings.Join(regexp.MustCompile(
			"the credentials are read-only, which is enough for this preview").FindAllString(out.String(), 1), "")
	}

	all := table()
	require.Contains(t, all, "k3s-dev-worker-2-vm")

	mayRead(t, r)
	login(t, r.Stack, limitedToken, limitedSecret)

	assert.Equal(t, all+"the credentials are read-only, which is enough for this preview", table())

	before := r.Lab.World().Snapshot()

	assert.Contains(t, failUp(t, r.Stack), "the credentials lack VM.Allocate on ")
	assert.Equal(t, before, r.Lab.World().Snapshot())
}

// limitedToken is what a limited stack logs in with, and limitedSecret its secret.
const (
	limitedToken  = "limited@pve!token"
	limitedSecret = "6d1f4c36-3f6b-4d35-9d8a-2c8b8d0f1a77"
)

// login has a stack log in to Proxmox VE with another token.
func login(t *testing.T, s auto.Stack, id, secret string) {
	t.Helper()

	set(t, s, "proxmox.tokenId", id)
	require.NoError(t, s.SetConfig(t.Context(), config.Project+":proxmoxTokenSecret",
		auto.ConfigValue{Value: secret, Secret: true}))
}

// mayRead makes the limited token, with the role that pipeline.md has for previews.
func mayRead(t *testing.T, r *rehearsal.Rehearsal) {
	t.Helper()

	role := regexp.MustCompile(`pveum role add TalosPreview -privs "([^"]+)"`).
		FindSubmatch(readFile(t, filepath.Join(root, "stacks", "docs", "pipeline.md")))
	require.NotNil(t, role)

	r.Lab.World().AddToken(limitedToken, limitedSecret)
	r.Lab.World().Grant(limitedToken, "/", strings.Fields(string(role[1]))...)
}

// try deploys, changes and destroys a stack with a token that has these privileges alone. The other changes are made
// before.
func (l limited) try(t *testing.T, privileges []string, before ...func(*rehearsal.Rehearsal)) (*rehearsal.Rehearsal,
	string, error,
) {
	t.Helper()

	return l.tryOn(t, rehearse(t, l.stack), privileges, before...)
}

func (l limited) tryOn(t *testing.T, r *rehearsal.Rehearsal, privileges []string,
	before ...func(*rehearsal.Rehearsal),
) (*rehearsal.Rehearsal, string, error) {
	t.Helper()

	r.Lab.World().AddToken(limitedToken, limitedSecret)
	r.Lab.World().Grant(limitedToken, "/", privileges...)

	for _, f := range before {
		f(r)
	}

	set(t, r.Stack, "lifecycle.nodeTimeout", "20s")
	login(t, r.Stack, limitedToken, limitedSecret)

	out := newOutput(t)

	update := func() error {
		_, err := r.Stack.Up(t.Context(), optup.ProgressStreams(out), optup.ErrorProgressStreams(out))

		return err
	}

	err := update()
	if err == nil && l.change != nil {
		l.change(t, r)
		err = update()
	}

	if err == nil {
		requireNoChange(t, r.Stack)
		err = rehearsal.Destroy(t.Context(), r.Stack, optdestroy.ProgressStreams(out), optdestroy.ErrorProgressStreams(out))
	}

	return r, out.String(), err
}

// TestImageLeft creates a stack again whose images were kept. Proxmox VE downloads nothing over a file, and the role may
// not delete it: that is said before anything is created. With a role that may, the download waits for the deletion.
func TestImageLeft(t *testing.T) {
	t.Parallel()

	table, _ := permissionsPage(t)
	l := limitedStacks(t)["smallest"]

	r, _, err := l.tryOn(t, rehearse(t, l.stack, func(o *rehearsal.Options) { o.Latencies.Free = time.Second }), l.of(table))
	require.NoError(t, err)

	for _, said := range []string{failPreview(t, r.Stack), failUp(t, r.Stack)} {
		assert.Contains(t, said, "is on host pve already, and is not in this stack's state")
		assert.Contains(t, said, "run 'pvesm free local:iso/")
	}

	for _, n := range r.Nodes() {
		assert.Equal(t, "absent", n.State, n.Name)
	}

	r.Lab.World().Grant(limitedToken, "/", append(l.of(table), "Datastore.Allocate")...)
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	destroy(t, r.Stack)
}

// TestPrivilegesAreEnough: a token with the role of the page brings each example up, and so does one with no more than
// the table says for it.
func TestPrivilegesAreEnough(t *testing.T) {
	t.Parallel()

	table, role := permissionsPage(t)
	examples := map[string]bool{}

	for name, l := range limitedStacks(t) {
		// K3s needs more, and its page says so.
		if !strings.HasSuffix(l.stack, ".yaml") && name != "k3s" {
			for _, p := range l.of(table) {
				examples[p] = true
			}
		}

		if os.Getenv(allPrivileges) == "" && name != "dev" && name != "atlas" {
			continue
		}

		t.Run(name, func(t *testing.T) {
			t.Parallel()

			r, _, err := l.try(t, l.of(table))
			require.NoError(t, err)

			if l.change == nil {
				assert.Empty(t, r.Leftovers())
			}

			// The calls of the table are calls that are made.
			for _, p := range table {
				if slices.Contains(l.of(table), p.name) {
					assertCalled(t, r, p)
				}
			}
		})
	}

	var needed []string
	for p := range examples {
		needed = append(needed, p)
	}

	assert.ElementsMatch(t, needed, role, "the role of the page is what the examples need")

	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	assert.Contains(t, string(readme), strings.Join(role, " "), "the role of the README")
}

// TestPrivilegesAreEnoughOnProxmox8: so does a token with the role for that version, the one that 'ops role' prints.
func TestPrivilegesAreEnoughOnProxmox8(t *testing.T) {
	t.Parallel()

	for _, name := range []string{"dev", "atlas"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := limitedStacks(t)[name]
			r := rehearse(t, l.stack, onProxmox(world.Version8))
			role := permissions.Role(r.Plan, world.Version8.Major())

			assert.Subset(t, world.Version8.Privileges(), role)
			assert.Equal(t, name == "atlas", slices.Contains(role, "VM.Monitor"), "atlas asks guest agents for addresses")
			assert.Subset(t, roleOf(t, "stacks/docs/permissions.md", 1), role, "the role of the page")

			_, _, err := l.tryOn(t, r, role)
			require.NoError(t, err)
			assert.Empty(t, r.Leftovers())
		})
	}
}

// roleOf is one of the roles that a page makes: first that of Proxmox VE 9, then that of 8.
func roleOf(t *testing.T, page string, which int) []string {
	t.Helper()

	made := regexp.MustCompile(`pveum role add TalosProxmox -privs "([^"]+)"`).
		FindAllSubmatch(readFile(t, filepath.Join(root, page)), -1)
	require.Greater(t, len(made), which, page)

	return strings.Fields(string(made[which][1]))
}

var (
	callInPage  = regexp.MustCompile("`([A-Z]+ /[^`]*)`")
	placeInCall = regexp.MustCompile(`\\\{[a-z]+\\\}`)
)

// assertCalled holds that a call of a row was made. Rows that say "the same call" mean the one above.
func assertCalled(t *testing.T, r *rehearsal.Rehearsal, p privilege) {
	t.Helper()

	calls := callInPage.FindAllStringSubmatch(p.call, -1)

	for _, call := range calls {
		pattern := regexp.MustCompile("^" + placeInCall.ReplaceAllString(regexp.QuoteMeta(call[1]), "[^/]+") + "/?$")

		if slices.ContainsFunc(r.Lab.Journal().Entries(), func(e journal.Entry) bool { return pattern.MatchString(e.Call) }) {
			return
		}
	}

	if calls != nil {
		assert.Fail(t, "the call was not made: "+p.call, p.name)
	}
}

// TestPrivilegesOfThePlan: what the program looks for before it makes anything is what the page says.
func TestPrivilegesOfThePlan(t *testing.T) {
	t.Parallel()

	table, _ := permissionsPage(t)

	for name, l := range limitedStacks(t) {
		t.Run(name, func(t *testing.T) {
			stack, err := rehearsal.Find(root, l.stack)
			require.NoError(t, err)

			config, err := config.LoadFile(stack.Path)
			require.NoError(t, err)

			p, err := config.Plan()
			require.NoError(t, err)

			if slices.Contains(l.needs, "`placement.rebalance`") {
				p.Rebalance = true
			}

			var needed []string

			for _, n := range p.Nodes() {
				template := 0
				if n.Template != "" {
					template = 9000
				}

				for _, privilege := range permissions.Needed(p, n, template) {
					needed = append(needed, privilege.Names[0])
				}
			}

			slices.Sort(needed)
			assert.ElementsMatch(t, l.of(table), slices.Compact(needed))
		})
	}
}

// spare are privileges that a stack comes up without.
var spare = map[string]bool{"VM.GuestAgent.FileRead": true, "Sys.Audit": true}

// hiddenWithout is what is said where nothing is denied, but something cannot be seen.
var hiddenWithout = map[string]string{
	"VM.GuestAgent.Audit": "reports no address inside network.cidr",
	"Sys.AccessNetwork":   `metal-amd64.iso\): Permission check failed`, // either of two would do, and none is named
	"VM.Allocate":         `: Permission check failed`,                  // on the VM or on its pool
}

// revokeNext leaves the token these privileges alone from the next call on.
func revokeNext(r *rehearsal.Rehearsal, privileges []string) {
	r.Lab.Journal().Plant(journal.Fault{
		Face: journal.Proxmox, Call: regexp.MustCompile("^"), Kind: journal.Interfere,
		Before: func(journal.Entry) { r.Lab.World().Grant(limitedToken, "/", privileges...) },
	})
}

// TestEachPrivilegeIsNeeded takes each privilege away from a stack that needs it. Where it is missing from the beginning, nothing is
// begun. Where it goes when the first look is over, the stack cannot be deployed, changed or destroyed; what Proxmox VE says names the
// privilege, but for what is only hidden.
func TestEachPrivilegeIsNeeded(t *testing.T) {
	t.Parallel()

	table, _ := permissionsPage(t)
	sample := []string{"Datastore.AllocateSpace", "Mapping.Use", "VM.Config.Cloudinit"}

	for _, p := range table {
		if os.Getenv(allPrivileges) == "" && !slices.Contains(sample, p.name) {
			continue
		}

		t.Run(p.name, func(t *testing.T) {
			t.Parallel()

			l := limitedStacks(t)[map[string]string{
				"all": "templates", "templates": "templates", "GPUs": "k3s-dev-vms", "downloads": "atlas",
				"guest agent":                   "enterprise",
				"`lifecycle.keepImages: false`": "atlas without its images", "`startup`": "options", "`haGroup`": "options",
				"`resourcePool`": "options", "`placement.rebalance`": "rebalance", "K3s": "k3s", "cloud-init drive": "k3s",
			}[p.needed[0]]]
			require.NotEmpty(t, l.stack, p.needed)

			has := l.of(table)
			lacks := slices.DeleteFunc(slices.Clone(has), func(name string) bool { return name == p.name })

			t.Run("from the beginning", func(t *testing.T) {
				r, said, err := l.try(t, lacks)
				if spare[p.name] {
					require.NoError(t, err)
				} else {
					require.Error(t, err)

					// Nothing migrates a missing VM.
					if p.name != "VM.Migrate" {
						assert.Empty(t, r.Leftovers(), "nothing was made")
					}
				}

				assert.Regexp(t, `the credentials lack ([A-Za-z.]+ or )*`+regexp.QuoteMeta(p.name)+`[ ,]`, said)
			})

			// Who cannot see a VM any more waits for it for as long as the provider does. Providers 0.69.1 and 0.73.0 move
			// a VM out of the pool that the state names, and look at none.
			if spare[p.name] || p.name == "VM.Audit" || p.name == "Pool.Audit" {
				return
			}

			t.Run("after the first look", func(t *testing.T) {
				_, said, err := l.try(t, has, func(r *rehearsal.Rehearsal) {
					r.Lab.Journal().Plant(journal.Fault{
						Face: journal.Proxmox, Call: regexp.MustCompile("^GET /access/permissions$"), Kind: journal.Interfere,
						Before: func(journal.Entry) { revokeNext(r, lacks) },
					})
				})
				require.Error(t, err)

				// What is only hidden is not denied, nor named. What changes a VM is looked for again before it does.
				name := regexp.QuoteMeta(p.name)
				if hidden, there := hiddenWithout[p.name]; there {
					assert.Regexp(t, hidden, said)
				} else {
					assert.Regexp(t, `Permission check failed \([^)]*`+name+`|lack `+name+` [^\n]*, which the change of`, said)
				}
			})
		})
	}
}
