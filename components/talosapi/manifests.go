package talosapi

import (
	"context"
	"errors"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// fromConfiguration begins the names of manifests that the machine configuration holds (Talos:
// controllers/k8s/control_plane.go).
const fromConfiguration = "99-"

// Manifests are what Talos itself installs into Kubernetes, as a control plane would install it now: kube-proxy,
// CoreDNS, the network. What the machine configuration adds is not among them.
func Manifests(ctx context.Context, t Target, c Credentials) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured

	err := with(ctx, t, c, func(ctx context.Context, api *client.Client) error {
		manifests, err := safe.StateListAll[*k8s.Manifest](ctx, api.COSI)
		if err != nil {
			return err
		}

		for m := range manifests.All() {
			if strings.HasPrefix(m.Metadata().ID(), fromConfiguration) {
				continue
			}

			for _, object := range m.TypedSpec().Items {
				all = append(all, &unstructured.Unstructured{Object: object.Object})
			}
		}

		return nil
	})
	if err != nil {
		return nil, errors.New(brief(err))
	}

	return all, nil
}
