package sequence

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optrefresh"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"go.yaml.in/yaml/v3"

	"talos-proxmox/stacks/config"
	"talos-proxmox/tests/chaos/faults"
	"talos-proxmox/tests/engine"
	"talos-proxmox/tests/lab/talos"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// base is a stack file without what the changes change.
const base = `config:
  talos-proxmox:proxmox: { endpoint: https://pve.lan:8006, tokenId: pulumi@pve!talos, hosts: [{ name: pve }] }
  talos-proxmox:cluster: { name: seq, versions: { talos: v1.12.4, kubernetes: v1.34.2 }, endpoint: { mode: vip, address: 10.40.0.9 } }
  talos-proxmox:image: { source: factory, platform: nocloud, factory: { format: iso, extensions: [qemu-guest-agent] } }
  talos-proxmox:network: { addressing: static, cidr: 10.40.0.0/24, gateway: 10.40.0.1 }
  talos-proxmox:lifecycle: { keepImages: false, nodeTimeout: 40s, agentTimeout: 20s, readyTimeout: 1m, drainTimeout: 20s }
  talos-proxmox:pools:
    control: { role: controlplane, nodes: { "1": {} }, addresses: 10.40.0.11-15 }
    worker: { role: worker, nodes: { "1": {} }, addresses: 10.40.0.21-24 }
`

// Bounds of what is waited for.
const (
	operationBound = 5 * time.Minute
	readyBound     = 2 * time.Minute
	upgradeBound   = "40s"
)

// cluster is a stack with its lab.
type cluster struct {
	r    *rehearsal.Rehearsal
	cli  *engine.Command
	log  *engine.Transcript
	mu   sync.Mutex // counts calls
	dir  string
	runs int
}

// open starts a lab, with nothing in it yet.
func open(ctx context.Context, e *engine.Engine, dir string) (*cluster, error) {
	c := &cluster{cli: e.NewCommand(), log: &engine.Transcript{}, dir: dir}

	c.cli.Terse = true

	file := filepath.Join(dir, "Pulumi.seq.yaml")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(file, []byte(base), 0o600)); err != nil {
		return nil, err
	}

	stack, err := rehearsal.ReadStack(file)
	if err != nil {
		return nil, err
	}

	c.r, err = rehearsal.Start(ctx, stack,
		rehearsal.Options{Engine: e, Dir: dir, Workspace: []auto.LocalWorkspaceOption{auto.Pulumi(c.cli)}})

	return c, err
}

func (c *cluster) close() error {
	return errors.Join(faults.EndOrphans(c.dir), c.r.Close(), os.RemoveAll(c.dir))
}

// write writes a configuration into the stack's file.
func (c *cluster) write(to Config) error {
	path := filepath.Join(c.r.Stack.Workspace().WorkDir(), "Pulumi."+c.r.Stack.Name()+".yaml")

	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}

	var file struct {
		Salt   string         `yaml:"encryptionsalt,omitempty"`
		Config map[string]any `yaml:"config"`
		Rest   map[string]any `yaml:",inline"`
	}

	if err := yaml.Unmarshal(text, &file); err != nil {
		return err
	}

	block := func(key string) map[string]any { return file.Config[config.Project+":"+key].(map[string]any) }
	ordinals := func(all []int) map[string]any {
		nodes := map[string]any{}
		for _, n := range all {
			nodes[fmt.Sprint(n)] = map[string]any{}
		}

		return nodes
	}

	pools := block("pools")
	pools["control"].(map[string]any)["nodes"] = ordinals(to.Controls)

	workers := pools["worker"].(map[string]any)
	workers["nodes"] = ordinals(to.Workers)

	if to.Label > 0 {
		workers["labels"] = map[string]any{"tier": fmt.Sprint("t", to.Label)}
	}

	if to.MemoryMiB > 0 {
		file.Config[config.Project+":defaults"] = map[string]any{"memoryMiB": to.MemoryMiB}
	}

	var patches []any
	if to.Sysctl > 0 {
		patches = append(patches, fmt.Sprintf(`machine: { sysctls: { vm.swappiness: "%d" } }`, to.Sysctl))
	}

	if to.Env > 0 {
		patches = append(patches, fmt.Sprintf(`machine: { env: { NO_PROXY: "%d.example" } }`, to.Env))
	}

	cluster := block("cluster")
	cluster["versions"] = map[string]any{"talos": to.Talos, "kubernetes": to.Kubernetes}
	cluster["patches"] = patches

	extensions := []any{"qemu-guest-agent"}
	if to.Extension {
		extensions = append(extensions, "tailscale")
	}

	block("image")["factory"].(map[string]any)["extensions"] = extensions

	lifecycle := block("lifecycle")
	lifecycle["replace"], lifecycle["forceRemove"], lifecycle["apply"] = to.Replace, to.Force, to.Apply
	lifecycle["upgrade"] = map[string]any{"maxUnavailable": to.MaxUnavailable, "timeout": upgradeBound}

	if text, err = yaml.Marshal(file); err != nil {
		return err
	}

	return os.WriteFile(path, text, 0o600)
}

// errEndless is an update that waits for longer than anything of it may.
var errEndless = errors.New("it did not end")

// up runs an update. What it printed is in the error.
func (c *cluster) up(ctx context.Context, options ...optup.Option) error {
	ctx, cancel := context.WithTimeout(ctx, operationBound)
	defer cancel()

	c.runs++
	c.log.Reset()

	_, err := c.r.Stack.Up(ctx, append(options, optup.SuppressOutputs(), optup.ProgressStreams(c.log),
		optup.ErrorProgressStreams(c.log))...)

	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%w within %s:\n%s", errEndless, operationBound, c.log.Tail())
	default:
		return errors.New(c.log.Tail())
	}
}

func (c *cluster) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, operationBound)
	defer cancel()

	c.log.Reset()

	_, err := c.r.Stack.Refresh(ctx, optrefresh.ClearPendingCreates(), optrefresh.ProgressStreams(c.log),
		optrefresh.ErrorProgressStreams(c.log))
	if err != nil {
		return fmt.Errorf("refresh: %w\n%s", err, c.log.Tail())
	}

	return nil
}

// caller is another user of Proxmox VE.
func (c *cluster) caller() world.Caller { return world.Caller{ID: c.r.Lab.Credentials().TokenID} }

// vm is a node's machine.
func (c *cluster) vm(name string) (world.VMState, error) {
	v, there := c.r.Lab.World().Snapshot().VM(name)
	if !there {
		return v, fmt.Errorf("%s has no machine", name)
	}

	return v, nil
}

// machines are what tells each node's machine from another that has its VMID, by name.
func (c *cluster) machines() (map[string]string, error) {
	found := map[string]string{}

	for _, v := range c.r.Lab.World().Snapshot().VMs {
		config, err := c.r.Lab.World().Config(v.Host, v.ID, true)
		if err != nil {
			return nil, err
		}

		found[v.Name] = strings.TrimSpace(fmt.Sprint(config["smbios1"]))
	}

	return found, nil
}

// settle waits until everything that was begun has ended: tasks, nodes that come up, members that join. The dead one is
// not waited for.
func (c *cluster) settle(ctx context.Context, m *Model) error {
	return c.until(ctx, func() string { return c.busy(m) })
}

func (c *cluster) until(ctx context.Context, question func() string) error {
	ctx, cancel := context.WithTimeout(ctx, readyBound)
	defer cancel()

	for {
		waiting := question()
		if waiting == "" {
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("%s after %s", waiting, readyBound)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// busy says what has not come to its end.
func (c *cluster) busy(m *Model) string {
	if t := c.task(); t != "" {
		return t
	}

	seen := map[string]talos.Status{}
	for _, s := range c.r.Talos.Nodes() {
		seen[s.Name] = s
	}

	wanted := m.Asked.nodes()

	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if s := seen[name]; name != m.Dead && (!s.NodeReady || s.Stage != talos.StageRunning) {
			return fmt.Sprintf("%s is not ready (%s)", name, s.Stage)
		}
	}

	voters, healthy := len(m.Asked.Controls), len(m.Asked.Controls)
	if isControl(m.Dead) {
		healthy--
	}

	all := c.r.Talos.Quorum(time.Time{})
	if last := all[len(all)-1]; last.Voters != voters || last.Healthy != healthy {
		return fmt.Sprintf("etcd has %d voters, %d healthy, and should have %d, %d", last.Voters, last.Healthy, voters,
			healthy)
	}

	return ""
}

// task is a task that runs.
func (c *cluster) task() string {
	for _, t := range c.r.Lab.World().Tasks("") {
		if t.End.IsZero() {
			return fmt.Sprintf("task %s of %s runs", t.Type, t.ID)
		}
	}

	return ""
}
