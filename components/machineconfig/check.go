package machineconfig

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"talos-proxmox/components/plan"
)

// Check generates the configuration of each node with throw-away secrets, applies all patches and lets Talos validate the
// result, so that a bad patch fails here and not on the node. The warnings are Talos' own. The error is plan.Problems.
func Check(p *plan.Plan) ([]plan.Problem, error) {
	var (
		problems plan.Problems
		warnings plan.Problems
	)

	for _, pool := range p.Pools {
		w, err := checkPool(p, pool)
		warnings = append(warnings, w...)

		var found plan.Problems
		if errors.As(err, &found) {
			problems = append(problems, found...)
		} else if err != nil {
			return nil, err
		}
	}

	// A patch that is wrong for one pool is mostly wrong for the others, in the same words.
	return warnings.Unique(), problems.Unique().Err()
}

func checkPool(p *plan.Plan, pool plan.PlannedPool) ([]plan.Problem, error) {
	if len(pool.Nodes) == 0 {
		return nil, nil
	}

	cfg, err := generateBase(p, pool.Role)
	if err != nil {
		return nil, fmt.Errorf("generating the configuration of pool %s: %w", pool.Name, err)
	}

	patches, err := poolPatches(p, pool)
	if err != nil {
		return nil, err
	}

	var problems plan.Problems

	for _, patch := range patches {
		patched, err := apply(cfg, patch.Text)
		if err != nil {
			problems = append(problems, plan.Problem{
				Path: patch.Path, Rule: "is no patch that Talos can apply: " + oneLine(err), Value: patch.Origin, Remedy: "correct the patch",
			})

			continue
		}

		cfg = patched
	}

	if len(problems) > 0 {
		return nil, problems
	}

	return validate(p, pool, cfg)
}

// validate checks the nodes of a pool, whose configurations differ in little; what Talos says of several nodes in the same
// words is reported once.
func validate(p *plan.Plan, pool plan.PlannedPool, cfg talosconfig.Provider) ([]plan.Problem, error) {
	var problems, warnings []plan.Problem

	said := map[string]bool{}
	note := func(to *[]plan.Problem, node, rule, remedy string) {
		if !said[rule] {
			said[rule] = true
			*to = append(*to, plan.Problem{Path: "pools." + pool.Name, Rule: rule, Value: node, Remedy: remedy})
		}
	}

	for _, node := range pool.Nodes {
		texts, err := NodePatches(p, node)
		if err != nil {
			return nil, err
		}

		whole, err := apply(cfg, texts...)
		if err != nil {
			note(&problems, node.Name, "Talos cannot apply the node's own patch: "+oneLine(err), "look for a conflict with the patches")

			continue
		}

		said1, err := whole.Validate(metal{})
		if err != nil {
			note(&problems, node.Name, "Talos refuses the machine configuration: "+oneLine(err), patchHint(p, pool))
		}

		for _, w := range said1 {
			note(&warnings, node.Name, "Talos warns of the machine configuration: "+w, "")
		}
	}

	return warnings, plan.Problems(problems).Err()
}

// patchHint names the patches that may be at fault.
func patchHint(p *plan.Plan, pool plan.PlannedPool) string {
	var origins []string
	for _, patch := range append(slices.Clone(p.Patches), pool.Patches...) {
		origins = append(origins, patch.Origin)
	}

	if len(origins) == 0 {
		return ""
	}

	return "look at " + strings.Join(origins, ", ")
}

func apply(cfg talosconfig.Provider, texts ...string) (talosconfig.Provider, error) {
	patches, err := configpatcher.LoadPatches(texts)
	if err != nil {
		return nil, err
	}

	out, err := configpatcher.Apply(configpatcher.WithConfig(cfg), patches)
	if err != nil {
		return nil, err
	}

	return out.Config()
}

func generateBase(p *plan.Plan, role plan.Role) (talosconfig.Provider, error) {
	contract, err := talosconfig.ParseContractFromVersion(p.Talos)
	if err != nil {
		return nil, err
	}

	bundle, err := throwAway()
	if err != nil {
		return nil, err
	}

	in, err := generate.NewInput(p.Cluster, p.Endpoint, strings.TrimPrefix(p.Kubernetes, "v"),
		generate.WithVersionContract(contract), generate.WithSecretsBundle(bundle))
	if err != nil {
		return nil, err
	}

	return in.Config(machineType(role))
}

// throwAway secrets are made once per process. The contract asked for is an old one because newer ones want an RSA key,
// which takes a second to make and changes nothing in what is validated.
var throwAway = sync.OnceValues(func() (*secrets.Bundle, error) {
	return secrets.NewBundle(secrets.NewFixedClock(time.Now()), talosconfig.TalosVersion1_3)
})

func machineType(role plan.Role) machine.Type {
	if role == plan.ControlPlane {
		return machine.TypeControlPlane
	}

	return machine.TypeWorker
}

// metal is the mode in which Talos validates on Proxmox: installed to a disk, not in a container.
type metal struct{}

func (metal) String() string        { return "metal" }
func (metal) RequiresInstall() bool { return true }
func (metal) InContainer() bool     { return false }

// oneLine folds Talos' multi-line errors.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
