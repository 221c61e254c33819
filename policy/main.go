// Command policy is the policy pack: rules for Talos clusters on Proxmox VE, as the Pulumi engine runs them.
//
//	pulumi up --policy-pack policy
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/blang/semver"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/policyx"

	"talos-proxmox/components/spec"
	"talos-proxmox/policy/rules"
)

// version of the pack.
var version = semver.MustParse("0.1.0")

func main() {
	err := endWithEngine(os.Args[1:])
	if err == nil {
		err = policyx.Main(pack)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, "policy:", err)
		os.Exit(1)
	}
}

// endWithEngine ends the process when the engine that started it is gone without having stopped it.
func endWithEngine(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("the engine's address is missing; run this as a policy pack: pulumi up --policy-pack %s",
			os.Args[0])
	}

	return rpcutil.Healthcheck(context.Background(), args[len(args)-1], time.Minute, func() { os.Exit(1) })
}

// pack makes the policies that a stack's configuration asks for.
func pack(ctx *pulumi.Context) (policyx.PolicyPack, error) {
	facts, err := rules.ReadFacts(ctx.Project(), ctx.GetConfig)
	if err != nil {
		return nil, err
	}

	all, err := rules.All(facts)
	if err != nil {
		return nil, err
	}

	policies := make([]policyx.Policy, len(all))
	for i, r := range all {
		policies[i] = policy(r, level(r, facts.Environment))
	}

	return policyx.NewPolicyPack(rules.Namespace, version, policyx.EnforcementLevelMandatory, policies)
}

// level is what the rule has unless the policy configuration of the run says otherwise.
func level(r rules.Rule, e spec.Environment) policyx.EnforcementLevel {
	if r.Mandatory(e) {
		return policyx.EnforcementLevelMandatory
	}

	return policyx.EnforcementLevelAdvisory
}

func policy(r rules.Rule, level policyx.EnforcementLevel) policyx.Policy {
	if r.Stack != nil {
		// Without a schema of its settings, for the SDK does not hand any to it.
		return policyx.NewStackValidationPolicy(r.Name, policyx.StackValidationPolicyArgs{
			Description: r.Must, EnforcementLevel: level,
			ValidateStack: func(_ context.Context, args policyx.StackValidationArgs) error {
				resources := make([]rules.Resource, len(args.Resources))
				for i, found := range args.Resources {
					resources[i] = resource(found)
				}

				report(args.Manager, r.Stack(rules.NewStack(resources)))

				return nil
			},
		})
	}

	return policyx.NewResourceValidationPolicy(r.Name, policyx.ResourceValidationPolicyArgs{
		Description: r.Must, EnforcementLevel: level, ConfigSchema: &policyx.ConfigSchema{Properties: r.Settings},
		ValidateResource: func(_ context.Context, args policyx.ResourceValidationArgs) error {
			found, err := r.Resource(args.Config, resource(args.Resource))
			report(args.Manager, found)

			return err
		},
	})
}

func resource(r policyx.AnalyzerResource) rules.Resource {
	return rules.Resource{
		Type: r.Type, Name: r.Name, URN: r.URN, Properties: r.Properties,
		Parent: r.Parent, Dependencies: r.Dependencies, PropertyDependencies: r.PropertyDependencies,
	}
}

func report(to policyx.PolicyManager, found []rules.Finding) {
	for _, f := range found {
		to.ReportViolation(f.String(), f.URN)
	}
}
