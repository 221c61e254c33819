package components

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/machineconfig/manifests"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/tokens"
)

const secretManifests = "secretManifests"

// newK3sManifests applies the manifests of a cluster to Kubernetes when its nodes have joined, and when they change:
// those of the operator, of addons and the secret ones. The state knows them by their checksums, and for which servers
// they were applied: others may have begun with another etcd. There is nothing to wait for without any.
func newK3sManifests(ctx *pulumi.Context, name string, p *plan.Plan, secret pulumi.StringInput, nodes []*K3sNode,
	hooks k3sHooks, parent pulumi.ResourceOption,
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

	var all []kubeapi.Manifest

	checksums := pulumi.Map{}

	for _, m := range own {
		read, err := objects(m.Name, m.Contents, false)
		if err != nil {
			return nil, err
		}

		all = append(all, read...)
		checksums[m.Name] = pulumi.String(checksum(m.Contents))
	}

	if secret == nil {
		hooks.manifests.Set(all)
	} else {
		checksums[secretManifests] = pulumi.ToSecret(secret.ToStringOutput().ApplyT(func(text string) (string, error) {
			read, err := objects(secretManifests, text, true)
			if err != nil {
				return "", err
			}

			hooks.manifests.Set(append(read, all...))

			return checksum(text), nil
		})).(pulumi.StringOutput)
	}

	var joined []pulumi.Resource

	servers := pulumi.StringMap{}

	for _, n := range nodes {
		joined = append(joined, n.Joined)

		if n.node.Role == spec.RoleControlPlane {
			servers[n.node.Name] = n.uuid.Elem()
		}
	}

	checksums["servers"] = servers
	opts := []pulumi.ResourceOption{parent, pulumi.DependsOn(joined)}

	if p.Teardown {
		opts = append(opts, pulumi.IgnoreChanges([]string{"input"}))
	} else {
		apply := []*pulumi.ResourceHook{hooks.applyManifests}
		opts = append(opts, pulumi.ResourceHooks(&pulumi.ResourceHookBinding{BeforeCreate: apply, BeforeUpdate: apply}))
	}

	applied, err := pulumi.NewStash(ctx, name+tokens.ManifestsSuffix, &pulumi.StashArgs{Input: checksums}, opts...)

	return []pulumi.Resource{applied}, err
}

// objects are those of a text that is called name.
func objects(name, text string, secret bool) ([]kubeapi.Manifest, error) {
	read, err := manifests.Objects(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}

	var all []kubeapi.Manifest
	for _, object := range read {
		all = append(all, kubeapi.Manifest{Unstructured: object, Secret: secret || object.GetKind() == "Secret"})
	}

	return all, nil
}

func checksum(text string) string {
	sum := sha256.Sum256([]byte(text))

	return hex.EncodeToString(sum[:])
}
