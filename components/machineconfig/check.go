package machineconfig

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"go.yaml.in/yaml/v3"

	"talos-proxmox/components/machineconfig/manifests"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// Check generates the configuration of each node with throw-away secrets, applies all patches and lets Talos validate
// the result, so that a bad patch fails here and not on the node. The warnings are Talos' own. The error is
// spec.Problems. Nodes that are not configured by the program have none; of K3s, only the manifests are checked.
func Check(p *plan.Plan) ([]spec.Problem, error) {
	switch {
	case p.Bootstrap == spec.BootstrapExternal:
		return nil, nil
	case p.Distribution == spec.DistributionK3s:
		return nil, manifests.Check(p).Err()
	}

	c := checker{problems: manifests.Check(p)}

	for _, pool := range p.Pools {
		if err := c.pool(p, pool); err != nil {
			return nil, err
		}
	}

	// A patch that is wrong for one pool is mostly wrong for the others, in the same words.
	return c.warnings.Unique(), c.problems.Unique().Err()
}

// CheckPatches checks the patches and manifests of a configuration that cannot be planned, on the plainest node that
// their pool could have. What only shows together with the rest of the plan is left to Check.
func CheckPatches(s spec.Spec) (spec.Problems, error) {
	if s.Cluster.Distribution == spec.DistributionK3s || s.Cluster.Bootstrap == spec.BootstrapExternal {
		return nil, nil
	}

	p := &plan.Plan{
		Cluster: "cluster", Talos: s.Cluster.Versions.Talos, Kubernetes: "v" + constants.DefaultKubernetesVersion,
		Network: netip.MustParsePrefix("192.0.2.0/24"), Discovery: spec.DiscoveryService,
		CNI:       cmp.Or(s.Cluster.CNI.Name, spec.CNIFlannel),
		KubeProxy: s.Cluster.CNI.KubeProxy == nil || *s.Cluster.CNI.KubeProxy,
		Patches:   s.Cluster.Patches, Manifests: s.Cluster.Manifests,
	}

	if cidr, err := netip.ParsePrefix(s.Network.CIDR); err == nil && cidr.Addr().Is6() {
		p.Network = netip.MustParsePrefix("2001:db8::/64")
	}

	if _, err := talosconfig.ParseContractFromVersion(p.Talos); err != nil {
		p.Talos = talosconfig.TalosVersion1_12.String()
	}

	for _, name := range slices.Sorted(maps.Keys(s.Pools)) {
		given := s.Pools[name]
		pool := plan.PlannedPool{Name: name, Role: given.Role, Patches: given.Patches}
		add := func(node string, patches []spec.Patch) {
			pool.Nodes = append(pool.Nodes, plan.Node{
				Name: node, Pool: name, Role: given.Role, Disks: []plan.Disk{{Interface: "scsi0"}}, Patches: patches,
			})
		}

		add(name, nil)

		for _, n := range slices.Sorted(maps.Keys(given.Nodes)) {
			add(name+"-"+n, given.Nodes[n].Patches)
		}

		for _, n := range slices.Sorted(maps.Keys(given.GPUs)) {
			add(name+"-"+n, given.GPUs[n].Patches)
		}

		p.Pools = append(p.Pools, pool)
	}

	var found spec.Problems

	if _, err := Check(p); err != nil && !errors.As(err, &found) {
		return nil, err
	}

	// What is not a patch's fault is one of this plan.
	return slices.DeleteFunc(found, func(problem spec.Problem) bool {
		return problem.Path == "network.cidr" ||
			slices.ContainsFunc(p.Pools, func(pool plan.PlannedPool) bool { return problem.Path == "pools."+pool.Name })
	}), nil
}

// checker collects what is said of the nodes. What several nodes of a pool have in common is said of the first.
type checker struct {
	problems, warnings spec.Problems
	reported           map[string]bool
}

func (c *checker) note(to *spec.Problems, problem spec.Problem) {
	if key := problem.Path + "\x00" + problem.Rule; !c.reported[key] {
		if c.reported == nil {
			c.reported = map[string]bool{}
		}

		c.reported[key] = true
		*to = append(*to, problem)
	}
}

func (c *checker) pool(p *plan.Plan, pool plan.PlannedPool) error {
	generated, err := generateBase(p, pool.Role)
	if err != nil {
		return fmt.Errorf("generating the configuration of pool %s: %w", pool.Name, err)
	}

	patches, err := poolPatches(p, pool)
	if err != nil {
		return err
	}

	tailscale, err := Tailscale(p, pool, "a-key")
	if err != nil {
		return err
	}

	if tailscale != "" {
		patches = slices.Insert(patches, 0, spec.Patch{Path: "tailscale", Origin: ownPatch, Text: tailscale})
	}

	nodes := pool.Nodes
	if len(nodes) == 0 {
		// The configuration of the pool itself, which is for machines of others.
		nodes = []plan.Node{{Name: "pool " + pool.Name, Pool: pool.Name, Role: pool.Role}}
	}

	shared := c.apply(generated, patches, nodes[0])
	planned := (&checker{}).apply(generated, programs(patches), nodes[0])

	for _, node := range nodes {
		var mine []spec.Patch

		decided := ofCluster()

		if len(pool.Nodes) > 0 {
			if mine, err = nodePatches(p, node); err != nil {
				return err
			}

			decided = slices.Concat(ofNode(p, node), decided)
		}

		whole, all := c.apply(shared, mine, node), slices.Concat(patches, mine)

		warnings, err := validate(whole)
		for _, fault := range faults(err) {
			refused := func(cfg talosconfig.Provider) bool {
				_, again := validate(cfg)

				return slices.Contains(faults(again), fault)
			}

			c.note(&c.problems, blame(generated, all, node, "Talos refuses the machine configuration: "+fault, refused))
		}

		for _, need := range needs(p) {
			switch {
			case !need.broken(whole):
			case need.unpatched.Rule != "" && need.broken(generated):
				c.note(&c.problems, need.unpatched)
			default:
				c.note(&c.problems, blame(generated, all, node, need.rule, need.broken))
			}
		}

		c.checkAddresses(p, pool, node, generated, whole, all)
		c.checkOverrides(decided, (&checker{}).apply(planned, programs(mine), node), whole, all, node)

		for _, w := range warnings {
			c.note(&c.warnings, spec.Problem{
				Path: "pools." + pool.Name, Rule: "Talos warns of the machine configuration: " + w,
				Value: node.Name,
			})
		}
	}

	return nil
}

// apply applies patches one by one, without those that cannot be applied, which it notes.
func (c *checker) apply(cfg talosconfig.Provider, patches []spec.Patch, node plan.Node) talosconfig.Provider {
	for _, patch := range patches {
		patched, err := apply(cfg, patch.Text)
		if err != nil {
			c.note(&c.problems, spec.Problem{
				Path: patch.Path, Rule: "is not a patch that Talos can apply: " + keysOnly(err),
				Value: patch.Origin + ", for " + node.Name, Remedy: remedy(err),
			})

			continue
		}

		cfg = patched
	}

	return cfg
}

// unknownKeys is how Talos begins to quote what it does not know, everything below it included.
const unknownKeys = "unknown keys found during decoding:"

// keysOnly leaves of what Talos quotes the keys: below a mistyped one there may be a password.
func keysOnly(err error) string {
	message, quoted, ok := strings.Cut(err.Error(), unknownKeys)
	if !ok {
		return oneLine(err)
	}

	var tree map[string]any
	if yaml.Unmarshal([]byte(quoted), &tree) != nil {
		return oneLine(errors.New(message + "unknown keys"))
	}

	var paths []string

	// Talos quotes the way to the unknown key; where it ends or forks, its value begins.
	for at := tree; ; {
		keys := slices.Sorted(maps.Keys(at))
		if len(keys) != 1 {
			break
		}

		paths = append(paths, keys[0])

		next, below := at[keys[0]].(map[string]any)
		if !below {
			break
		}

		at = next
	}

	return oneLine(errors.New(message+unknownKeys)) + " " + strings.Join(paths, ".")
}

// remedy for a patch that cannot be applied.
func remedy(err error) string {
	if strings.Contains(err.Error(), "JSON6902") {
		return "write it as a strategic merge patch: since Talos 1.12 a machine configuration has several documents"
	}

	return "correct the patch"
}

// blame names the patch that breaks a rule which the configuration held before.
func blame(cfg talosconfig.Provider, patches []spec.Patch, node plan.Node, rule string,
	broken func(talosconfig.Provider) bool,
) spec.Problem {
	problem := spec.Problem{Path: "pools." + node.Pool, Rule: rule, Value: node.Name}

	for _, patch := range patches {
		patched, err := apply(cfg, patch.Text)
		if err != nil {
			continue // it is noted by itself
		}

		cfg = patched

		if broken(cfg) {
			problem.Path, problem.Value, problem.Remedy = patch.Path, patch.Origin+", for "+node.Name, "correct the patch"

			return problem
		}
	}

	return problem
}

// apply applies one patch. The text is a patch and nothing else: machinery's LoadPatches, and with it the provider,
// takes a text like "@/etc/passwd" for the name of a file to read, which must not get that far.
func apply(cfg talosconfig.Provider, text string) (talosconfig.Provider, error) {
	// Talos takes it for a list of no JSON patches, and then complains of those.
	var content any
	if err := yaml.Unmarshal([]byte(text), &content); err == nil && content == nil {
		return nil, errors.New("it is empty")
	}

	patch, err := configpatcher.LoadPatch([]byte(text))
	if err == nil {
		err = checkKinds(patch, text)
	}

	if err != nil {
		return nil, err
	}

	// Talos' copy of a configuration shares the endpoint with it, and a patch would change both.
	cfg, err = cfg.PatchV1Alpha1(func(c *v1alpha1.Config) error {
		if c.ClusterConfig == nil {
			return nil
		}

		if e := c.ClusterConfig.Endpoint(); e != nil {
			c.ClusterConfig.ControlPlane.Endpoint = &v1alpha1.Endpoint{URL: new(*e)}
		}

		return nil
	})
	if err != nil {
		return nil, err
	}

	out, err := configpatcher.Apply(configpatcher.WithConfig(cfg), []configpatcher.Patch{patch})
	if err != nil {
		return nil, err
	}

	return out.Config()
}

func generateBase(p *plan.Plan, role spec.Role) (talosconfig.Provider, error) {
	bundle, err := throwAway()
	if err != nil {
		return nil, err
	}

	return generated(p, role, bundle)
}

// FullConfiguration is the configuration of a node of a cluster that has these secrets, with all patches. It holds
// them.
func FullConfiguration(p *plan.Plan, node plan.Node, bundle *secrets.Bundle) (talosconfig.Provider, error) {
	config, err := generated(p, node.Role, bundle)
	if err != nil {
		return nil, err
	}

	patches, err := poolPatches(p, p.PoolOf(node))
	if err != nil {
		return nil, err
	}

	own, err := nodePatches(p, node)
	if err != nil {
		return nil, err
	}

	for _, patch := range slices.Concat(patches, own) {
		if config, err = apply(config, patch.Text); err != nil {
			return nil, fmt.Errorf("%s: %w", patch.Origin, err)
		}
	}

	return config, nil
}

func generated(p *plan.Plan, role spec.Role, bundle *secrets.Bundle) (talosconfig.Provider, error) {
	contract, err := talosconfig.ParseContractFromVersion(p.ContractVersion())
	if err != nil {
		return nil, err
	}

	endpoint := p.Endpoint
	if endpoint == "" {
		// It will be known when the first control plane is.
		endpoint = "https://endpoint.invalid:6443"
	}

	in, err := generate.NewInput(p.Cluster, endpoint, strings.TrimPrefix(p.Kubernetes, "v"),
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

func machineType(role spec.Role) configmachine.Type {
	if role == spec.RoleControlPlane {
		return configmachine.TypeControlPlane
	}

	return configmachine.TypeWorker
}

// validate asks Talos' own validator. Which Kubernetes goes with which Talos, the plan knows: the validator would ask
// for the Talos of its own version.
func validate(cfg talosconfig.Provider) (warnings []string, err error) {
	return cfg.Validate(metal{}, validation.WithLocal())
}

// metal is the mode in which Talos validates on Proxmox: installed to a disk, not in a container.
type metal struct{}

func (metal) String() string        { return "metal" }
func (metal) RequiresInstall() bool { return true }
func (metal) InContainer() bool     { return false }

// listed is how Talos' errors begin a list.
var listed = regexp.MustCompile(`\d+ errors? occurred: \* `)

// quotedValue is where errors of Talos and of YAML quote a value, which may be secret.
var quotedValue = regexp.MustCompile(
	"(cannot unmarshal !!\\w+|wrong key|unknown anchor) (?:`[^`]*`|\"[^\"]*\"|'[^']*')")

// faults are the errors of a list of Talos', which comes over several lines. They quote no values.
func faults(err error) []string {
	if err == nil {
		return nil
	}

	text := quotedValue.ReplaceAllString(strings.Join(strings.Fields(err.Error()), " "), "$1")

	return strings.Split(listed.ReplaceAllString(text, ""), " * ")
}

// oneLine folds Talos' errors.
func oneLine(err error) string { return strings.Join(faults(err), "; ") }
