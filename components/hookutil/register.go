package hookutil

import (
	"context"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/terminal"
	"talos-proxmox/components/wait"
)

// Func is what a hook runs.
type Func func(ctx context.Context, args *pulumi.ResourceHookArgs) error

// Register registers a hook of one cluster. Its kind is the end of its name. Errors quote nodes, webhooks and hosts:
// they are printed without what a terminal would obey.
type Register func(hook **pulumi.ResourceHook, kind string, run Func, options ...*pulumi.ResourceHookOptions)

// Registering returns a Register for the cluster with a name. It collects errors of registrations in errs.
func Registering(ctx *pulumi.Context, cluster string, errs *[]error) Register {
	return func(hook **pulumi.ResourceHook, kind string, run Func, options ...*pulumi.ResourceHookOptions) {
		var option *pulumi.ResourceHookOptions
		if len(options) > 0 {
			option = options[0]
		}

		h, err := ctx.RegisterResourceHook(cluster+"-"+kind, func(args *pulumi.ResourceHookArgs) error {
			return terminal.Error(run(Interruptible(ctx.Context()), args))
		}, option)
		*hook, *errs = h, append(*errs, err)
	}
}

// Progress reports progress in the status column of the engine's display. It does not stay in the log.
func Progress(ctx *pulumi.Context, subject string) wait.Reporter {
	return func(message string) {
		// A message that is not shown is no reason to stop.
		_ = ctx.Log.Info(subject+": "+terminal.Plain(message), &pulumi.LogArgs{Ephemeral: true})
	}
}
