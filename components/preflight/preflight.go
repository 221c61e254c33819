// Package preflight checks a plan against Proxmox VE and the network before anything is registered. It reads only. It
// has the order of all checks and the report, and checks itself what new nodes are made from: templates, images,
// extensions, user data, addresses. What hosts, VMs and credentials must be like is checked in packages of these names.
package preflight

import (
	"context"
	"errors"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// Unchecked says what is not checked without Proxmox VE.
const Unchecked = "credentials and privileges, hosts, their memory and clocks, datastores, bridges, VMIDs, " +
	"templates, images, extensions, GPUs and addresses were not checked"

// Run checks a plan against Talos, Proxmox VE and the network. It logs warnings and returns all problems in one error
// (spec.Problems). A preview continues without Proxmox VE, with a warning and a nil report.
func Run(ctx *pulumi.Context, p *plan.Plan, proxmox checks.Proxmox, network Network) (*Report, error) {
	warnings, refused := machineconfig.Check(p)
	c := newChecker(p, proxmox, network)
	c.permissions.Preview = ctx.DryRun()
	stopped := c.run(hookutil.Interruptible(ctx.Context()))
	// Nodes of one pool share a template: what is wrong with it is said once.
	found := c.Problems.Unique().Err()

	for _, w := range slices.Concat(p.Warnings, warnings, c.Warnings.Unique()) {
		if err := ctx.Log.Warn(w.String(), nil); err != nil {
			return nil, err
		}
	}

	if (errors.Is(stopped, proxmoxapi.ErrUnreachable) || errors.Is(stopped, proxmoxapi.ErrOffline)) && ctx.DryRun() {
		return nil, errors.Join(join(refused, found), ctx.Log.Warn(stopped.Error()+"; "+Unchecked, nil))
	}

	return c.report(), join(refused, found, explain(stopped))
}

// join makes one list of the problems of several errors.
func join(errs ...error) error {
	var (
		all    spec.Problems
		others []error
	)

	for _, err := range errs {
		var problems spec.Problems
		if errors.As(err, &problems) {
			all = append(all, problems...)
		} else {
			others = append(others, err)
		}
	}

	return errors.Join(append(others, all.Err())...)
}

// run runs all checks, and keeps what they find in Problems and Warnings. The error says why they ended early, for
// example that Proxmox VE did not answer; what was found before stays.
func (c *checker) run(ctx context.Context) error {
	if err := c.Read(ctx); err != nil {
		return err
	}

	c.vms.CheckVMIDs()

	var refused []error

	for _, check := range []func(context.Context) error{
		c.checkMinimums, c.hosts.CheckVersion, c.hosts.CheckUnreachableHosts, c.hosts.CheckHosts,
		c.vms.CheckIdentities, c.vms.CheckIncomplete, c.checkApplyMode, c.vms.CheckStates, c.checkTemplates,
		c.permissions.Check, c.checkImages, c.checkExtensions, c.hosts.CheckGPUs, c.hosts.CheckSharedStorage, c.checkSnippets,
		c.checkUserData, c.hosts.CheckSSHUser, c.hosts.CheckHostKeys, c.hosts.CheckFirewall, c.vms.CheckResourcePools,
		c.vms.CheckHA, c.vms.CheckISODrives, c.vms.CheckTags, c.vms.CheckRoles, c.vms.CheckRemovals,
		c.checkAddressConflicts, c.checkEndpointName, c.checkOwnAccess, c.vms.CheckReportedAddresses,
		c.vms.CheckLeftDisks, c.checkReplacements,
	} {
		switch err := check(ctx); {
		case errors.Is(err, proxmoxapi.ErrRefused):
			refused = append(refused, err)
		case err != nil:
			return err
		}
	}

	c.noteRefused(refused)
	c.vms.WarnPlacementDrift()

	return nil
}
