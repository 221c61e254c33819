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
	// bootstrappable runs before the bootstrap: the provider would try a second one for ten minutes.
	bootstrappable *pulumi.ResourceHook
	// ready runs before the kubeconfig is fetched: whoever reads it finds a cluster that answers.
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

		return talosapi.WaitAnswering(ctx.Context(), node, p.NodeTimeout, say(ctx, node.Name))
	}, nil)

	g.bootstrappable, errs[1] = ctx.RegisterResourceHook(name+"-bootstrappable", func(args *pulumi.ResourceHookArgs) error {
		node, err := target(p, args)
		if err != nil {
			return err
		}

		err = talosapi.WaitBootstrappable(ctx.Context(), node, credentials(args.NewInputs), p.NodeTimeout, say(ctx, name))
		if errors.Is(err, talosapi.ErrBootstrapped) {
			return fmt.Errorf("%w, but Pulumi has no record of it: the reply to an earlier run was lost. "+
				"Take it over, then run pulumi up again:\n\n    %s\n", err, takeOver(args))
		}

		return err
	}, nil)

	g.ready, errs[2] = ctx.RegisterResourceHook(name+"-ready", func(args *pulumi.ResourceHookArgs) error {
		var controlPlanes []talosapi.Target
		for _, n := range p.ControlPlanes() {
			controlPlanes = append(controlPlanes, talosapi.Target{Name: n.Name, Address: n.Address.String()})
		}

		return talosapi.WaitReady(ctx.Context(), controlPlanes, credentials(args.NewInputs), p.ReadyTimeout, say(ctx, name))
	}, nil)

	return g, errors.Join(errs[:]...)
}

// takeOver is the command that records a bootstrap that has happened. The provider gives every bootstrap the same id.
func takeOver(args *pulumi.ResourceHookArgs) string {
	return fmt.Sprintf("pulumi import %s %s machine_bootstrap --protect=false", args.Type, args.Name)
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
