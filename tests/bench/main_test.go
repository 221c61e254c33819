package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/spec"
	"talos-proxmox/tests/lab/journal"
)

// TestStacks holds that the stack of every row is one that the program takes, of as many nodes as the row says.
func TestStacks(t *testing.T) {
	for _, row := range rows() {
		stack, err := row.stack("../..", t.TempDir())
		require.NoError(t, err, row)
		require.NoError(t, stack.Check(), row)
	}
}

func TestOnly(t *testing.T) {
	o, err := parse([]string{"--only", "talos-5x1,2x-k3s-2x1"})
	require.NoError(t, err)
	assert.Equal(t, []string{"talos-5x1", "2x-k3s-2x1"}, o.only)

	_, err = parse([]string{"--only", "talos-6x1"})
	assert.ErrorContains(t, err, `--only: there is no row "talos-6x1": choose from k3s-2x1, 2x-k3s-2x1, talos-5x1, `)
}

// TestCount tells calls that do something from those that ask whether it is done, and leaves out what machines do by
// themselves.
func TestCount(t *testing.T) {
	s := Step{Calls: map[string]int{}, Polls: map[string]int{}}
	s.count([]journal.Entry{
		{Face: journal.Proxmox, Call: "POST /nodes/pve1/qemu"},
		{Face: journal.Proxmox, Call: "POST /nodes/pve2/qemu"},
		{Face: journal.Proxmox, Call: "GET /nodes/pve2/qemu/501/status/current"},
		{Face: journal.Talos, Subject: "n1", Call: "/machine.MachineService/ServiceList"},
		{Face: journal.Talos, Subject: "n1", Call: "/machine.MachineService/Bootstrap"},
		{Face: journal.Talos, Subject: "n1", Call: "/securityapi.SecurityService/Certificate"},
		{Face: journal.Kubernetes, Call: "PATCH /api/v1/nodes/n1/status"},
		{Face: journal.Guest, Call: "GET https://get.k3s.io"},
	})

	assert.Equal(t, map[string]int{"proxmox POST /nodes/{host}/qemu": 2, "talos /machine.MachineService/Bootstrap": 1},
		s.Calls)
	assert.Equal(t, map[string]int{
		"proxmox GET /nodes/{host}/qemu/{vm}/status/current": 1,
		"talos /machine.MachineService/ServiceList":          1,
	}, s.Polls)
}

// ran is a pulumi command that runs nothing, and keeps what it was asked for.
type ran struct {
	auto.PulumiCommand
	args [][]string
}

func (r *ran) Run(
	_ context.Context, _ string, _ io.Reader, _, _ []io.Writer, _ []string, args ...string,
) (string, string, int, error) {
	r.args = append(r.args, args)

	return "", "", 0, nil
}

// TestProfiles holds that each stage has a profile of its own: two of them run the same command.
func TestProfiles(t *testing.T) {
	command := &ran{}
	m := &measured{
		PulumiCommand: command, watch: newWatch(t.TempDir()), saves: &saves{}, profiles: "dir/talos-5x1",
		finished: func() error { return nil },
	}
	defer m.watch.close()

	for _, stage := range []Stage{Create, Again} {
		m.stage = stage
		_, _, _, err := m.Run(t.Context(), "", nil, nil, nil, nil, "up", "--yes")
		require.NoError(t, err)
	}

	assert.Equal(t, [][]string{
		{"up", "--yes", "--profiling", "dir/talos-5x1-create"},
		{"up", "--yes", "--profiling", "dir/talos-5x1-up-no-change"},
	}, command.args)
}

// TestBlame: a run that failed names what the lab does not know, too: a node that waits for that waits in vain.
func TestBlame(t *testing.T) {
	failed, j := errors.New("gave up"), &journal.Journal{}
	require.EqualError(t, blame(failed, j), "gave up")

	j.Refused(journal.Guest, "edge-server-1", "touch /etc/x", "the lab's machines do not know the command")
	require.EqualError(t, blame(failed, j), "gave up\nthe lab was asked for what it does not know:\n"+
		"  guest edge-server-1 touch /etc/x: the lab's machines do not know the command")
}

func TestWhatTheKernelSays(t *testing.T) {
	assert.Equal(t, 120, peak("Name:\tpulumi\nVmPeak:\t 999999 kB\nVmHWM:\t  123456 kB\nVmRSS:\t 1 kB\n"))
	assert.Zero(t, peak("Name:\tkthreadd\n"))

	assert.Equal(t, 1500*time.Millisecond, computed("12 (a (b) c) S 1 12 12 0 -1 4194560 1 2 3 4 120 30 7 8 20 0 1 0 99"))
	assert.Zero(t, computed("12 (a) Z"))
}

// TestWatch sees this very process when it is called what is looked for, and has the backend.
func TestWatch(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("there is no /proc here")
	}

	w := &watch{backend: "/nowhere", seen: map[int]seen{}}
	w.note(os.Getpid(), Engine, "/proc/self")

	used := w.take()
	assert.Positive(t, used[Engine].PeakMiB)
	assert.Empty(t, w.take(), "what was taken is gone")
	assert.False(t, w.ours("/proc/self"), "this process has no such backend")
}

// TestReport goes on where it was, and draws what it has.
func TestReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench.json")

	report, err := readReport(path)
	require.NoError(t, err)
	assert.Empty(t, report.Results)

	for _, nodes := range []int{5, 20} {
		report.Results = append(report.Results, Result{
			Row: Row{Kind: spec.DistributionTalos, Nodes: nodes, Hosts: 1, Clusters: 1}, Parallel: 64,
			Downloads: map[string]int64{"pve1": 112 << 20, "pve2": 112 << 20},
			Steps: []Step{{
				Stage: Create, Wall: 30 * time.Second, Engine: 28 * time.Second, Worked: 27500 * time.Millisecond,
				CriticalPath: 25 * time.Second,
				Calls:        map[string]int{"proxmox POST /nodes/{host}/qemu": 3 * nodes}, Polls: map[string]int{},
				Processes: map[Process]Use{Engine: {PeakMiB: 130, CPU: 2 * time.Second}},
			}},
		})
	}

	require.NoError(t, report.write(path))

	again, err := readReport(path)
	require.NoError(t, err)
	assert.Equal(t, report, again)
	assert.True(t, again.has(Row{Kind: spec.DistributionTalos, Nodes: 20, Hosts: 1, Clusters: 1}))
	assert.False(t, again.has(Row{Kind: spec.DistributionTalos, Nodes: 20, Hosts: 3, Clusters: 1}))

	docs := t.TempDir()
	page := filepath.Join(docs, "benchmarks.md")
	require.NoError(t, os.WriteFile(page, []byte("# Speed\n\n"+tablesBegin+"old\n"+tablesEnd+"\nThe end.\n"), 0o600))
	require.NoError(t, again.publish(docs))

	text, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Contains(t, string(text), "| `proxmox POST /nodes/{host}/qemu` | 3.00 |\n")
	assert.Contains(t, string(text), "| creation of 5 nodes, of the critical path | 1.10 | 1.10 |\n")
	assert.Contains(t, string(text), "| talos-20x1 | 25.0 | 27.5 | 1.10 | 28.0 | 3.0 | 0.0 | 112 |\n")
	assert.Contains(t, string(text), tablesEnd+"\nThe end.\n")
	assert.NotContains(t, string(text), "old")

	drawn, err := os.Open(filepath.Join(docs, "speed.svg"))
	require.NoError(t, err)
	defer drawn.Close()

	for decoder := xml.NewDecoder(drawn); ; {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}

		require.NoError(t, err)
	}

	require.NoError(t, os.WriteFile(page, []byte("# Speed\n"), 0o600))
	assert.ErrorContains(t, again.publish(docs), "benchmarks.md has no place for the tables")
}

// TestSaves counts each time the file takes the place of another, and nothing else.
func TestSaves(t *testing.T) {
	dir := t.TempDir()
	path := stateFile(dir, "project", "stack")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))

	s, err := countSaves(path)
	require.NoError(t, err)
	defer s.close()

	for _, name := range []string{path, path + ".bak", path} {
		require.NoError(t, os.WriteFile(path+".tmp", []byte("0123456789"), 0o600))
		require.NoError(t, os.Rename(path+".tmp", name))
	}

	total := Saves{}

	require.Eventually(t, func() bool {
		seen := s.take()
		total.Count, total.Bytes = total.Count+seen.Count, total.Bytes+seen.Bytes

		return total == Saves{Count: 2, Bytes: 20}
	}, time.Minute, time.Millisecond)

	size, err := s.size()
	require.NoError(t, err)
	assert.EqualValues(t, 10, size)
}

// TestRegistering registers what a state has: its components, and a stash with the same inputs for each other resource,
// below the same parents and with the same secrets.
func TestRegistering(t *testing.T) {
	urn := func(parents, kind, name string) resource.URN {
		return resource.URN("urn:pulumi:measured::bare::" + parents + kind + "::" + name)
	}
	secret := map[string]any{resource.SigKey: resource.SecretSig, "plaintext": `"x"`}
	node, vm := urn("", "p:index:Node", "n"), urn("p:index:Node$", "p:vm:VM", "n-vm")

	resources := []apitype.ResourceV3{
		{URN: urn("", "pulumi:pulumi:Stack", "s"), Type: "pulumi:pulumi:Stack"},
		{URN: urn("", "pulumi:providers:p", "p"), Type: "pulumi:providers:p", Custom: true},
		{URN: node, Type: "p:index:Node", Inputs: map[string]any{"cores": 2.0}, Outputs: map[string]any{"up": true}},
		{URN: vm, Type: "p:vm:VM", Custom: true, Parent: node, Inputs: map[string]any{"disks": []any{"a"}}},
		{
			URN: urn("", "p:machine:Applied", "n"), Type: "p:machine:Applied", Custom: true, Parent: node,
			Dependencies: []resource.URN{vm}, Inputs: map[string]any{"configuration": secret},
		},
	}

	m := &registered{}
	require.NoError(t, pulumi.RunErr(registering(resources), pulumi.WithMocks(bareProject, "measured", m)))

	assert.ElementsMatch(t, []string{
		"p:index:Node n map[cores:2]", "pulumi:index:Stash n-vm-VM map[disks:[a]]",
		"pulumi:index:Stash n-Applied map[configuration:secret x]",
	}, m.seen)
}

// registered are the resources that a program has registered.
type registered struct {
	mu   sync.Mutex
	seen []string
}

func (*registered) Call(pulumi.MockCallArgs) (resource.PropertyMap, error) {
	return nil, errors.New("nothing is to be called")
}

func (r *registered) NewResource(args pulumi.MockResourceArgs) (string, resource.PropertyMap, error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	inputs := args.Inputs
	if stashed, there := inputs["input"]; there {
		inputs = stashed.ObjectValue()
	}

	r.seen = append(r.seen, fmt.Sprintf("%s %s %v", args.TypeToken, args.Name, inputs.MapRepl(nil,
		func(v resource.PropertyValue) (any, bool) {
			if v.IsSecret() {
				return "secret " + v.SecretValue().Element.StringValue(), true
			}

			return nil, false
		})))

	return args.Name, resource.PropertyMap{"input": args.Inputs["input"], "output": args.Inputs["input"]}, nil
}
