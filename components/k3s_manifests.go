package components

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"talos-proxmox/components/machineconfig/manifests"
	"talos-proxmox/components/plan"
)

const secretManifests = "secretManifests"

// newK3sManifests applies the manifests of a cluster to Kubernetes when they change: those of the operator, of addons
// and the secret ones. The state knows them by their checksums. There is nothing to wait for without any.
func newK3sManifests(ctx *pulumi.Context, name string, p *plan.Plan, secret pulumi.StringInput, hooks k3sHooks,
	opts ...pulumi.ResourceOption,
) ([]pulumi.Resource, error) {
	own, err := manifests.Inline(p)
	if err != nil {
		return nil, err
	}

	for _, m := range p.Manifests {
		own = append(own, manifests.Manifest{Name: m.Path, Contents: m.Text})
	}

	if len(own) == 0 && secret == nil {
		return nil, nil
	}

	var objects []*unstructured.Unstructured

	checksums := pulumi.Map{}

	for _, m := range own {
		read, err := manifests.Objects(m.Contents)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Name, err)
		}

		objects = append(objects, read...)
		checksums[m.Name] = pulumi.String(checksum(m.Contents))
	}

	if secret == nil {
		hooks.manifests.Set(objects)
	} else {
		checksums[secretManifests] = pulumi.ToSecret(secret.ToStringOutput().ApplyT(func(text string) (string, error) {
			secret, err := manifests.Objects(text)
			if err != nil {
				return "", fmt.Errorf("%s: %w", secretManifests, err)
			}

			hooks.manifests.Set(append(secret, objects...))

			return checksum(text), nil
		})).(pulumi.StringOutput)
	}

	apply := []*pulumi.ResourceHook{hooks.applyManifests}

	applied, err := pulumi.NewStash(ctx, name+"-manifests", &pulumi.StashArgs{Input: checksums}, append(opts,
		pulumi.ResourceHooks(&pulumi.ResourceHookBinding{BeforeCreate: apply, BeforeUpdate: apply}))...)

	return []pulumi.Resource{applied}, err
}

func checksum(text string) string {
	sum := sha256.Sum256([]byte(text))

	return hex.EncodeToString(sum[:])
}
