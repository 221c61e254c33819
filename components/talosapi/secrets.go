package talosapi

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/cosi-project/runtime/pkg/safe"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"talos-proxmox/components/wait"
)

// Secrets reads the secrets that a cluster runs with from the configuration of a control plane: the first that answers
// and is accepted, by the name of the cluster in its configuration; nil accepts every one. It takes an administrator's
// credentials.
func Secrets(ctx context.Context, controlPlanes []Target, c Credentials,
	accept func(t Target, cluster string) error,
) (*secrets.Bundle, error) {
	var errs []error

	for _, t := range controlPlanes {
		bundle, cluster, err := secretsOf(ctx, t, c)

		switch {
		case err != nil:
			// its words are enough
			err = fmt.Errorf("%s (%s) does not return its configuration: %s", t.Name, t.Address, brief(err))
		case accept != nil:
			err = accept(t, cluster)
		}

		if err == nil {
			return bundle, nil
		}

		errs = append(errs, err)
	}

	return nil, errors.Join(errs...)
}

func secretsOf(ctx context.Context, t Target, c Credentials) (bundle *secrets.Bundle, cluster string, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
	defer cancel()

	api, err := dial(ctx, t, c)
	if err != nil {
		return nil, "", err
	}
	defer api.Close() // nothing is left to be written

	applied, err := safe.StateGetByID[*config.MachineConfig](ctx, api.COSI, config.ActiveID)
	if err != nil {
		return nil, "", err
	}

	if bundle, err = secrets.NewBundleFromConfig(secrets.NewClock(), applied.Config()); err != nil {
		return nil, "", err
	}

	// A worker has only what lets it join.
	if err := bundle.Validate(talosconfig.TalosVersionCurrent); err != nil {
		return nil, "", fmt.Errorf("it is not a control plane's: %w", err)
	}

	// Only a configuration with Kubernetes names a cluster.
	if kubernetes := applied.Config().K8sClusterConfig(); kubernetes != nil {
		cluster = kubernetes.ClusterName()
	}

	return bundle, cluster, nil
}

// Administrator makes credentials from a cluster's secrets.
func Administrator(bundle *secrets.Bundle) (Credentials, error) {
	client, err := bundle.GenerateTalosAPIClientCertificate(role.MakeSet(role.Admin))
	if err != nil {
		return Credentials{}, err
	}

	encode := base64.StdEncoding.EncodeToString

	return Credentials{CA: encode(bundle.Certs.OS.Crt), Certificate: encode(client.Crt), Key: encode(client.Key)}, nil
}
