package migrate

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks/config"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/tests/golden"
)

func file(t *testing.T, name string) string {
	t.Helper()

	text, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)

	return string(text)
}

// nodes are the nodes of a stack file, as a plan has them.
func nodes(t *testing.T, text []byte) []string {
	t.Helper()

	config, err := config.LoadText(text, ".")
	require.NoError(t, err)

	p, err := config.Plan()
	require.NoError(t, err)

	var found []string

	for _, n := range p.Nodes() {
		gpu := ""
		if n.GPU != nil {
			gpu = n.GPU.BDF
		}

		found = append(found, strings.TrimSpace(strings.Join([]string{n.Name, n.Template, n.Host, gpu}, " ")))
	}

	return found
}

// TestEveryVariable turns a file with the variables of the environment and of the module into a stack.
func TestEveryVariable(t *testing.T) {
	text := file(t, "terraform.tfvars")

	r, err := TFVars("/repo/terraform/environments/k3s-dev/terraform.tfvars", []byte(text),
		Options{CIDR: "192.168.10.0/24"})
	require.NoError(t, err)
	golden.Check(t, filepath.Join("testdata", "Pulumi.k3s-dev.yaml"), string(r.File))

	assert.Equal(t, []string{
		"k3s-dev-control-1 talos-v1.12.4-base pve",
		"k3s-dev-gpu-1 9000 pve 0000:01:00.0",
		"k3s-dev-gpu-2 9000 pve 0000:02:00.0",
		"k3s-dev-worker-1 talos-v1.12.4-base pve",
		"k3s-dev-worker-2 talos-v1.12.4-base pve",
	}, nodes(t, r.File))

	assert.Equal(t, []string{"pulumi config set --secret proxmoxTokenSecret"}, r.Secrets)
	assert.Equal(t, []string{
		"the cluster is called k3s-dev, after the directory; --cluster says otherwise",
		"ssh_password (line 30) is an unknown variable, and is not converted",
		"VMIDs begin at 401, 501 and 601, and addresses are not known; --outputs takes them from the existing cluster",
		"the nodes stay with the tool that configures them now; with cluster.bootstrap pulumi, this program " +
			"configures them",
	}, r.Notes)

	said := string(r.File) + strings.Join(r.Notes, "") + strings.Join(r.Secrets, "")
	for _, secret := range []string{"0d8ad0f5", "hunter2"} {
		assert.NotContains(t, said, secret)
	}

	// Each variable that is known is in the test's files.
	all := text + file(t, "vm.tfvars")
	for _, v := range Variables() {
		assert.Regexp(t, `(?m)^`+v.Name+` +=`, all)
	}
}

// TestWhatStands takes over VMIDs and addresses.
func TestWhatStands(t *testing.T) {
	r, err := TFVars("terraform.tfvars", []byte(file(t, "terraform.tfvars")), Options{
		Cluster: "k3s-dev", CIDR: "192.168.10.0/24", Outputs: []byte(file(t, "outputs.json")),
	})
	require.NoError(t, err)
	golden.Check(t, filepath.Join("testdata", "Pulumi.standing.yaml"), string(r.File))
	assert.Equal(t, []string{
		"ssh_password (line 30) is an unknown variable, and is not converted",
		"the nodes stay with the tool that configures them now; with cluster.bootstrap pulumi, this program " +
			"configures them",
	}, r.Notes)

	// Without the variables that have defaults, the outputs tell.
	shorter := regexp.MustCompile(`(?ms)^# Topology.*^]`).ReplaceAllString(file(t, "terraform.tfvars"), "")
	short, err := TFVars("terraform.tfvars", []byte(shorter),
		Options{Cluster: "k3s-dev", CIDR: "192.168.10.0/24", Outputs: []byte(file(t, "outputs.json"))})
	require.NoError(t, err)
	assert.Equal(t, nodes(t, r.File), nodes(t, short.File))

	// One output by itself says the same.
	contract := `{"talos_bootstrap_nodes": ` +
		strings.TrimSuffix(strings.SplitN(file(t, "outputs.json"), `"value": `, 3)[2], "  }\n}\n") + `}`
	again, err := TFVars("terraform.tfvars", []byte(file(t, "terraform.tfvars")), Options{
		Cluster: "k3s-dev", CIDR: "192.168.10.0/24", Outputs: []byte(contract),
	})
	require.NoError(t, err)
	assert.Equal(t, string(r.File), string(again.File))
}

// TestOneVM takes the variables of the module for one VM, from HCL and from JSON.
func TestOneVM(t *testing.T) {
	r, err := TFVars("vm.tfvars", []byte(file(t, "vm.tfvars")), Options{CIDR: "192.168.10.0/24"})
	require.NoError(t, err)
	golden.Check(t, filepath.Join("testdata", "Pulumi.vm.yaml"), string(r.File))
	assert.Contains(t, r.Notes, "proxmox_api_token_secret is not in the file, but is required")

	again, err := TFVars("vm.tfvars.json", []byte(`{
		"proxmox_api_url": "https://pve.lan:8006", "proxmox_api_token_id": "terraform@pve!k3s-dev", "name": "k3s-dev-control-1",
		"node": "pve", "template": "talos-v1.12.4-base", "cores": 8, "gpu_pci_bdf": "0000:01:00.0", "disk_gb": null}`), Options{CIDR: "192.168.10.0/24"})
	require.NoError(t, err)
	assert.Equal(t, strings.Replace(string(r.File), "vm.tfvars", "vm.tfvars.json", 1), string(again.File))
}

// TestRefused holds the whole message for what makes no stack.
func TestRefused(t *testing.T) {
	const start = "proxmox_api_url = \"https://pve.lan:8006\"\nproxmox_api_token_id = \"terraform@pve!k3s-dev\"\nnode = " +
		"\"pve\"\n"

	cidr := Options{Cluster: "c", CIDR: "192.168.10.0/24"}

	for name, c := range map[string]struct {
		text string
		o    Options
		want string
	}{
		"nothing": {
			"",
			Options{},
			"the network of the nodes is in none of the variables: set it with --cidr, for example 192.168.10.0/24\n" +
				"proxmox_api_url is required, but is not among the variables\nproxmox_api_token_id is required, " +
				"but is not among the variables\n" +
				"node is required, but is not among the variables\ncontrol_plane_template is required, but is not " +
				"among the variables\n" +
				"the version of Talos does not follow from the names of the templates: set it with --talos, for example v1.12.4",
		},
		"no HCL": {"node = \n", cidr, "the variables cannot be read:\nx.tfvars:1: Invalid expression: Expected the " +
			"start of an expression, but found an invalid expression token."},
		"an expression": {
			"proxmox_api_token_secret = var.x\n", cidr,
			"the variables cannot be read:\nx.tfvars:1: Variables not allowed: Variables may not be used here.",
		},
		"another type": {"worker_count = \"many\"\ncores = 1.5\n", cidr, "the variables cannot be read:\nx.tfvars:1: " +
			"Wrong type: worker_count: a number is required\nx.tfvars:2: Wrong type: cores: a whole number is required"},
		"no template": {
			start +
				"control_plane_template = \"talos-v1.12.4-base\"\nworker_count = 1\ngpu_worker_pci_bdfs = [\"0000:01:00.0\"]\n",
			cidr, "worker_template is required, but is not among the variables\ngpu_worker_template is required, " +
				"but is not among the variables",
		},
		"no version": {
			start + "template = \"golden\"\n", cidr,
			"the version of Talos does not follow from the names of the templates: set it with --talos, for example v1.12.4",
		},
		"no such stack": {start + "template = \"talos-v1.12.4-base\"\ncores = 0\n", cidr, "the variables do not make a " +
			"stack: the configuration has 1 problem:\n  - defaults.cores: must be at least 1 (given: 0); raise it"},
		"other outputs": {
			start + "template = \"talos-v1.12.4-base\"\nworker_count = 3\n",
			Options{Cluster: "k3s-dev", CIDR: "192.168.10.0/24", Outputs: []byte(file(t, "outputs.json"))},
			"the outputs have 2 nodes for pool worker, the variables 3: apply the environment first, or leave the outputs out",
		},
		"other GPUs": {
			start +
				"template = \"talos-v1.12.4-base\"\ngpu_worker_pci_bdfs = [\"0000:0a:00.0\", \"0000:02:00.0\"]\n",
			Options{Cluster: "k3s-dev", CIDR: "192.168.10.0/24", Outputs: []byte(file(t, "outputs.json"))},
			"k3s-dev-gpu-worker-01 has another GPU in the outputs than 0000:0a:00.0: give the outputs that belong to the " +
				"variables",
		},
		"no outputs": {
			start,
			Options{Outputs: []byte("{}")},
			"the outputs have no nodes: talos_bootstrap_nodes is not among them, or empty",
		},
		"broken outputs": {start, Options{Outputs: []byte("[]")}, "the outputs are not what terraform output -json prints: " +
			"json: cannot unmarshal array into Go value of type migrate.environment"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := TFVars("x.tfvars", []byte(c.text), c.o)
			assert.EqualError(t, err, c.want)
		})
	}
}

// TestPattern: nodes keep their names where a pattern makes them.
func TestPattern(t *testing.T) {
	named := func(names ...string) (nodes []contract.BootstrapNode) {
		for _, n := range names {
			nodes = append(nodes, contract.BootstrapNode{Name: n})
		}

		return nodes
	}

	for _, c := range []struct {
		names []string
		want  string
		ok    bool
	}{
		{[]string{"c-worker-1", "c-worker-2"}, "", true},
		{[]string{"talos-worker-01", "talos-worker-02"}, "talos-worker-{nn}", true},
		{[]string{"k8s-1-w"}, "k8s-{n}-w", true},
		{[]string{"c-worker-2", "c-worker-3"}, "c-worker-{n}", false},
		{[]string{"red", "blue"}, "", false},
	} {
		got, ok := pattern("c", "worker", named(c.names...))
		assert.Equal(t, c.want, got)
		assert.Equal(t, c.ok, ok)
	}
}

// TestOtherTemplates: a name that is not canonical is admitted, and two versions are not guessed between.
func TestOtherTemplates(t *testing.T) {
	const start = "proxmox_api_url = \"https://pve.lan:8006\"\nproxmox_api_token_id = \"terraform@pve!k3s-dev\"\nnode = " +
		"\"pve\"\n"

	r, err := TFVars("x.tfvars", []byte(start+"template = \"golden\"\n"),
		Options{Cluster: "c", CIDR: "192.168.10.0/24", Talos: "v1.12.4"})
	require.NoError(t, err)
	assert.Contains(t, string(r.File), "allowNonCanonicalName: true")

	_, err = TFVars("x.tfvars", []byte(start+
		"control_plane_template = \"talos-v1.12.4-base\"\nworker_count = 1\nworker_template = \"talos-v1.11.0-base\"\n"),
		Options{Cluster: "c", CIDR: "192.168.10.0/24"})
	assert.ErrorContains(t, err, "the version of Talos does not follow")
}
