// Package machineconfig renders what a plan means for Talos: configuration patches made from Talos' own types,
// and their check by Talos' own validator. It is pure. No patch holds a secret, but those that Tailscale and
// EtcdEncryption render.
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
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"go.yaml.in/yaml/v3"

	"talos-proxmox/components/machineconfig/patches"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// Patches returns the configuration patches of a pool, in the order they are applied: the program's own, the operator's
// for every node, the operator's for the pool.
func Patches(p *plan.Plan, pool plan.PlannedPool) ([]string, error) {
	all, err := patches.OfPool(p, pool)

	return texts(all), err
}

// NodePatches returns what is particular to one node, in the order it is applied after the patches of its pool: the
// program's own, the operator's for the node.
func NodePatches(p *plan.Plan, node plan.Node) ([]string, error) {
	all, err := patches.OfNode(p, node)

	return texts(all), err
}

func texts(rendered []spec.Patch) []string {
	all := make([]string, 0, len(rendered))
	for _, patch := range rendered {
		text := patch.Text
		// The provider takes a text without these for the name of a file, and a file with that name may be a link to
		// anywhere.
		if !strings.ContainsAny(text, "\n ") {
			text += "\n"
		}

		all = append(all, text)
	}

	return all
}

// FullConfiguration is the configuration of a node of a cluster that has these secrets, with all patches: what ops
// generate writes. In an update, the provider renders it from the same patches. It holds
// them.
func FullConfiguration(p *plan.Plan, node plan.Node, bundle *secrets.Bundle) (talosconfig.Provider, error) {
	config, err := render(p, node.Role, bundle)
	if err != nil {
		return nil, err
	}

	shared, err := patches.OfPool(p, p.PoolOf(node))
	if err != nil {
		return nil, err
	}

	own, err := patches.OfNode(p, node)
	if err != nil {
		return nil, err
	}

	for _, patch := range slices.Concat(shared, own) {
		if config, err = applyPatch(config, patch.Text); err != nil {
			return nil, fmt.Errorf("%s: %w", patch.Origin, err)
		}
	}

	return config, nil
}

// Applied is the configuration that a node was given: that of its pool with the patches that are its own. Its errors
// quote no values, which may be secret.
func Applied(pool string, patches []string) (talosconfig.Provider, error) {
	var loaded []configpatcher.Patch

	for _, text := range patches {
		patch, err := configpatcher.LoadPatch([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("a patch cannot be read: %s", keysOnly(err))
		}

		loaded = append(loaded, patch)
	}

	out, err := configpatcher.Apply(configpatcher.WithBytes([]byte(pool)), loaded)
	if err != nil {
		return nil, fmt.Errorf("the configuration cannot be patched: %s", keysOnly(err))
	}

	applied, err := out.Config()
	if err != nil {
		return nil, fmt.Errorf("the configuration cannot be read: %s", keysOnly(err))
	}

	return applied, nil
}

// Identity is the name and the role of the node that a configuration was given to.
func Identity(c talosconfig.Provider) (name string, role spec.Role) {
	if h := c.NetworkHostnameConfig(); h != nil {
		name = h.Hostname()
	}

	role = spec.RoleWorker
	if c.Machine().Type().IsControlPlane() {
		role = spec.RoleControlPlane
	}

	return name, role
}

// unknownEndpoint stands for an endpoint that is not known yet. No message shows it.
const unknownEndpoint = "https://endpoint.invalid:6443"

func generateBase(p *plan.Plan, role spec.Role) (talosconfig.Provider, error) {
	bundle, err := throwAway()
	if err != nil {
		return nil, err
	}

	return render(p, role, bundle)
}

// render generates the configuration of a role, without patches.
func render(p *plan.Plan, role spec.Role, bundle *secrets.Bundle) (talosconfig.Provider, error) {
	contract, err := talosconfig.ParseContractFromVersion(p.ContractVersion())
	if err != nil {
		return nil, err
	}

	endpoint := p.Endpoint
	if endpoint == "" {
		// It will be known when the first control plane is.
		endpoint = unknownEndpoint
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

// applyPatch applies one patch. The text is a patch and nothing else: machinery's LoadPatches, and with it the
// provider, takes a text like "@/etc/passwd" for the name of a file to read, which must not get that far.
func applyPatch(cfg talosconfig.Provider, text string) (talosconfig.Provider, error) {
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
