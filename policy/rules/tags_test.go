package rules

import (
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

func tags(of ...string) func(*vm.VirtualMachineArgs) {
	return func(a *vm.VirtualMachineArgs) { a.Tags = pulumi.ToStringArray(of) }
}

var tagCases = []ruleCase{
	{
		rule: "cluster-tags", name: "a tag that is no role",
		program: all(machineOf("vm", tags("talos", "worker", "atlas")),
			machineOf("base", tags(), func(a *vm.VirtualMachineArgs) {
				a.Template = pulumi.Bool(true)
			})),
	},
	{
		rule: "cluster-tags", name: "the stack's cluster", facts: Facts{Cluster: "Atlas"},
		program: machineOf("vm", tags("atlas")),
	},
	{
		rule: "cluster-tags", name: "roles only, or nothing",
		program: all(machineOf("a", tags("Talos", "worker")), machineOf("b", tags())),
		want: []string{
			"a.tags: must name the VM's cluster (given: talos, worker); add the cluster's name",
			"b.tags: must name the VM's cluster (given: none); add the cluster's name",
		},
	},
	{
		rule: "cluster-tags", name: "another cluster than the stack's", facts: Facts{Cluster: "atlas"},
		program: machineOf("vm", tags("enterprise")),
		want:    []string{"vm.tags: must have one of atlas (given: enterprise); add the cluster's name"},
	},
}
