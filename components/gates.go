package components

import (
	"errors"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/talosapi"
)

// gates are the hooks of one cluster.
type gates struct {
	// answering runs before a node is configured for the first time: the provider would look for a node that is not up yet
	// only every ten seconds.
	answering *pulumi.ResourceHook
	// bootstrapped runs before the kubeconfig is fetched and starts the cluster. It is no resource because it is done once
	// and leaves nothing to manage; as one, a lost reply would leave a cluster that no later run could take over.
	bootstrapped *pulumi.ResourceHook
	// ready runs after it: whoever reads the kubeconfig finds a cluster that answers.
	ready *pulumi.ResourceHook
}

// registerGates registers the hooks of the cluster whose component is called name.
func registerGates(ctx *pulumi.Context, name string, p *plan.Plan) (gates, error) {
	var (
		g    gates
		errs [3]error
	)

	g.answering, errs[0] = ctx.RegisterResourceHook(name+"-node-answering", func(args *pulumi.ResourceHookArgs) error {
		node, err := target(p, args)
		if err != nil {
			return err
		}

		return talosapi.WaitAnswering(ctx.Context(), node, p.NodeTimeout, say(ctx, name))
	}, nil)

	g.bootstrapped, errs[1] = ctx.RegisterResourceHook(name+"-bootstrapped", func(args *pulumi.ResourceHookArgs) error {
		return talosapi.Bootstrap(ctx.Context(), controlPlanes(p), credentials(args.NewInputs), p.NodeTimeout, say(ctx, name))
	}, nil)

	g.ready, errs[2] = ctx.RegisterResourceHook(name+"-ready", func(args *pulumi.ResourceHookArgs) error {
		return talosapi.WaitReady(ctx.Context(), controlPlanes(p), credentials(args.NewInputs), p.ReadyTimeout, say(ctx, name))
	}, nil)

	return g, errors.Join(errs[:]...)
}

// controlPlanes are addressed one by one, never through the cluster's endpoint.
func controlPlanes(p *plan.Plan) []talosapi.Target {
	var targets []talosapi.Target
	for _, n := range p.ControlPlanes() {
		targets = append(targets, talosapi.Target{Name: n.Name, Address: n.Address.String()})
	}

	return targets
}

// target is the node that a resource is about, by the address among its inputs.
func target(p *plan.Plan, args *pulumi.ResourceHookArgs) (talosapi.Target, error) {
	address := text(args.NewInputs, "node")

	for _, n := range p.Nodes() {
		if n.Address.IsValid() && n.Address.String() == address {
			return talosapi.Target{Name: n.Name, Address: address}, nil
		}
	}

	return talosapi.Target{}, fmt.Errorf("%s is about the address %q, which no node of the plan has", args.Name, address)
}

// credentials are taken from the resource that the hook guards: they are known there, and come from nowhere else.
func credentials(inputs resource.PropertyMap) talosapi.Credentials {
	client := unwrap(inputs["clientConfiguration"])
	if !client.IsObject() {
		return talosapi.Credentials{}
	}

	c := client.ObjectValue()

	return talosapi.Credentials{
		CA: text(c, "caCertificate"), Certificate: text(c, "clientCertificate"), Key: text(c, "clientKey"),
	}
}

func text(m resource.PropertyMap, key resource.PropertyKey) string {
	v := unwrap(m[key])
	if !v.IsString() {
		return ""
	}

	return v.StringValue()
}

// unwrap takes a value out of the marks that say it is secret or was computed.
func unwrap(v resource.PropertyValue) resource.PropertyValue {
	for {
		switch {
		case v.IsSecret():
			v = v.SecretValue().Element
		case v.IsOutput():
			v = v.OutputValue().Element
		default:
			return v
		}
	}
}

// say shows progress beside the resource operations. It does not stay on the screen once it is over.
func say(ctx *pulumi.Context, subject string) talosapi.Say {
	return func(message string) {
		// A message that does not reach the screen is no reason to stop.
		_ = ctx.Log.Info(subject+": "+message, &pulumi.LogArgs{Ephemeral: true})
	}
}
