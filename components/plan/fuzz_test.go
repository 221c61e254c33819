package plan

import (
	"encoding/json"
	"errors"
	"testing"
)

// FuzzNew: whatever is asked for, there is a plan or there are problems, each with the place and the rule; and a plan can be
// explained.
func FuzzNew(f *testing.F) {
	seeds := []Spec{small(), large(10, 3), {}}

	s := small().on([2]int{8, 32}, [2]int{}, [2]int{4, 8}).with("gpu", Pool{
		Role: Worker, GPUs: map[string]GPUSpec{"2": {BDF: "0000:01:00", NodeSpec: NodeSpec{Host: "b"}}}, Addresses: "10.9.0.1, 10.9.0.3-9",
	}).with("worker", Pool{Role: Worker, Nodes: map[string]NodeSpec{"1": {Address: "10.8.0.1", MAC: "02:00:00:00:00:01"}}})
	s.Cluster.Endpoint = Endpoint{Mode: VIP, Address: "10.0.0.200"}
	s.Defaults = Shape{
		ExtraDisks: []ExtraDisk{{SizeGiB: 3, DiskOptions: DiskOptions{Interface: new("virtio1")}}, {SizeGiB: 1}},
		NICs:       []NIC{{}, {VLAN: new(0)}}, Taints: map[string]string{"a": "b:NoSchedule"}, Startup: &Startup{},
	}
	seeds = append(seeds, s)

	s.Image, s.Network = Image{Platform: Metal, Factory: FactoryImage{Format: FormatDisk}}, Network{CIDR: "fd00::/64", Gateway: "fd00::1"}
	s.Image.Schematic, s.Tailscale = &Schematic{ID: "x"}, &Tailscale{Pools: []string{"y"}}
	seeds = append(seeds, s)

	for _, seed := range seeds {
		text, err := json.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}

		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text []byte) {
		var s Spec

		// What cannot be read stays at its zero value, which is as good an input as any.
		_ = json.Unmarshal(text, &s) //nolint:errcheck // see above

		p, err := New(s)
		if err == nil {
			if len(Explain(s, p)) == 0 || len(p.ControlPlanes()) == 0 {
				t.Fatal("an empty plan")
			}

			return
		}

		var problems Problems
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
