package stacks

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"talos-proxmox/components/plan"
	"talos-proxmox/stacks/config"
)

// TestDocumentedDefaultsAreReal: a key that is set to the default that the schema states changes nothing.
func TestDocumentedDefaultsAreReal(t *testing.T) {
	const common = `"proxmox": {"endpoint": "https://pve:8006", "tokenId": "a@b!c", "hosts": [{"name": "pve"}], "ssh": {"username": "root"}},
		"proxmoxTokenSecret": "x", "sshPrivateKey": "00000000-0000-0000-0000-000000000000", "cluster": {"name": "c", "versions": {"talos": "v1.12.4", "kubernetes": "v1.34.2"}},
		"network": {"cidr": "10.0.0.0/16", "gateway": "10.0.0.1"}, "outputs": {"files": {"write": ["kubeconfig"]}},
		"firewall": {"enabled": true, "open": [{"name": "web", "ports": 443}]},
		"pools": {
			"control": {"role": "controlplane", "count": 1, "addresses": "10.0.0.11"},
			"worker": {"role": "worker", "nodes": {"1": {}}, "extraDisks": [{"sizeGiB": 1, "volume": {"name": "data"}}], "addresses": "10.0.0.21"},
			"gpu": {"role": "worker", "gpus": {"1": {"bdf": "0000:01:00.0"}}, "addresses": "10.0.0.31"}
		}`

	bases := []string{
		`{` + common + `}`,
		`{` + strings.Replace(common, `"nodes"`, `"image": {"iso": {"url": "https://example.com/y.iso"}}, "nodes"`, 1) +
			`, "image": {"source": "iso", "iso": {"url": "https://example.com/x.iso"}}}`,
		`{` + strings.Replace(common, `"name": "c"`,
			`"name": "c", "endpoint": {"mode": "kubeVip", "address": "10.0.0.9", "interface": "eth0"}`, 1) + `}`,
		`{` + common +
			`, "image": {"source": "template", "template": {"control": "1", "worker": "1", "gpuWorker": "1", "allowNonCanonicalName": false}}}`,
		// K3s has no GPU workers.
		`{` + strings.NewReplacer(`"name": "c", "versions": {"talos": "v1.12.4", "kubernetes": "v1.34.2"}`,
			`"name": "c", "kind": "k3s", "versions": {"k3s": "v1.34.2+k3s1"}`,
			`, "volume": {"name": "data"}`, ``, `"addresses": "10.0.0.21"},`, `"addresses": "10.0.0.21"}`,
			`"gpu": {"role": "worker", "gpus": {"1": {"bdf": "0000:01:00.0"}}, "addresses": "10.0.0.31"}`, ``).Replace(common) +
			`, "image": {"template": {"control": "1", "worker": "1"}}, "k3s": {"disable": ["traefik"]}}`,
	}

	planned := func(tree map[string]any) (*plan.Plan, error) {
		values := map[string]string{}

		for key, v := range tree {
			text, ok := v.(string)
			if !ok {
				b, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}

				text = string(b)
			}

			values[key] = text
		}

		c, err := config.Decode(values, Secrets{}, ".")
		if err != nil {
			return nil, err
		}

		return c.Plan()
	}

	read := func(base string) map[string]any {
		var tree map[string]any
		if err := json.Unmarshal([]byte(base), &tree); err != nil {
			t.Fatal(err)
		}

		return tree
	}

	checked := 0

	for key, s := range keysOfSchema(t) {
		if s.Default == nil {
			continue
		}

		// The names that the bases use, by the place.
		path := strings.NewReplacer("pools.<name>.gpus.<name>", "pools.gpu.gpus.1", "pools.<name>.nodes.<name>",
			"pools.worker.nodes.1",
			"pools.<name>", "pools.worker").Replace(key)
		// Extra disks are there in one pool only.
		if strings.Contains(path, "extraDisks[]") && !strings.HasPrefix(path, "pools.worker.extraDisks") {
			continue
		}

		fits := slices.ContainsFunc(bases, func(base string) bool {
			without, err := planned(read(base))
			if err != nil {
				t.Fatal(err)
			}

			tree := read(base)
			set(tree, strings.Split(strings.ReplaceAll(path, "[]", ".0"), "."), *s.Default)

			with, err := planned(tree)

			return err == nil && reflect.DeepEqual(with, without)
		})
		if !fits {
			t.Errorf("%s is not %v by default", key, *s.Default)
		}

		checked++
	}

	if checked < 50 {
		t.Errorf("only %d defaults were checked", checked)
	}
}

// set puts a value at a path of a tree.
func set(tree any, path []string, value any) {
	for _, step := range path[:len(path)-1] {
		switch node := tree.(type) {
		case map[string]any:
			if node[step] == nil {
				node[step] = map[string]any{}
			}

			tree = node[step]
		case []any:
			tree = node[0]
		}
	}

	tree.(map[string]any)[path[len(path)-1]] = value
}
