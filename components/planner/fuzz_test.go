package planner

import (
	"encoding/json"
	"errors"
	"testing"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// FuzzNew: whatever is asked for, there is a plan or there are problems, each with the place and the rule, and the same
// ones again; and a plan can be explained.
func FuzzNew(f *testing.F) {
	seeds := []draft{small(), large(10, 3), {}}

	s := small().on([2]int{8, 32}, [2]int{}, [2]int{4, 8}).with("gpu", spec.Pool{
		Role: spec.RoleWorker, GPUs: map[string]spec.GPUSpec{"2": {BDF: "0000:01:00", NodeSpec: spec.NodeSpec{Host: "b"}}},
		Addresses: "10.9.0.1, 10.9.0.3-9",
	}).with("worker", spec.Pool{
		Role:  spec.RoleWorker,
		Nodes: map[string]spec.NodeSpec{"1": {Address: "10.8.0.1", MAC: "02:00:00:00:00:01"}},
	})
	s.Cluster.Endpoint = spec.Endpoint{Mode: spec.EndpointVIP, Address: "10.0.0.200"}
	s.Defaults = spec.VMSpec{
		ExtraDisks: []spec.ExtraDisk{{SizeGiB: 3, DiskOptions: spec.DiskOptions{Interface: new("virtio1")}}, {SizeGiB: 1}},
		NICs:       []spec.NIC{{}, {VLAN: new(0)}}, Taints: map[string]string{"a": "b:NoSchedule"}, Startup: &spec.Startup{},
	}
	seeds = append(seeds, s)

	s.Image, s.Network = spec.Image{Platform: spec.PlatformMetal, Factory: spec.FactoryImage{Format: spec.FormatDisk}},
		spec.Network{CIDR: "fd00::/64", Gateway: "fd00::1"}
	s.Image.Schematic, s.Tailscale = &spec.Schematic{ID: "x"}, &spec.Tailscale{Pools: []string{"y"}}
	seeds = append(seeds, s)

	for _, seed := range seeds {
		text, err := json.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}

		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text []byte) {
		var s draft

		// What cannot be read stays at its zero value, which is as good an input as any.
		_ = json.Unmarshal(text, &s)

		p, err := Plan(spec.Spec(s))
		if err == nil {
			if len(plan.Explain(spec.Spec(s), p)) == 0 || len(p.ControlPlanes()) == 0 {
				t.Fatal("an empty plan")
			}

			return
		}

		if _, again := Plan(spec.Spec(s)); again == nil || again.Error() != err.Error() {
			t.Fatalf("the same input has other problems:\n%v\n%v", err, again)
		}

		var problems spec.Problems
		if !errors.As(err, &problems) || p != nil {
			t.Fatalf("a plan with an error, or an error of another kind: %v", err)
		}

		for _, problem := range problems {
			if problem.Path == "" || problem.Rule == "" {
				t.Fatalf("an empty problem among %v", problems)
			}
		}
	})
}
