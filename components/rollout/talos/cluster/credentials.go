package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/talosapi"
)

// CurrentCredentials waits for the credentials of the cluster.
func (c *Cluster) CurrentCredentials(ctx context.Context) (talosapi.Credentials, error) {
	current, known := c.Credentials.Get(ctx, c.Plan.NodeTimeout)
	if !known && errors.Is(ctx.Err(), context.Canceled) {
		return current, context.Cause(ctx)
	}

	if !known {
		return current, fmt.Errorf("the credentials of the cluster were not available within %s", c.Plan.NodeTimeout)
	}

	return current, nil
}

// CredentialsOf are those in the inputs of the resource that a hook runs for.
func CredentialsOf(inputs resource.PropertyMap) talosapi.Credentials {
	client := hookutil.Unwrap(inputs["clientConfiguration"])
	if !client.IsObject() {
		return talosapi.Credentials{}
	}

	c := client.ObjectValue()

	return talosapi.Credentials{
		CA: hookutil.String(c, "caCertificate"), Certificate: hookutil.String(c, "clientCertificate"),
		Key: hookutil.String(c, "clientKey"),
	}
}
