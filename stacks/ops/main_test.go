package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestUnknownCommands: a word that is no command is an error that names those that are, not a page of help and success.
func TestUnknownCommands(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"export", "ansibel"}, `ops export: unknown command "ansibel": use one of ansible, nodes.json, talosctl`},
		{[]string{"export"}, "ops export: name a command: ansible, nodes.json, talosctl"},
		{[]string{"etcd", "snapshots"}, `ops etcd: unknown command "snapshots": use one of check, decrypt, list, snapshot`},
		{
			[]string{"etcd", "snapshot", "--to", "s3://backups", "--talosconfig", "no-such-file"},
			"--to: only an encrypted snapshot leaves this machine, for it holds every secret of Kubernetes: name --recipient, " +
				"or set lifecycle.backup.recipients and leave out --talosconfig",
		},
		{[]string{"plam", "dev"}, "unknown command \"plam\" for \"ops\"\n\nDid you mean this?\n\tplan\n"},
		{[]string{"plan", "dev", "atlas"}, "accepts 1 arg(s), received 2"},
		{[]string{"plan", "dev", "--format", "png"}, `--format is text or svg, not "png"`},
	} {
		out, _, err := ops(t, "", c.args...)
		require.EqualError(t, err, c.want)
		assert.Empty(t, out)
	}
}

// TestOldNames: a command that was renamed still goes by its old name, and says the new one.
func TestOldNames(t *testing.T) {
	_, notes, err := ops(t, "", "addresses", "no-such-nodes.json", "no-such-stack.yaml")
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.Equal(t,
		"note: the command addresses is now called set-addresses; the old name is removed in the next release\n", notes)

	_, notes, err = ops(t, "", "set-addresses", "no-such-nodes.json", "no-such-stack.yaml")
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.Empty(t, notes)
}

// TestPlan: a plan is shown from any directory of the project, K3s' too.
func TestPlan(t *testing.T) {
	root, err := filepath.Abs(project)
	require.NoError(t, err)

	t.Chdir(filepath.Join(root, "stacks", "docs"))

	out, _, err := ops(t, "", "plan", "dev")
	require.NoError(t, err)
	assert.Contains(t, out, "k3s-dev-control-1")

	out, _, err = ops(t, "", "plan", filepath.Join(root, "stacks", "examples", "Pulumi.k3s.yaml"))
	require.NoError(t, err)
	assert.Contains(t, out, "Nothing was contacted: ")

	out, _, err = ops(t, "", "plan", "dev", "--format", "svg")
	require.NoError(t, err)
	assert.Contains(t, out, "<svg")

	_, _, err = ops(t, "", "plan", "nosuch")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestCompile builds the program that Pulumi.yaml names a binary of, and nothing else.
func TestCompile(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}

	write("go.mod", "module program\n")
	write("main.go", "package main\n\nfunc main() {}\n")
	write("Pulumi.yaml", "name: program\nruntime: go\n")
	require.NoError(t, compile(t.Context(), dir))
	require.NoFileExists(t, filepath.Join(dir, "program"))

	write("Pulumi.yaml", "name: program\nruntime: { name: go, options: { binary: program } }\n")
	require.NoError(t, compile(t.Context(), dir))
	require.FileExists(t, filepath.Join(dir, "program"))

	write("main.go", "package main\n\nfunc main() { return 1 }\n")
	require.EqualError(t, compile(t.Context(), dir),
		"building program, which runtime.options.binary of Pulumi.yaml names: exit status 1")
}

// TestEnvironment: pulumi gets what makes it faster, unless the operator states otherwise: of two values of a variable,
// a process gets the last.
func TestEnvironment(t *testing.T) {
	stated := []string{"HOME=/root", "PULUMI_PARALLEL=4"}

	assert.Equal(t, []string{"PULUMI_PARALLEL=64", "PULUMI_PARALLEL_DIFF=true", "HOME=/root", "PULUMI_PARALLEL=4"},
		environment([]string{"up"}, stated))
	assert.Equal(t, []string{
		"PULUMI_PARALLEL=64", "PULUMI_PARALLEL_DIFF=true", "HOME=/root", "PULUMI_PARALLEL=4", "TALOS_PROXMOX_DESTROY=1",
	}, environment([]string{"destroy"}, stated))
}

// TestRecoverFrom: the snapshots that any stack of the project recovers from stay.
func TestRecoverFrom(t *testing.T) {
	o := &options{project: t.TempDir()}
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(o.project, name), []byte(text), 0o600))
	}

	write("Pulumi.yaml", "name: talos-proxmox\n")
	write("Pulumi.a.yaml", "config:\n  talos-proxmox:cluster: { name: a, recoverFrom: etcd-backups/a.db }\n")
	write("Pulumi.b.yaml", "config:\n  talos-proxmox:cluster: { name: b }\n")

	found, err := o.recoverFrom()
	require.NoError(t, err)
	assert.Equal(t, []string{filepath.Join(o.project, "etcd-backups/a.db")}, found)

	write("Pulumi.c.yaml", "config: [")
	_, err = o.recoverFrom()
	require.ErrorContains(t, err, "--keep: the snapshot that cluster.recoverFrom names must stay, and that of Pulumi.c.yaml")
}

// TestKeep: a number of snapshots to keep is not negative.
func TestKeep(t *testing.T) {
	for _, args := range [][]string{
		{"snapshot", "--keep", "-5"}, {"run", "--keep", "-1", "up"}, {"etcd", "snapshot", "--keep", "-1"},
	} {
		c := command(io.Discard)
		c.SetArgs(args)
		require.ErrorContains(t, c.Execute(), "must be a number from 0 on", args)
	}
}
