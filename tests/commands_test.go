package tests

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/engine"
	"talos-proxmox/tests/rehearsal"
)

// runnable begins the commands that the test runs: they reach the rehearsal and the test's own directories alone.
// Others need a row in notRun.
var runnable = regexp.MustCompile(`^(?:TALOS_PROXMOX_OFFLINE=1 )?(?:` +
	`pulumi |go run \./stacks/ops |go build -o |kubectl |cd rehearsal|\. rehearsal|cp stacks/examples/|\(umask 077; pulumi |` +
	`rm -r /tmp/talos-secrets-|export TALOS_PROXMOX_SECRET|ids=)`)

// notRun are the documented commands that are not run, and why. Each row is of a page, a section of it, and the start
// of commands; an empty one means all.
var notRun = []struct{ page, section, start, why string }{
	{"README.md", "", "go run ./tests/rehearse dev", "TestFirstCommand in tests/rehearse"},
	{"README.md", "", "go run ./tests/rehearse Pulumi.prod.yaml", "another rehearsal, of the operator's own stack"},
	{"README.md", "", "go test ", "runs the tests, of which this is one"},
	{"README.md", "", "pveum ", onHost},
	{"README.md", "Test against a real Proxmox VE", "export ", onHost},
	{"autoscaling.md", "", "", "of a pool that this stack has not: TestForeignWorker"},
	{"benchmarks.md", "", "go run ./tests/bench", "takes half an hour"},
	{"configuration.md", "Install a deleted manifest again", "", "of a job that this stack has not: TestInventory in tests/lab/talos"},
	{"consumers.md", "Set addresses from nodes.json", "", "needs reported addresses: tests of stacks/nodesjson"},
	{"consumers.md", "Require the module", "", "of another module: TestConsumerModule, TestModulePath"},
	{"contributing.md", "", "go ", "a check of pull requests"},
	{"gpu.md", "", "", onHost},
	{"k3s.md", "", "", onHost},
	{"languages.md", "", "", "programs of their own: TestYAMLProgram, TestTypeScriptProgram"},
	{"machine-configuration.md", "", "talosctl ", "needs talosctl, and a node in maintenance mode"},
	{"machine-configuration.md", "", "cat > schematic.yaml", "goes with the next command"},
	{"machine-configuration.md", "", "curl ", onInternet},
	{"maintainers.md", "", "", "takes hours, or records files"},
	{"manual-tasks.md", "", "pvesh ", onHost},
	{"migration.md", "", "", "needs clusters of Terraform: TestForeignCluster, tests of stacks/migrate"},
	{"permissions.md", "", "pveum ", onHost},
	{"pipeline.md", "", "gh ", "needs a workflow on GitHub"},
	{"pulumi-cloud.md", "", "pulumi deployment ", "needs Pulumi Cloud"},
	{"platform.md", "", "go run ./tests/rehearse platform", "another rehearsal: TestPlatform"},
	{"platform.md", "", "age-keygen ", "needs age"},
	{"platform.md", "", "pulumi config set", "needs a file of the operator's: TestNoSecretInPlainText"},
	{"pipeline.md", "", "pveum ", onHost},
	{"pipeline.md", "", "go run ./stacks/ops restore", "goes with the command before it"},
	{"policy.md", "", "pulumi preview --policy-pack policy", "compiles the pack once more: the next two commands do that"},
	{"policy.md", "", "go run ./tests/rehearse dev --policy", "another rehearsal: the pack is run on this one"},
	{"speed.md", "", "export PULUMI_PARALLEL", "settings of a shell; ops run has them, and the benchmarks"},
	{"practise.md", "", "go run ./tests/rehearse smallest --keep", "the test keeps this rehearsal itself"},
	{"practise.md", "", "go run ./tests/rehearse k3s --keep", "another rehearsal: TestK3s"},
	{"recovery.md", "Recover a lost state", "pulumi stack init dev", "README.md has the stack made"},
	{"recovery.md", "1. Restore the newest snapshot", "go run ./stacks/ops restore newest", "practise.md restores one"},
	{"recovery.md", "3. Rebuild the cluster", "go run ./stacks/ops ", "state.md and upgrades.md have the same commands"},
	{"recovery.md", "1. Restore the newest snapshot", "go run ./stacks/ops restore old.json", "goes with a command of Pulumi Cloud"},
	{"recovery.md", "", "go run ./stacks/ops run refresh", refreshed},
	{"recovery.md", "Import a K3s cluster", "", "a cluster of K3s: TestK3sIdentity"},
	{"recovery.md", "", "qm ", onHost},
	{"recovery.md", "Recover etcd after quorum loss", "pulumi config set", "etcd has its quorum: TestRecover breaks it"},
	{"recovery.md", "Recover etcd after quorum loss", "go run ./stacks/ops run up", "goes with the command before it"},
	{"recovery.md", "Recover etcd after quorum loss", "go run ./stacks/ops etcd decrypt", encrypted},
	{"recovery.md", "Recover from the loss of all control planes", "", "etcd is there: TestRecover loses it"},
	{"recovery.md", "", "go run ./stacks/ops run state delete", "has a placeholder: TestOpsCommand"},
	{"recovery.md", "Rotate the certificate authorities", "go run ./stacks/ops import", "goes with the last row"},
	{"secrets.md", "Set the secret keys", "pulumi config set --secret sshPrivateKey", "the stack has no SSH"},
	{"secrets.md", "", "pulumi config env add", "needs Pulumi Cloud"},
	{"secrets.md", "Read values from a command", "", "shows commands of others"},
	{"state.md", "Schedule daily snapshots", "", "a line of crontab"},
	{"state.md", "", "go run ./stacks/ops run refresh", refreshed},
	{"speed.md", "Compile the program once", "", "links the program once more: TestCompile"},
	{"template.md", "", "", onHost},
	{"upgrades.md", "Back up etcd", "age-keygen ", "needs age"},
	{"upgrades.md", "Back up etcd", "go run ./stacks/ops etcd snapshot --keep 30 --to", "needs a bucket: TestPutBucket"},
	{"upgrades.md", "Back up etcd", "pulumi config set --path 'talos-proxmox:lifecycle.backup", encrypted},
	{"troubleshooting.md", "", "go run ./stacks/ops run refresh", refreshed},
	{"troubleshooting.md", "", "go run ./tests/rehearse Pulumi.dev.yaml --plan", "TestPlan in tests/rehearse"},
}

const (
	encrypted  = "needs a key of age: TestQuorumLost"
	onHost     = "runs on a host of Proxmox VE, or on its VM"
	onInternet = "needs the internet"
	refreshed  = "TestOpsCommand refreshes"
)

// pagesInOrder are those whose commands build on each other: the lab of practise.md is kept, the stack of README.md is
// what the others use, and day2.md destroys it. The rest follow by name.
var pagesInOrder = []string{
	"practise.md", "README.md", "consumers.md", "preflight.md", "policy.md", "state.md", "upgrades.md",
	"troubleshooting.md", "secrets.md", "manual-tasks.md", "recovery.md", "day2.md",
}

// documentedCommand is a command of a document, with all of its lines.
type documentedCommand struct {
	page, section, text string
	// inline: it is named in a sentence.
	inline bool
}

func (c documentedCommand) String() string { return c.page + ": " + c.text }

// excuse is the row of notRun that a command has, or -1.
func (c documentedCommand) excuse() int {
	for i, row := range notRun {
		if row.page == c.page && (row.section == "" || row.section == c.section) && strings.HasPrefix(c.text, row.start) {
			return i
		}
	}

	return -1
}

// documentedCommands are those of all documents, in the order of pagesInOrder.
func documentedCommands(t *testing.T) []documentedCommand {
	t.Helper()

	texts := map[string]string{}
	for path, text := range documents(t) {
		if name := filepath.Base(path); name != "README.md" || path == name {
			texts[name] = text
		}
	}

	var found []documentedCommand

	others := slices.DeleteFunc(slices.Sorted(maps.Keys(texts)),
		func(page string) bool { return slices.Contains(pagesInOrder, page) })

	for _, page := range append(slices.Clone(pagesInOrder), others...) {
		require.Contains(t, texts, page)

		found = append(found, commandsIn(page, texts[page])...)
	}

	return found
}

var (
	fence   = regexp.MustCompile("^ *```")
	heredoc = regexp.MustCompile(`<<'(\w+)'`)
)

// commandsIn are the commands of a page, of its sentences only those of this module. A line that ends with a backslash
// goes with the next one, and so do the lines of a here-document.
func commandsIn(page, text string) []documentedCommand {
	var (
		found                []documentedCommand
		section, until, open string
		inShell, inOther     bool
	)

	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		trimmed := strings.TrimSpace(line)

		switch {
		case fence.MatchString(line):
			inShell, inOther = !inShell && !inOther && trimmed == "```sh", !inShell && !inOther && trimmed != "```sh"
		case inOther:
		case !inShell:
			if heading, is := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); is && strings.HasPrefix(line, "#") {
				section = heading
			}

			for _, m := range inline.FindAllStringSubmatch(line, -1) {
				if strings.HasPrefix(m[1], "go run ") {
					found = append(found, documentedCommand{page, section, m[1], true})
				}
			}
		case until != "":
			found[len(found)-1].text += "\n" + line
			if trimmed == until {
				until = ""
			}
		case open != "" && strings.HasSuffix(line, `\`):
			open += trimmed + "\n"
		case strings.HasSuffix(line, `\`):
			open = trimmed + "\n"
		case trimmed == "" || strings.HasPrefix(trimmed, "#"):
		default:
			found, open = append(found, documentedCommand{page, section, open + trimmed, false}), ""

			if m := heredoc.FindStringSubmatch(line); m != nil {
				until = m[1]
			}
		}
	}

	return found
}

// TestEachCommandIsRunOrExcused: a new command in a document either runs in TestDocumentedCommands, or has a row that
// says why it does not; so has one in a sentence that is in no block, with whatever arguments. A row whose commands are
// gone goes, too.
func TestEachCommandIsRunOrExcused(t *testing.T) {
	t.Parallel()

	used, running := map[int]bool{}, 0
	all := documentedCommands(t)

	for _, c := range all {
		row := c.excuse()

		switch {
		case row >= 0:
			used[row] = true
		case c.inline:
			begin, _, _ := strings.Cut(c.text, " <") // up to what stands for something

			assert.True(t, slices.ContainsFunc(all, func(block documentedCommand) bool {
				return !block.inline && (strings.HasPrefix(block.text, begin) || strings.HasPrefix(begin, block.text+" "))
			}), "%s: neither in a block nor in notRun", c)
		default:
			running++

			assert.Regexp(t, runnable, c.text, "%s: neither run nor in notRun", c)
		}
	}

	for i, row := range notRun {
		assert.True(t, used[i], "no command has the row %v", row)
	}

	assert.Greater(t, running, 50)
}

// terminal runs commands one after the other, as a shell would: what one exports, and where it goes, the next one has.
type terminal struct {
	dir  string // where the project is
	at   string
	env  []string
	kept string // file of the exported variables, and the directory
}

func (s *terminal) run(t *testing.T, command, input string) string {
	t.Helper()

	script := fmt.Sprintf("[ ! -e %[1]s ] || . %[1]s\ncd %[2]s\nset -euo pipefail\n%[3]s\n"+
		"export -p > %[1]s\npwd > %[1]s.dir\n", s.kept, s.at, command)

	c := exec.CommandContext(t.Context(), "bash", "-c", script)
	c.Dir, c.Env, c.Stdin = s.dir, s.env, strings.NewReader(input)

	var out, said bytes.Buffer
	c.Stdout, c.Stderr = &out, &said

	require.NoError(t, c.Run(), "%s\n%s%s", command, &out, &said)

	at, err := os.ReadFile(s.kept + ".dir")
	require.NoError(t, err)

	s.at = strings.TrimSpace(string(at))

	return out.String()
}

// documentedProject is a directory that has what the documents' commands find in the project's: the rehearsal of
// practise.md, and the compiled program with its examples. Commands of this module are compiled once.
func documentedProject(t *testing.T) (*rehearsal.Rehearsal, *terminal) {
	t.Helper()

	dir := projectOf(t, ".")
	kept := filepath.Join(dir, "rehearsal", "smallest")
	require.NoError(t, os.MkdirAll(kept, 0o700))

	r := rehearse(t, "smallest", func(o *rehearsal.Options) { o.Dir = kept })
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	_, err := r.WriteCredentials(t.Context(), kept)
	require.NoError(t, err)
	_, err = r.Shell()
	require.NoError(t, err)

	program := readFile(t, filepath.Join(dir, "Pulumi.yaml"))
	require.NoError(t, os.WriteFile(filepath.Join(r.Stack.Workspace().WorkDir(), "Pulumi.yaml"), program, 0o600))

	project, err := filepath.Abs(root)
	require.NoError(t, err)

	require.NoError(t, os.Symlink(filepath.Join(project, "stacks"), filepath.Join(dir, "stacks")))

	tool, err := exec.LookPath("go")
	require.NoError(t, err)

	kubernetes, _, err := engine.Kubernetes(t.Context(), engine.Options{})
	require.NoError(t, err)

	bin := linksTo(t, map[string]string{"jq": pinnedTool(t, "gojq")})
	writeScript(t, bin, "kubectl", "exec "+kubernetes+" kubectl \"$@\"\n")
	writeScript(t, bin, "go", fmt.Sprintf(`case "$1 $2" in
"run ./stacks/ops") shift 2; exec %s "$@" ;;
"build -o") [ "$4" != ./policy ] || exec %[2]s -C %[3]s build -o "$PWD/$3" ./policy ;;
esac
exec %[2]s "$@"
`, compile(t, "./stacks/ops"), tool, project))

	credentials := r.Lab.Credentials()

	return r, &terminal{
		dir: dir, at: dir, kept: filepath.Join(t.TempDir(), "shell"),
		env: append(os.Environ(), pathWith(bin),
			"PULUMI_SKIP_CONFIRMATIONS=true", "TALOS_PROXMOX_SECRET="+credentials.TokenSecret),
	}
}

// changing matches commands after which others do something else than before.
var changing = regexp.MustCompile(`config (?:set|rm)|stack init|\b(?:destroy|restore|import)\b`)

// newest is the last of the files that a pattern matches, seen from the project.
func newest(t *testing.T, dir, pattern string) string {
	t.Helper()

	found, err := filepath.Glob(filepath.Join(dir, pattern))
	require.NoError(t, err)

	if len(found) == 0 {
		return pattern // the command says what it lacks
	}

	return filepath.Base(slices.Max(found))
}

// TestDocumentedCommands runs the commands of the documents, one after the other, on one rehearsal. What stands for
// something else in them is replaced by that.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()

	r, shell := documentedProject(t)
	runtime := t.TempDir()
	shell.env = append(shell.env, "XDG_RUNTIME_DIR="+runtime)
	dir, credentials := shell.dir, r.Lab.Credentials()
	network := r.To.Addr().String()
	ran := map[string]bool{}

	for _, c := range documentedCommands(t) {
		if c.inline || c.excuse() >= 0 {
			continue
		}

		text := strings.NewReplacer(
			"127.35.10.", network[:strings.LastIndex(network, ".")+1],
			"home-control-2", "home-worker-1",
			"atlas.20261121-180000.db", newest(t, dir, "etcd-backups/home.*.db"),
			"dev.20261121-180000.json", newest(t, dir, "state-backups/home.2*.json"),
			"dev.import.json", "home.import.json",
			"rename dev", "rename home", "--stack dev", "--stack home",
			"/tmp/talos-secrets-1234567890", filepath.Join(runtime, newest(t, runtime, "talos-secrets-*")),
			"/path/to/talos-proxmox-policy", filepath.Join(dir, "talos-proxmox-policy"),
			"--endpoint https://pve.lan:8006", "--insecure --endpoint "+r.Lab.Endpoint(),
			"'pulumi@pve!talos'", "'"+credentials.TokenID+"'", "--tag atlas", "--tag home",
		).Replace(c.text)

		// What the commands of this module name is seen from the project, the rest from where the shell is.
		if strings.HasPrefix(text, "go ") || c.page != "practise.md" {
			shell.at = dir
		} else if strings.HasPrefix(text, "pulumi ") {
			shell.at = r.Stack.Workspace().WorkDir()
		}

		switch {
		case text == "pulumi stack init home":
			example := readFile(t, filepath.Join(root, "stacks", "examples", "Pulumi.smallest.yaml"))
			assert.Equal(t, string(example), string(readFile(t, filepath.Join(dir, "Pulumi.home.yaml"))))
			// The operator's own Proxmox VE, instead of the example's.
			require.NoError(t, r.WriteStackFile(filepath.Join(dir, "Pulumi.home.yaml")))
		case text == "pulumi stack rename home --stack prod":
			shell.run(t, "pulumi stack rename prod --stack home", "")
		case strings.HasPrefix(text, "go run ./stacks/ops import --talosconfig ~"):
			shell.run(t, "mkdir -p ~/.talos && pulumi stack output talosconfig --show-secrets > ~/.talos/config", "")
			shell.run(t, "pulumi state delete --all --force --yes", "")
		case c.page == "day2.md" && strings.HasSuffix(text, "lifecycle.teardown' true"):
			// As the page says.
			shell.run(t, "pulumi config rm --path talos-proxmox:lifecycle.replace", "")
			shell.run(t, "pulumi config rm --path talos-proxmox:lifecycle.forceRemove", "")
		}

		key := shell.at + " " + text
		if ran[key] {
			continue
		}

		shell.run(t, text, credentials.TokenSecret+"\n")

		if text == "pulumi stack rename prod --stack home" {
			shell.run(t, "pulumi stack rename home --stack prod", "") // for the pages that follow
		}

		// What has been run is run again once the configuration or the state is another.
		if changing.MatchString(text) {
			clear(ran)
		}

		ran[key] = true
	}

	for _, vm := range r.Lab.World().Snapshot().VMs {
		assert.NotContains(t, vm.Name, "home-", "day2.md has destroyed the cluster")
	}
}
