package stacks

import (
	"cmp"
	"errors"
	"fmt"
	"path"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/stacks/files"
)

// checkFiles refuses to write files into a directory with those of another stack or cluster, below root.
func checkFiles(ctx *pulumi.Context, p *plan.Plan, root string) error {
	if p.Outputs.Files == nil {
		return nil
	}

	return filesError(p.Outputs.Files.Dir, files.Check(cmp.Or(root, "."), p.Outputs.Files.Dir, filesOwner(ctx, p)))
}

// filesOwner is whose the files are that a run writes.
func filesOwner(ctx *pulumi.Context, p *plan.Plan) files.Owner {
	return files.Owner{
		Organization: ctx.Organization(), Project: ctx.Project(), Stack: ctx.Stack(), Cluster: p.Cluster,
	}
}

// filesError says what to change about a directory that is not known to be the owner's.
func filesError(dir string, err error) error {
	if reason, is := errors.AsType[files.NotOwnedError](err); is {
		return spec.Problem{
			Path: "outputs.files.dir", Rule: reason.Error(), Value: dir,
			Remedy: "name another directory or, if the files are of this stack under a former name, or of one that is " +
				"gone, delete " + path.Join(dir, files.Marker),
		}
	}

	if err != nil {
		return fmt.Errorf("outputs.files: %w", err)
	}

	return nil
}
