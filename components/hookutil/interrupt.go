package hookutil

import (
	"context"
	"errors"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

type interruptKey struct{}

var errInterrupted = errors.New("the operator interrupted the update")

// WithInterrupt returns a context whose waits end when interrupt ends. Without it, hooks do not learn that the operator
// pressed Ctrl-C: the context of pulumi.Run is never canceled.
//
//nolint:revive // Pulumi's context goes first
func WithInterrupt(ctx *pulumi.Context, interrupt context.Context) *pulumi.Context {
	return ctx.WithValue(interruptKey{}, interrupt)
}

// Deleting is the context of a hook that runs before or after a deletion. What left the plan, and what was replaced, is
// deleted after the program has ended, and the context of a program that runs in process with it. Only the operator
// ends it.
func Deleting(ctx context.Context) context.Context { return Interruptible(context.WithoutCancel(ctx)) }

// Interruptible ends with ctx, or when the operator interrupts the program.
func Interruptible(ctx context.Context) context.Context {
	interrupt, there := ctx.Value(interruptKey{}).(context.Context)
	if !there {
		return ctx
	}

	ctx, cancel := context.WithCancelCause(ctx)
	context.AfterFunc(interrupt, func() { cancel(errInterrupted) })

	return ctx
}
