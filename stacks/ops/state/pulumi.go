package state

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/spec"
	"talos-proxmox/stacks/config"
	"talos-proxmox/stacks/shellword"
)

// Pulumi is a stack, reached with the Automation API.
type Pulumi struct {
	auto.Stack
	project   string
	refreshes bool
}

var _ Stack = (*Pulumi)(nil)

// On takes a stack that was opened elsewhere.
func On(ctx context.Context, stack auto.Stack) (*Pulumi, error) {
	settings, err := stack.Workspace().ProjectSettings(ctx)
	if err != nil {
		return nil, err
	}

	return &Pulumi{
		Stack: stack, project: settings.Name.String(),
		refreshes: settings.Options != nil && settings.Options.Refresh == "always",
	}, nil
}

// Refreshes implements Stack.
func (p *Pulumi) Refreshes() bool { return p.refreshes }

// Open opens a stack of the project in dir, the selected one when name is empty. Which one is selected does not change.
func Open(ctx context.Context, dir, name string, opts ...auto.LocalWorkspaceOption) (*Pulumi, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}

	opts = append([]auto.LocalWorkspaceOption{auto.WorkDir(dir)}, opts...)

	ws, err := auto.NewLocalWorkspace(ctx, opts...)
	if err != nil {
		return nil, err
	}

	if name == "" {
		selected, err := ws.Stack(ctx)
		if err != nil {
			return nil, brief(err)
		}

		if selected == nil {
			return nil, fmt.Errorf("no stack of the project in %s is selected: name one with --stack", dir)
		}

		name = selected.Name
	}

	ws, err = auto.NewLocalWorkspace(ctx, append(opts, auto.Pulumi(unselecting{ws.PulumiCommand()}))...)
	if err != nil {
		return nil, err
	}

	stack, err := auto.SelectStack(ctx, name, ws)
	if auto.IsSelectStack404Error(err) {
		return nil, fmt.Errorf("the backend has no stack %s of the project in %s: run: pulumi stack init %s", name, dir, name)
	} else if err != nil {
		return nil, brief(err)
	}

	return On(ctx, stack)
}

// unselecting is a CLI that selects no stack. The Automation API opens none without, and a later pulumi command without
// --stack, of whoever works in the directory, must not find another one than before.
type unselecting struct{ auto.PulumiCommand }

// Run implements auto.PulumiCommand. Listing the tags finds out, as selecting does, whether there is such a stack, and
// reads no state either: it may be what is broken.
func (c unselecting) Run(
	ctx context.Context, dir string, in io.Reader, out, errs []io.Writer, env []string, args ...string,
) (stdout, stderr string, code int, err error) {
	if len(args) > 1 && args[0] == "stack" && args[1] == "select" {
		args = slices.Concat([]string{"stack", "tag", "ls", "--json"}, args[2:])
	}

	return c.PulumiCommand.Run(ctx, dir, in, out, errs, env, args...)
}

// Name implements Stack.
func (p *Pulumi) Name() string { return path.Base(p.Stack.Name()) }

// Project implements Stack.
func (p *Pulumi) Project() string { return p.project }

// Export implements Stack. The Automation API's own Export decrypts the secrets.
func (p *Pulumi) Export(ctx context.Context) ([]byte, error) {
	text, err := p.run(ctx, "stack", "export")

	return []byte(text), err
}

// ExportDecrypted is the state with its secrets in plain text.
func (p *Pulumi) ExportDecrypted(ctx context.Context) (apitype.UntypedDeployment, error) {
	state, err := p.Stack.Export(ctx)

	return state, brief(err)
}

// Outputs are those of the stack, secrets in plain text.
func (p *Pulumi) Outputs(ctx context.Context) (auto.OutputMap, error) {
	outputs, err := p.Stack.Outputs(ctx)

	return outputs, brief(err)
}

// Import implements Stack.
func (p *Pulumi) Import(ctx context.Context, text []byte) error {
	var state apitype.UntypedDeployment
	if err := json.Unmarshal(text, &state); err != nil {
		return err
	}

	err := p.Stack.Import(ctx, state)
	if auto.IsConcurrentUpdateError(err) {
		return p.locked(err.Error())
	}

	return brief(err)
}

// Free implements Stack. Pulumi Cloud tells what runs. The other backends tell of a lock only when they refuse an
// operation for it, so they are asked for one that they always refuse: to make a stack that there is. They look for
// locks first. The state is not read: it may be what is broken.
func (p *Pulumi) Free(ctx context.Context) error {
	all, err := p.Workspace().ListStacks(ctx)
	if err != nil {
		return brief(err)
	}

	for _, s := range all {
		if s.UpdateInProgress && same(s.Name, p.Stack.Name()) {
			return p.locked("")
		}
	}

	switch err := p.Workspace().CreateStack(ctx, p.Stack.Name()); {
	case auto.IsCreateStack409Error(err):
		return nil
	case auto.IsConcurrentUpdateError(err):
		return p.locked(err.Error())
	case err == nil:
		return fmt.Errorf("stack %s was removed while it was being read, and is empty now", p.Stack.Name())
	default:
		return fmt.Errorf("looking for locks: %w", brief(err))
	}
}

// same says whether two names are one stack's. The organization may be left out.
func same(a, b string) bool {
	return a == b || path.Base(a) == path.Base(b) && (path.Base(a) == a || path.Base(b) == b)
}

// lockedBy is how the CLI tells of a lock.
var lockedBy = regexp.MustCompile(`created by .*`)

// locked is ErrLocked with what the CLI said of it, and the way on. Another stack than this one may be selected.
func (p *Pulumi) locked(printed string) error {
	who := ""
	if by := lockedBy.FindAllString(printed, -1); len(by) > 0 {
		who = " (" + strings.Join(by, "; ") + ")"
	}

	return fmt.Errorf("%w%s: wait for it, or, when none does any more, run: pulumi cancel --stack %s", ErrLocked, who,
		shellword.Quote(p.Stack.Name()))
}

// Resources implements Stack.
func (p *Pulumi) Resources(ctx context.Context) ([]string, error) {
	text, err := p.run(ctx, "stack", "--output", "json")
	if err != nil {
		return nil, err
	}

	var shown struct{ Resources []struct{ URN string } }
	if err := json.Unmarshal([]byte(text), &shown); err != nil {
		return nil, err
	}

	var urns []string
	for _, r := range shown.Resources {
		urns = append(urns, r.URN)
	}

	slices.Sort(urns)

	return urns, nil
}

// Config is the stack's configuration as the program reads it: from its file and from environments, secrets decrypted.
func (p *Pulumi) Config(ctx context.Context) (config.Config, error) {
	c, _, err := p.configWith(ctx)

	return c, err
}

// configWith is Config, and the secrets that are in plain text. They are those of who asks: a stack whose file
// holds one can be backed up.
func (p *Pulumi) configWith(ctx context.Context) (config.Config, spec.Problems, error) {
	all, err := p.GetAllConfig(ctx)
	if err != nil {
		return config.Config{}, nil, brief(err)
	}

	values, encrypted := map[string]string{}, map[string]bool{}

	for key, value := range all {
		if name, ours := strings.CutPrefix(key, p.project+":"); ours {
			values[name], encrypted[name] = value.Value, value.Secret
		}
	}

	c, err := config.Decode(values, config.Secrets{}, p.Workspace().WorkDir())

	return c, config.PlainSecrets(values, func(key string) bool { return encrypted[key] }), err
}

// CheckConfig implements Stack.
func (p *Pulumi) CheckConfig(ctx context.Context) error {
	_, plain, err := p.configWith(ctx)

	var invalid spec.Problems
	if err != nil && !errors.As(err, &invalid) {
		return err
	}

	return append(plain, invalid...).Err()
}

// Answers implements Stack.
func (p *Pulumi) Answers(ctx context.Context) error {
	config, err := p.Config(ctx)
	if err != nil {
		return err
	}

	proxmox, err := proxmoxapi.New(config.Access())
	if err != nil {
		return err
	}

	vms, err := proxmox.VMs(ctx)
	if err != nil {
		return err
	}

	// Of either distribution: the configuration may not state its own.
	named := &plan.Plan{Cluster: config.Cluster.Name, Distribution: spec.DistributionTalos}

	return checkHosts(ctx, proxmox, slices.DeleteFunc(vms, func(v proxmoxapi.VM) bool {
		return !vmidentity.OfCluster(v, named) && !vmidentity.OfNamesake(v, named)
	}))
}

// Preview implements Stack.
func (p *Pulumi) Preview(ctx context.Context, out io.Writer) (map[string]int, error) {
	result, err := p.Stack.Preview(ctx, optpreview.Diff(), optpreview.ProgressStreams(out),
		optpreview.ErrorProgressStreams(out))
	if err != nil {
		return nil, errors.New("see above")
	}

	changes := map[string]int{}
	for op, n := range result.ChangeSummary {
		changes[string(op)] = n
	}

	return changes, nil
}

// run runs a command of the CLI on the stack, in the environment that the Automation API would use.
func (p *Pulumi) run(ctx context.Context, args ...string) (string, error) {
	ws := p.Workspace()

	var env []string
	if ws.PulumiHome() != "" {
		env = append(env, "PULUMI_HOME="+ws.PulumiHome())
	}

	vars := ws.GetEnvVars()
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, name+"="+vars[name])
	}

	command := append(args, "--stack", p.Stack.Name(), "--non-interactive", "--color", "never")

	printed, problem, _, err := ws.PulumiCommand().Run(ctx, ws.WorkDir(), nil, nil, nil, env, command...)
	if err != nil {
		return "", fmt.Errorf("pulumi %s: %s", strings.Join(args, " "), cmp.Or(integrity(problem), err.Error()))
	}

	return printed, nil
}

// brief is an error of the Automation API without what the command printed besides its own error: that may hold secrets
// in plain text.
func brief(err error) error {
	if err == nil {
		return nil
	}

	what, printed, whole := strings.Cut(err.Error(), "\ncode: ")

	// What was printed may have such a line, too.
	at := strings.LastIndex(printed, errorStream)
	if !whole || at < 0 {
		return err
	}

	return fmt.Errorf("%s: %s", what, cmp.Or(integrity(printed[at+len(errorStream):]), "no reason given"))
}

// errorStream begins what a command has printed as its error.
const errorStream = "\nstderr: "

// broken is how the CLI tells of a state that contradicts itself, below a page of other things.
var broken = regexp.MustCompile(`(?m)^Error: +(.*)$`)

// cutOff is how it tells of a note next to the state of a local backend (gocloud.dev/blob/fileblob, attrs.go) that it
// was killed in writing. The state itself is replaced at once.
const cutOff = "failed to load checkpoint: EOF"

// integrity is what the CLI printed as its error, without the page, and what to do where it does not tell.
func integrity(problem string) string {
	if m := broken.FindStringSubmatch(problem); m != nil {
		return m[1]
	}

	problem = strings.TrimPrefix(strings.TrimSpace(problem), "error: ")
	if strings.HasSuffix(problem, cutOff) {
		problem += ": pulumi was killed while it wrote the state, which is whole: remove <stack>.json.attrs next to it, in " +
			".pulumi/stacks/<project> of the local backend"
	}

	return problem
}
