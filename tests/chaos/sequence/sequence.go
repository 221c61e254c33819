package sequence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"talos-proxmox/stacks/contract"
	"talos-proxmox/tests/engine"
	"talos-proxmox/tests/rehearsal"
)

// Played is a step that was made.
type Played struct {
	Step    string
	Refused Stage `json:",omitempty"`
	// Again is how often the update had to be run again.
	Again int `json:",omitempty"`
	// Lowest is the lowest margin of etcd that the program has caused; nil where nothing of etcd changed, or another
	// had a part.
	Lowest  *int `json:",omitempty"`
	Seconds float64
	Fault   bool `json:",omitempty"`
}

// Result is how a sequence ended.
type Result struct {
	Seed  uint64
	Begin string
	Steps []Played
	// Failed says what is wrong; empty when nothing is. Disagrees says that it is the table that was not right.
	Failed    string `json:",omitempty"`
	Disagrees bool   `json:",omitempty"`
	// Runs is how many updates it took.
	Runs    int
	Seconds float64
}

// Sequence is one of many.
type Sequence struct {
	Engine *engine.Engine
	// Dir keeps the stack while it runs.
	Dir   string
	Seed  uint64
	Steps int
	// Log is told what happens, line by line.
	Log io.Writer
}

// Run runs it. The error is one of the lab itself.
func (s Sequence) Run(ctx context.Context) (Result, error) {
	start, result := time.Now(), Result{Seed: s.Seed}

	c, err := open(ctx, s.Engine, s.Dir)
	if err != nil {
		return result, err
	}

	err = s.run(ctx, c, &result)
	result.Runs, result.Seconds = c.runs, time.Since(start).Seconds()

	if closed := c.close(); ctx.Err() != nil || closed != nil {
		return result, errors.Join(ctx.Err(), closed)
	}

	if err != nil {
		result.Failed = err.Error()
		result.Disagrees = errors.As(err, new(*Disagreement))
	}

	return result, nil
}

func (s Sequence) run(ctx context.Context, c *cluster, result *Result) error {
	r := source(s.Seed)
	m := NewModel(begin(r))
	result.Begin = m.Asked.String()

	s.printf("%s", result.Begin)

	if err := c.write(m.Asked); err != nil {
		return err
	}

	if err := errors.Join(c.up(ctx), c.settle(ctx, m)); err != nil {
		return fmt.Errorf("the cluster is not made: %w", err)
	}

	for n := 1; n <= s.Steps; n++ {
		start, step := time.Now(), next(r, m)

		p, err := c.play(ctx, m, step)
		p.Seconds = time.Since(start).Seconds()
		result.Steps = append(result.Steps, p)

		s.printf("%2d %5.1fs  %s", n, p.Seconds, p.Step)

		if err != nil {
			return fmt.Errorf("step %d, %s: %w", n, step, err)
		}
	}

	if m.Dead != "" {
		if err := c.revive(ctx, m); err != nil {
			return err
		}
	}

	return s.end(ctx, c, m)
}

func (s Sequence) printf(format string, args ...any) {
	if s.Log != nil {
		fmt.Fprintf(s.Log, "seed %d: %s\n", s.Seed, fmt.Sprintf(format, args...))
	}
}

// revive switches a dead node on again.
func (c *cluster) revive(ctx context.Context, m *Model) error {
	v, err := c.vm(m.Dead)
	if err != nil {
		return err
	}

	if _, err := c.r.Lab.World().Start(c.caller(), v.Host, v.ID); err != nil {
		return err
	}

	m.Dead = ""

	return c.settle(ctx, m)
}

// end holds that there is nothing left to do, that Kubernetes knows the nodes, and that nothing is left when the stack
// is destroyed.
func (s Sequence) end(ctx context.Context, c *cluster, m *Model) error {
	// What the list of nodes to recreate has left in the state goes with one more update.
	if len(m.Asked.Replace)+len(m.Asked.Force) > 0 {
		m.Asked.Replace, m.Asked.Force = nil, nil

		if err := errors.Join(c.write(m.Asked), c.up(ctx), c.settle(ctx, m)); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}

	c.log.Reset()

	preview, err := c.r.Stack.Preview(ctx, optpreview.Diff(), optpreview.ProgressStreams(c.log))
	if err != nil {
		return fmt.Errorf("the preview at the end: %w\n%s", err, c.log.Tail())
	}

	for op, n := range preview.ChangeSummary {
		if op != "same" && n > 0 {
			return fmt.Errorf("at the end, %d resources are to %s:\n%s", n, op, c.log.Tail())
		}
	}

	if err := errors.Join(c.present(m), c.kubernetes(ctx, m)); err != nil {
		return fmt.Errorf("at the end: %w", err)
	}

	c.log.Reset()

	if err := rehearsal.Destroy(ctx, c.r.Stack, optdestroy.ProgressStreams(c.log),
		optdestroy.ErrorProgressStreams(c.log)); err != nil {
		return fmt.Errorf("destroy: %w\n%s", err, c.log.Tail())
	}

	if left := c.r.Leftovers(); left != "" {
		return fmt.Errorf("something is left (-before +now):\n%s", left)
	}

	return nil
}

// kubernetes holds that Kubernetes has the nodes that there are, with their versions, and that all take pods.
func (c *cluster) kubernetes(ctx context.Context, m *Model) error {
	c.cli.Terse = false
	outputs, err := c.r.Stack.Outputs(ctx)
	c.cli.Terse = true

	if err != nil {
		return err
	}

	kubeconfig, _ := outputs[contract.OutputKubeconfig].Value.(string)

	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig))
	if err != nil {
		return err
	}

	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}

	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}

	wanted := m.Asked.nodes()

	for _, n := range list.Items {
		s, there := wanted[n.Name]

		switch {
		case !there:
			return fmt.Errorf("Kubernetes still has the node %s", n.Name)
		case n.Spec.Unschedulable:
			return fmt.Errorf("%s takes no pods", n.Name)
		case n.Status.NodeInfo.KubeletVersion != s.Kubernetes:
			return fmt.Errorf("%s has the kubelet %s, and should have %s", n.Name, n.Status.NodeInfo.KubeletVersion,
				s.Kubernetes)
		}
	}

	if len(list.Items) != len(wanted) {
		return fmt.Errorf("Kubernetes has %d nodes, and should have %d", len(list.Items), len(wanted))
	}

	return nil
}

// FailedOf are the results of the sequences that failed.
func FailedOf(results []Result) []Result {
	return slices.DeleteFunc(slices.Clone(results), func(r Result) bool { return r.Failed == "" })
}
