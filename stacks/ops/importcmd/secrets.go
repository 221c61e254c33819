package importcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/components/atomicfile"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/tokens"
)

// unfounded says why there is nothing to compare.
const unfounded = "no control plane has been configured yet: there is no cluster that has secrets"

// bundle returns the file of a secrets bundle that is the cluster's, none where there is no cluster yet.
func (c *cluster) bundle(ctx context.Context) (string, error) {
	switch o := c.options; {
	case (o.Secrets == "") == (o.Talosconfig == ""):
		if founded, err := c.founded(ctx, talosapi.Credentials{}); err != nil || !founded {
			return "", err
		}

		return "", errors.New("the cluster's secrets are lost with the state: give either --talosconfig, an " +
			"administrator's, to read them from a control " +
			"plane, or --secrets, what 'talosctl gen secrets' wrote. Without them the nodes cannot be managed any more: " +
			"rebuild the cluster")
	case o.Secrets != "":
		return c.given(ctx)
	default:
		return c.read(ctx)
	}
}

// given is a bundle that the operator has. A wrong one would be believed, so it is compared with what a node runs with.
func (c *cluster) given(ctx context.Context) (string, error) {
	bundle, err := secrets.LoadBundle(c.options.Secrets)
	if err == nil {
		err = bundle.Validate(talosconfig.TalosVersionCurrent)
	}

	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return "", err
	case err != nil: // it may quote the file
		return "", fmt.Errorf("%s is not a secrets bundle of Talos, as 'talosctl gen secrets' writes it", c.options.Secrets)
	}

	credentials, err := talosapi.Administrator(bundle)
	if err != nil {
		return "", err
	}

	running, err := c.running(ctx, nil, credentials)
	if err != nil {
		return "", fmt.Errorf("%s cannot be compared with what the cluster runs with: %w", c.options.Secrets, err)
	}

	ours, err1 := yaml.Marshal(bundle)
	theirs, err2 := yaml.Marshal(running)

	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}

	if !bytes.Equal(ours, theirs) {
		return "", fmt.Errorf("%s differs from what the cluster runs with: use --talosconfig", c.options.Secrets)
	}

	return filepath.Abs(c.options.Secrets)
}

// read asks a control plane and writes what it runs with to a file, because the provider reads it from one.
func (c *cluster) read(ctx context.Context) (string, error) {
	// Talos' own Open creates a file that is not there.
	text, err := os.ReadFile(c.options.Talosconfig)
	if err != nil {
		return "", err
	}

	config, err := clientconfig.FromBytes(text)
	if err != nil {
		return "", err
	}

	context, there := config.Contexts[c.plan.Cluster]
	if !there {
		if context, there = config.Contexts[config.Context]; !there {
			return "", fmt.Errorf("%s has no context %s, and none is selected in it", c.options.Talosconfig, c.plan.Cluster)
		}
	}

	bundle, err := c.running(ctx, context.Endpoints,
		talosapi.Credentials{CA: context.CA, Certificate: context.Crt, Key: context.Key})
	if err != nil {
		return "", err
	}

	written, err := yaml.Marshal(bundle)
	if err != nil {
		return "", err
	}

	// Snapshots of the state may be copied, and lie in the project: not these.
	dir, err := atomicfile.SecretDir("talos-secrets-")
	if err != nil {
		return "", err
	}

	c.written = filepath.Join(dir, "secrets.yaml")

	return c.written, private(c.written, written)
}

// compare checks that the secrets in the state are the cluster's. They are not when an update was run on a state that
// was lost: it makes new ones before anything else, and no node would ever accept them.
func (c *cluster) compare(ctx context.Context, state apitype.UntypedDeployment) error {
	var d apitype.DeploymentV3
	if err := json.Unmarshal(state.Deployment, &d); err != nil {
		return err
	}

	i := slices.IndexFunc(d.Resources, func(r apitype.ResourceV3) bool { return r.Type == tokens.Secrets })
	if i < 0 {
		return nil // others bootstrap
	}

	client, _ := revealed(d.Resources[i].Outputs["clientConfiguration"]).(map[string]any) // without it, nothing answers
	credentials := talosapi.Credentials{
		CA: text(client, "caCertificate"), Certificate: text(client, "clientCertificate"),
		Key: text(client, "clientKey"),
	}

	_, refused := c.running(ctx, nil, credentials)
	if refused == nil {
		return nil
	}

	founded, err := c.founded(ctx, credentials)
	if err != nil {
		return err
	}

	if !founded {
		fmt.Fprintf(c.options.Out, "%s; those in the state stay\n", unfounded)

		return nil
	}

	return fmt.Errorf("the secrets in the state are not accepted by the cluster: %w. If an update ran after the "+
		"state was lost, it created new ones: remove them from the state (pulumi state delete --force "+
		"--target-dependents '%s'), and run this again with --talosconfig or "+
		"--secrets", refused, d.Resources[i].URN)
}

// revealed is a value of a state that was exported with its secrets shown, without the marks that say they are secret.
func revealed(value any) any {
	m, ok := value.(map[string]any)
	if !ok {
		return value
	}

	if shown, secret := m["plaintext"].(string); secret && m[resource.SigKey] == resource.SecretSig {
		var v any
		if json.Unmarshal([]byte(shown), &v) != nil {
			return nil
		}

		return revealed(v)
	}

	all := map[string]any{}
	for name, inner := range m {
		all[name] = revealed(inner)
	}

	return all
}
