package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"talos-proxmox/stacks/shellword"
)

// Deployment is what a snapshot says of a stack.
type Deployment struct {
	// URNs of all resources, sorted.
	URNs []string
	// Pending counts operations that were under way: an update was interrupted, or still runs.
	Pending int
	// Updated is when the state was last written; zero for a stack that was never updated.
	Updated time.Time
}

// decode reads an exported state, and refuses one of another stack or with a secret in plain text.
func decode(text []byte, project, stack string) (Deployment, error) {
	var untyped apitype.UntypedDeployment
	if err := json.Unmarshal(text, &untyped); err != nil {
		return Deployment{}, fmt.Errorf("it is not an exported state: %w", err)
	}

	if untyped.Version < apitype.DeploymentSchemaVersionCurrent ||
		untyped.Version > apitype.DeploymentSchemaVersionLatest {
		return Deployment{},
			fmt.Errorf("it is not an exported state, or of an unsupported version of pulumi: its version is %d",
				untyped.Version)
	}

	// A stack that was never updated may have none.
	if len(untyped.Deployment) == 0 {
		untyped.Deployment = []byte("{}")
	}

	var d apitype.DeploymentV3
	if err := json.Unmarshal(untyped.Deployment, &d); err != nil {
		return Deployment{}, fmt.Errorf("it is not an exported state: %w", err)
	}

	found := Deployment{Pending: len(d.PendingOperations), Updated: d.Manifest.Time}

	for _, r := range d.Resources {
		if err := belongs(r.URN, project, stack); err != nil {
			return Deployment{}, err
		}

		found.URNs = append(found.URNs, string(r.URN))
	}

	slices.Sort(found.URNs)

	var all any
	if err := json.Unmarshal(untyped.Deployment, &all); err != nil {
		return Deployment{}, err
	}

	if plaintext(all) {
		return Deployment{}, errors.New("it holds secrets in plain text: it was exported with --show-secrets")
	}

	return found, nil
}

// belongs refuses a resource of another stack. URNs hold the stack's name, so those that were written before it was
// renamed are another one's, too.
func belongs(urn resource.URN, project, stack string) error {
	of := urn.Stack().Name().String()
	if of == stack && urn.Project().String() == project {
		return nil
	}

	err := fmt.Errorf("it holds %s, which belongs to stack %s of project %s; this is stack %s of project %s",
		urn.Name(), of, urn.Project(), stack, project)
	if urn.Project().String() != project {
		return err
	}

	return fmt.Errorf("%w. If the stack was renamed since, rename it back ('pulumi stack rename %s --stack %s'), "+
		"restore with --stack %[2]s, and rename it again", err, shellword.Quote(of), shellword.Quote(stack))
}

// plaintext finds a secret that is not encrypted.
func plaintext(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		if _, shown := v["plaintext"]; shown && v[resource.SigKey] == resource.SecretSig {
			return true
		}

		for _, inner := range v {
			if plaintext(inner) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, plaintext)
	}

	return false
}
