// Package backup takes snapshots of the etcd of a stack's cluster.
package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"

	"talos-proxmox/components/talosapi"
	"talos-proxmox/stacks"
)

// Take writes what etcd holds to a new file in a directory. It asks one control plane after the other, with the credentials that
// the stack has.
func Take(ctx context.Context, stack auto.Stack, dir string, timeout time.Duration) (talosapi.Snapshot, error) {
	outputs, err := stack.Outputs(ctx)
	if err != nil {
		return talosapi.Snapshot{}, err
	}

	text, _ := outputs[stacks.OutputTalosconfig].Value.(string)
	if text == "" {
		return talosapi.Snapshot{}, fmt.Errorf("the stack has no output %s: it has no cluster, or not yet", stacks.OutputTalosconfig)
	}

	config, err := clientconfig.FromString(text)
	if err != nil {
		return talosapi.Snapshot{}, fmt.Errorf("the output %s cannot be read: %w", stacks.OutputTalosconfig, err)
	}

	one := config.Contexts[config.Context]
	if one == nil || len(one.Endpoints) == 0 {
		return talosapi.Snapshot{}, fmt.Errorf("the output %s names no control plane", stacks.OutputTalosconfig)
	}

	c := talosapi.Credentials{CA: one.CA, Certificate: one.Crt, Key: one.Key}

	var errs []error

	for _, address := range slices.Compact(one.Endpoints) {
		taken, err := talosapi.TakeSnapshot(ctx, talosapi.Target{Name: address, Address: address}, c, dir, clusterOf(config.Context), timeout)
		if err == nil {
			return taken, nil
		}

		errs = append(errs, err)
	}

	return talosapi.Snapshot{}, errors.Join(errs...)
}

// clusterOf is the name of the cluster: talosctl calls an administrator's context "admin@atlas".
func clusterOf(context string) string { return context[strings.LastIndex(context, "@")+1:] }
