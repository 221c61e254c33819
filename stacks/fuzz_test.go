package stacks

import (
	"encoding/json"
	"reflect"
	"testing"

	"talos-proxmox/stacks/contract"
)

// FuzzReadContract: whatever is handed over as a contract, it is one that can be written and read again, or an
// error.
func FuzzReadContract(f *testing.F) {
	for _, text := range []string{
		`{"schemaVersion": 1, "kind": "talos", "cluster": "c", "versions": {"talos": "v1.12.4", "kubernetes": "v1.34.2"},
		"talos_control_plane_endpoints": ["10.0.0.11"], "talos_node_ip_map": {"c-control-1": "10.0.0.11"}, "talos_node_vmid_map": {"c-control-1": 401},
		"talos_bootstrap_nodes": {"control_plane": [{"name": "c-control-1", "vmid": 401, "ip": "10.0.0.11", "node": "pve"}], "workers": [], "gpu_workers": []}}`,
		`{"talos_bootstrap_contract": {"schemaVersion": 2}}`, `{"talos_bootstrap_contract": null}`,
		`{"schemaVersion": 1e400}`, `[]`, `null`, `{"schemaVersion": "1"}`,
	} {
		f.Add([]byte(text))
	}

	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := contract.Read(text)
		if err != nil {
			return
		}

		written, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}

		again, err := contract.Read(written)
		if err != nil {
			t.Fatalf("what was read is not taken again: %v\n%s", err, written)
		}

		if !reflect.DeepEqual(c, again) {
			t.Fatalf("%+v became %+v", c, again)
		}
	})
}
