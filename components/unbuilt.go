package components

import (
	"strconv"

	"talos-proxmox/components/plan"
)

// asks is a part of the configuration that can be planned and not be carried out yet. value is what was asked for, empty
// when nothing was. Whoever builds a part deletes its line.
type asks[T any] struct {
	path  string
	value func(T) string
	// instead is what to do; "leave it out" when empty.
	instead string
}

var unbuiltOfCluster = []asks[*plan.Plan]{
	{"cluster.bootstrap", func(p *plan.Plan) string { return unless(p.Bootstrap, plan.ByPulumi) }, "use pulumi"},
	{"cluster.endpoint.mode", func(p *plan.Plan) string { return unless(p.EndpointMode, plan.FirstControlPlane) }, "use firstControlPlane"},
	{"cluster.cni.name", func(p *plan.Plan) string { return unless(p.CNI, plan.Flannel, plan.NoCNI) }, "use flannel or none"},
	{"image.source", func(p *plan.Plan) string { return unless(p.Source, plan.Template) }, "use template"},
	{"image.platform", func(p *plan.Plan) string { return unless(p.Platform, plan.Metal) }, "use metal"},
	{"network.addressing", func(p *plan.Plan) string { return unless(p.Addressing, plan.Reserved) }, "use reserved"},
	{"tailscale", func(p *plan.Plan) string { return when(p.Tailscale != nil, "set") }, ""},
	{"firewall.enabled", func(p *plan.Plan) string { return when(p.Firewall, "true") }, "set it to false"},
	{"machineSecrets", func(p *plan.Plan) string { return when(p.TakeOver, "set") }, ""},
	{"lifecycle.bootstrapWaitsForWorkers", func(p *plan.Plan) string { return when(p.BootstrapWaitsForWorkers, "true") }, ""},
	{"outputs.files", func(p *plan.Plan) string { return when(p.Outputs.Files != nil, "set") }, ""},
	{"outputs.legacy", func(p *plan.Plan) string { return when(p.Outputs.Legacy, "true") }, ""},
}

// unbuiltOfNode are keys of the shape; "pools.<pool>." goes before them.
var unbuiltOfNode = []asks[plan.Node]{
	{"gpus", func(n plan.Node) string { return when(n.GPU != nil, "set") }, ""},
	{"numa", func(n plan.Node) string { return when(n.NUMA, "true") }, ""},
	{"ballooning", func(n plan.Node) string { return when(n.Ballooning, "true") }, ""},
	{"machine", func(n plan.Node) string { return when(n.Template != "", n.Machine) }, ""},
	{"firmware", func(n plan.Node) string { return when(n.Template != "", n.Firmware) }, ""},
	{"scsiController", func(n plan.Node) string { return when(n.Template != "", n.SCSIController) }, ""},
	{"tpm", func(n plan.Node) string { return when(n.TPM, "true") }, ""},
	{"serial", func(n plan.Node) string { return when(n.Serial, "true") }, ""},
	{"protection", func(n plan.Node) string { return when(n.Protection, "true") }, ""},
	{"startup", func(n plan.Node) string { return when(n.Startup != nil, "set") }, ""},
	{"resourcePool", func(n plan.Node) string { return n.ResourcePool }, ""},
	{"haGroup", func(n plan.Node) string { return n.HAGroup }, ""},
	{"extraDisks", func(n plan.Node) string { return when(len(n.Disks) > 1, strconv.Itoa(len(n.Disks)-1)) }, ""},
	{"disk.cache", func(n plan.Node) string { return unless(n.Disks[0].Cache, "none") }, ""},
	{"disk.aio", func(n plan.Node) string { return unless(n.Disks[0].AIO, "io_uring") }, ""},
	{"disk.discard", func(n plan.Node) string { return when(!n.Disks[0].Discard, "false") }, ""},
	{"disk.ssd", func(n plan.Node) string { return when(n.Disks[0].SSD, "true") }, ""},
	{"disk.iothread", func(n plan.Node) string { return when(n.Disks[0].IOThread, "true") }, ""},
	{"disk.backup", func(n plan.Node) string { return when(!n.Disks[0].Backup, "false") }, ""},
	{"disk.replicate", func(n plan.Node) string { return when(!n.Disks[0].Replicate, "false") }, ""},
	{"nics", func(n plan.Node) string { return when(len(n.NICs) > 1, strconv.Itoa(len(n.NICs))) }, ""},
	{"nics[0].mtu", func(n plan.Node) string { return when(n.NICs[0].MTU != 0, strconv.Itoa(n.NICs[0].MTU)) }, ""},
	{"nics[0].firewall", func(n plan.Node) string { return when(n.NICs[0].Firewall, "true") }, ""},
}

// unbuilt finds what a plan asks for that these components cannot carry out yet. It is never passed over in silence.
func unbuilt(p *plan.Plan) plan.Problems {
	var problems plan.Problems

	refuse := func(path, value, instead string) {
		if instead == "" {
			instead = "leave it out"
		}

		if value != "" {
			problems.Add(path, "is not built yet: it can be planned, but not carried out", value, instead)
		}
	}

	for _, a := range unbuiltOfCluster {
		refuse(a.path, a.value(p), a.instead)
	}

	for _, pool := range p.Pools {
		for _, n := range pool.Nodes {
			for _, a := range unbuiltOfNode {
				refuse("pools."+pool.Name+"."+a.path, a.value(n), a.instead)
			}
		}
	}

	return problems.Unique()
}

func unless[T ~string](value T, built ...T) string {
	for _, b := range built {
		if value == b {
			return ""
		}
	}

	return string(value)
}

func when(asked bool, value string) string {
	if asked {
		return value
	}

	return ""
}
