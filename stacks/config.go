package stacks

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/stacks/config"
)

// Config is one stack's configuration, as package config reads it. A program may also write it in Go.
type Config = config.Config

// Secrets are secrets that are not known when the program begins.
type Secrets = config.Secrets

// Load reads the configuration of the stack that the program runs for: config.Load.
func Load(ctx *pulumi.Context, root string) (Config, error) { return config.Load(ctx, root) }

// LoadFile reads the configuration of a stack file without Pulumi: config.LoadFile.
func LoadFile(path string) (Config, error) { return config.LoadFile(path) }
