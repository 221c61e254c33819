package rules

import (
	"sync"
	"testing"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"
)

// registered runs a program with the real SDKs and returns what it registers, as the rules would see it. The names of
// types and properties in the cases are thus those of the SDKs, and a rule that looks for others finds nothing.
func registered(t *testing.T, program pulumi.RunFunc) []Resource {
	t.Helper()

	r := &recorder{}
	require.NoError(t, pulumi.RunErr(program, pulumi.WithMocks("project", "dev", r)))

	return r.resources
}

type recorder struct {
	mu        sync.Mutex
	resources []Resource
}

func (r *recorder) NewResource(args pulumi.MockResourceArgs) (string, resource.PropertyMap, error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	rpc := args.RegisterRPC

	dependencies := map[string][]string{}
	for key, d := range rpc.GetPropertyDependencies() {
		dependencies[key] = d.GetUrns()
	}

	r.resources = append(r.resources, Resource{
		Type: args.TypeToken, Name: args.Name, URN: urn(rpc.GetParent(), args.TypeToken, args.Name),
		Properties: resource.FromResourcePropertyMap(args.Inputs),
		Parent:     rpc.GetParent(), Dependencies: rpc.GetDependencies(), PropertyDependencies: dependencies,
	})

	return args.Name + "-id", args.Inputs, nil
}

// urn is the one that the mocks give.
func urn(parent, token, name string) string {
	var above tokens.Type
	if p := resource.URN(parent); p != "" && p.QualifiedType() != resource.RootStackType {
		above = p.QualifiedType()
	}

	return string(resource.NewURN("dev", "project", above, tokens.Type(token), name))
}

func (r *recorder) Call(args pulumi.MockCallArgs) (resource.PropertyMap, error) {
	return args.Args, nil
}

// machineOf is a program with one VM that no rule has anything against, changed.
func machineOf(name string, changes ...func(*vm.VirtualMachineArgs)) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error {
		_, err := newMachine(ctx, name, changes)

		return err
	}
}

func newMachine(ctx *pulumi.Context, name string, changes []func(*vm.VirtualMachineArgs), opts ...pulumi.ResourceOption,
) (*vm.VirtualMachine, error) {
	args := &vm.VirtualMachineArgs{
		NodeName:   pulumi.String("pve1"),
		Tags:       pulumi.ToStringArray([]string{"controlplane", "atlas", "talos"}),
		Protection: pulumi.Bool(true),
		Cpu:        vm.VirtualMachineCpuArgs{Cores: pulumi.Int(4)},
		Memory:     vm.VirtualMachineMemoryArgs{Dedicated: pulumi.Int(8192)},
		Disks: vm.VirtualMachineDiskArray{vm.VirtualMachineDiskArgs{
			Interface: pulumi.String("scsi0"), DatastoreId: pulumi.String("local-lvm"), Discard: pulumi.String("on"),
		}},
		NetworkDevices: vm.VirtualMachineNetworkDeviceArray{vm.VirtualMachineNetworkDeviceArgs{Firewall: pulumi.Bool(true)}},
	}
	for _, change := range changes {
		change(args)
	}

	return vm.NewVirtualMachine(ctx, name, args, opts...)
}

// all runs programs one after the other.
func all(programs ...pulumi.RunFunc) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error {
		for _, p := range programs {
			if err := p(ctx); err != nil {
				return err
			}
		}

		return nil
	}
}
