package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/tests/lab/talos"
	"talos-proxmox/tests/lab/world"
)

// Node is a node as the lab has it.
type Node struct {
	Name, Role, Host string
	VMID             int
	MAC, Address     string
	// Talos and K3s are versions; the node runs one of the two.
	Talos, K3s, State string
	Ready             bool
}

// Nodes returns the plan's nodes, as the lab has them, in plan order. A node without a machine has state "absent".
func (r *Rehearsal) Nodes() []Node {
	running := map[int]Node{}
	if r.Ubuntu != nil {
		for _, s := range r.Ubuntu.Nodes() {
			n := Node{Role: s.Role, MAC: s.MAC, K3s: s.Version, State: s.Stage, Ready: s.NodeReady}
			if s.Address.IsValid() {
				n.Address = s.Address.String()
			}

			running[s.VMID] = n
		}

		return r.placed(running)
	}

	for _, s := range r.Talos.Nodes() {
		n := Node{Role: s.Role, MAC: s.MAC, Talos: s.Version, State: s.Stage, Ready: s.NodeReady}
		if s.Address.IsValid() {
			n.Address = s.Address.String()
		}

		if s.NodeReady {
			n.State += ", ready"
		}

		running[s.VMID] = n
	}

	return r.placed(running)
}

// placed are the plan's nodes: those that run, by their VMIDs, and the others.
func (r *Rehearsal) placed(running map[int]Node) []Node {
	hosts := map[int]string{}
	for _, vm := range r.Lab.World().Snapshot().VMs {
		hosts[vm.ID] = vm.Host
	}

	var nodes []Node

	for _, planned := range r.Plan.Nodes() {
		n, ok := running[planned.VMID]
		if !ok {
			n.State = "absent"
		}

		n.Name, n.VMID, n.Role, n.Host = planned.Name, planned.VMID, string(planned.Role), hosts[planned.VMID]
		nodes = append(nodes, n)
	}

	return nodes
}

// WaitReady waits until Kubernetes counts every node as ready. Workers join after the stack is up. Nodes that others
// else configures have come as far as they can when they wait for that.
func (r *Rehearsal) WaitReady(ctx context.Context, bound time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()

	for {
		var missing []string

		for _, n := range r.Nodes() {
			if !n.Ready && (r.Plan.Bootstrap != spec.BootstrapExternal || n.State != talos.StageMaintenance) {
				missing = append(missing, n.Name+" is "+n.State)
			}
		}

		if len(missing) == 0 {
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("not every node became ready: %s", strings.Join(missing, ", "))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Files are the credentials on disk. Clusters of K3s have no talosconfig.
type Files struct{ Kubeconfig, Talosconfig string }

// WriteCredentials writes kubeconfig and talosconfig into a directory, readable by the owner only.
func (r *Rehearsal) WriteCredentials(ctx context.Context, dir string) (Files, error) {
	outputs, err := r.Stack.Outputs(ctx)
	if err != nil {
		return Files{}, err
	}

	files := Files{Kubeconfig: filepath.Join(dir, "kubeconfig")}
	wanted := map[string]string{contract.OutputKubeconfig: files.Kubeconfig}

	if r.Plan.Distribution == spec.DistributionTalos {
		files.Talosconfig = filepath.Join(dir, "talosconfig")
		wanted[contract.OutputTalosconfig] = files.Talosconfig
	}

	var errs []error

	for output, path := range wanted {
		text, ok := outputs[output].Value.(string)
		if !ok {
			errs = append(errs, fmt.Errorf("the stack has no output %s", output))

			continue
		}

		errs = append(errs, os.WriteFile(path, []byte(text), 0o600))
	}

	return files, errors.Join(errs...)
}

// Leftovers says how the lab differs from what it was before the stack was deployed, empty when it does not. Images
// that the stack keeps are none.
func (r *Rehearsal) Leftovers() string {
	now, kept := r.Lab.World().Snapshot(), r.Kept()
	now.Volumes = slices.DeleteFunc(now.Volumes, func(v world.VolumeState) bool { return slices.Contains(kept, v) })

	if len(now.Volumes) == 0 {
		now.Volumes = r.before.Volumes[:0]
	}

	return cmp.Diff(r.before, now)
}

// Kept are the downloaded images that are there, where the stack is to keep them.
func (r *Rehearsal) Kept() []world.VolumeState {
	if !slices.ContainsFunc(r.Plan.Pools, func(p plan.PlannedPool) bool { return p.Image.Keep }) {
		return nil
	}

	downloaded := r.Lab.World().Downloads()

	return slices.DeleteFunc(r.Lab.World().Snapshot().Volumes, func(v world.VolumeState) bool {
		return !slices.ContainsFunc(downloaded,
			func(d world.Download) bool { return d.Volume == v.ID && (v.Host == "" || d.Host == v.Host) })
	})
}

// Shell writes the environment in which the pulumi CLI sees the stack to a file that only the owner can read, and
// returns the start of a command line that takes it from there: the engine's CLI, in the stack's directory.
func (r *Rehearsal) Shell() (string, error) {
	all, err := r.Env()
	if err != nil {
		return "", err
	}

	maps.Copy(all, r.Backend.Env())

	var env strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&env, "export %s=%s\n", name, quote(all[name]))
	}

	// Commands that run pulumi by its name find this one.
	fmt.Fprintf(&env, "export PATH=%s:\"$PATH\"\n", quote(filepath.Dir(r.engine.CLI())))

	path, err := filepath.Abs(filepath.Join(r.dir, "env"))
	if err != nil {
		return "", err
	}

	return fmt.Sprintf(". %s && %s -C %s", quote(path), quote(r.engine.CLI()), quote(r.Stack.Workspace().WorkDir())),
		os.WriteFile(path, []byte(env.String()), 0o600)
}

var plain = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// quote makes a text one word of a POSIX shell.
func quote(text string) string {
	if plain.MatchString(text) {
		return text
	}

	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
