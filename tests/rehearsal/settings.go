package rehearsal

import (
	"context"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/config"

	stackconfig "talos-proxmox/stacks/config"
)

// Set changes one key of a stack's configuration; the path is below the project's namespace. It writes what the CLI
// would, which need not run for it.
func Set(ctx context.Context, s auto.Stack, path, value string) error {
	return edit(ctx, s, func(c config.Map) error {
		return c.Set(config.MustMakeKey(stackconfig.Project, path), config.NewValue(value), true)
	})
}

// Unset takes one key out of a stack's configuration, likewise.
func Unset(ctx context.Context, s auto.Stack, path string) error {
	return edit(ctx, s, func(c config.Map) error { return c.Remove(config.MustMakeKey(stackconfig.Project, path), true) })
}

func edit(ctx context.Context, s auto.Stack, change func(config.Map) error) error {
	settings, err := s.Workspace().StackSettings(ctx, s.Name())
	if err != nil {
		return err
	}

	if err := change(settings.Config); err != nil {
		return err
	}

	return s.Workspace().SaveStackSettings(ctx, s.Name(), settings)
}
