// Command talos-proxmox is the Pulumi program: one stack is one Talos Linux Kubernetes cluster on Proxmox VE.
package main

import (
	"context"
	"os"
	"os/signal"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/stacks"
)

//go:generate go run ./stacks/generate

func main() {
	// When the operator presses Ctrl-C, the language host interrupts the program, and kills it after five seconds.
	interrupt, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	pulumi.Run(func(ctx *pulumi.Context) error { return stacks.Program(hookutil.WithInterrupt(ctx, interrupt)) })
}
