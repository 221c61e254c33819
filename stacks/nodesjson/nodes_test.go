package nodesjson

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks/config"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/tests/golden"
)

func read(t *testing.T, name string) string {
	t.Helper()

	text, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)

	return string(text)
}

// TestOf writes the nodes.json of a cluster, and reads it again.
func TestOf(t *testing.T) {
	c := &contract.Contract{Inventory: contract.Inventory{
		ControlPlaneEndpoints: []string{"10.0.0.11"},
		BootstrapNodes: contract.BootstrapNodes{
			ControlPlane: []contract.BootstrapNode{{Name: "talos-cp-01", IP: new("10.0.0.11")}, {Name: "talos-cp-02"}},
			Workers:      []contract.BootstrapNode{{Name: "talos-worker-01", IP: new("10.0.0.21")}},
			GPUWorkers:   []contract.BootstrapNode{{Name: "talos-gpu-01", IP: new("10.0.0.31")}},
		},
	}}

	want := File{
		ControlPlaneVIP: "100.64.0.10", LoginServer: "https://agentydragon.com:8080",
		ControlPlanes: []Node{{Name: "talos-cp-01", DHCP: "10.0.0.11"}, {Name: "talos-cp-02"}},
		Workers:       []Node{{Name: "talos-worker-01", DHCP: "10.0.0.21"}, {Name: "talos-gpu-01", DHCP: "10.0.0.31"}},
	}
	assert.Equal(t, want, Of(c, "100.64.0.10", "https://agentydragon.com:8080"))

	text, err := want.Encode()
	require.NoError(t, err)

	again, err := Read(text)
	require.NoError(t, err)
	assert.Equal(t, &want, again)

	assert.Equal(t, "10.0.0.11", Of(c, "", "").ControlPlaneVIP, "the first control plane stands for all")
}

// TestApply brings addresses into a stack file: of a pool that counts its nodes, of one that names them, and of GPU
// workers.
func TestApply(t *testing.T) {
	f, err := Read([]byte(read(t, "nodes.json")))
	require.NoError(t, err)

	r, err := f.Apply([]byte(read(t, "Pulumi.home.yaml")), "testdata")
	require.NoError(t, err)

	golden.Check(t, filepath.Join("testdata", "applied.yaml"), string(r.Text))
	golden.Check(t, filepath.Join("testdata", "pools.yaml"), r.Pools)
	assert.Equal(t, []string{
		"talos-cp-02 is planned to have the address 10.0.232.12 later, and has 10.0.232.110 now, which was used",
		"control_plane_vip tailscale-vip-placeholder is not written: set it in cluster.endpoint, with the mode that it has",
		"headscale_login_server https://agentydragon.com:8080 is not written: set it in tailscale.loginServer",
	}, r.Notes)

	config, err := config.LoadText(r.Text, "testdata")
	require.NoError(t, err)

	p, err := config.Plan()
	require.NoError(t, err)

	addresses := map[string]string{}
	for _, n := range p.Nodes() {
		addresses[n.Name] = n.Address.String()
	}

	assert.Equal(t, map[string]string{
		"talos-cp-01": "10.0.232.93", "talos-cp-02": "10.0.232.110",
		"talos-worker-01": "10.0.232.109", "talos-worker-02": "10.0.232.22", "talos-gpu-01": "10.0.232.41",
	}, addresses)

	// Once they are written, nothing changes.
	again, err := f.Apply(r.Text, "testdata")
	require.NoError(t, err)
	assert.Equal(t, string(r.Text), string(again.Text))
}

// TestApplyRefuses holds the whole message for what does not fit.
func TestApplyRefuses(t *testing.T) {
	for name, c := range map[string]struct{ stack, file, want []string }{
		"another addressing": {
			[]string{"addressing: reported", "addressing: reserved"},
			nil,
			[]string{"network.addressing must be reported for the addresses of nodes.json (given: reserved); set it, or leave " +
				"the addresses to what it says"},
		},
		"nodes of other names and roles": {
			nil,
			[]string{"talos-cp-02", "talos-worker-02", "talos-worker-02", "talos-cp-02"},
			[]string{
				"nodes.json: talos-worker-02 is no controlplane of the stack, which has talos-cp-02; correct the name, or " +
					"pools.<name>.names",
				"nodes.json: talos-cp-02 is no worker of the stack, which has talos-gpu-01, talos-worker-02; correct the name, " +
					"or pools.<name>.names",
			},
		},
		"a node of a range left out": {
			[]string{"count: 2 # not yet three", "count: 3\n      addresses: 10.0.232.90-99"},
			nil,
			[]string{"pools.control.addresses: is replaced by the addresses in nodes.json, but talos-cp-03 is not in it; add " +
				"it there, or set pools.control.nodes instead of a range"},
		},
		"an address outside": {nil, []string{"10.0.232.93", "192.168.1.93"}, []string{
			"the configuration has 1 problem:",
			"  - pools.control.nodes.1.address: must lie inside network.cidr 10.0.232.0/24 (given: 192.168.1.93); a free " +
				"address is 10.0.232.1",
		}},
		"a shared block": {
			[]string{
				`nodes: { "1": { memoryMiB: 16384 }, "2": {} }`,
				`nodes: { "1": &a { memoryMiB: 16384 }, "2": *a }`,
			},
			nil,
			[]string{"pools.worker: is shared with another part of the file, or encrypted: write it out"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			stack, file := read(t, "Pulumi.home.yaml"), read(t, "nodes.json")

			changed := strings.NewReplacer(c.stack...).Replace(stack)
			f, err := Read([]byte(strings.NewReplacer(c.file...).Replace(file)))
			require.NoError(t, err)

			_, err = f.Apply([]byte(changed), "testdata")
			assert.EqualError(t, err, strings.Join(c.want, "\n"))
		})
	}
}

// TestReadRefuses holds the whole message for what is no nodes.json.
func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		``:              "nodes.json: EOF",
		`{"nodes": []}`: `nodes.json: json: unknown field "nodes"`,
		`{} {}`:         "nodes.json: there is more after the object",
		`{"controlplanes": [{"name": "a", "dhcp": "10.0.0.1"}, {"dhcp": "ten"}], "workers": [{"name": "a", "dhcp": "10.0.0.1", "address": "10.0.0.1"}]}`: "nodes.json: controlplanes[1].name: is required\n" +
			"nodes.json: controlplanes[1].dhcp: must be an address (given: ten)\n" +
			"nodes.json: workers[0].name: is at nodes.json: controlplanes[0] too (given: a)\n" +
			"nodes.json: workers[0].dhcp: is at nodes.json: controlplanes[0] too (given: 10.0.0.1)",
	} {
		_, err := Read([]byte(text))
		assert.EqualError(t, err, want)
	}
}
