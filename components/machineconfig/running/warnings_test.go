package running

import (
	"strings"
	"testing"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/spec"
)

// TestRunningWarnings: what a change does not do by itself is said, of nodes that have something to lose.
func TestRunningWarnings(t *testing.T) {
	const (
		proxy = "cluster.cni.kubeProxy: Talos stops installing kube-proxy, and does not remove it from a cluster that runs (given: " +
			"false); after the update, when the CNI serves Services in its place, run: kubectl --namespace kube-system delete " +
			"daemonset kube-proxy; its rules stay on each node until that reboots"
		login = "tailscale.loginServer: applies to nodes that have not joined a tailnet yet: nodes that have stay in it, " +
			"because they keep their login on their disk (given: SERVER); to have a node join the other tailnet, name it in " +
			"lifecycle.replace"
		vip = "cluster.endpoint: Talos neither changes nor removes kube-vip in a cluster that runs: it goes on announcing the " +
			"address that it has (given: 10.0.0.9:6443); after the update, run"
		vipGone  = vip + ": kubectl --namespace kube-system delete daemonset kube-vip"
		vipOther = vip + " 'talosctl upgrade-k8s', which applies the manifests"
	)

	announced := func(manifest string) talosconfig.Provider {
		return parsed(t, "version: v1alpha1\nmachine: { type: controlplane }\ncluster:\n"+
			"  controlPlane: { endpoint: \"https://10.0.0.9:6443\" }\n  inlineManifests: ["+manifest+"]\n")
	}
	old := announced("{ name: kube-vip, contents: \"kind: DaemonSet # 10.0.0.8\" }")

	for name, c := range map[string]struct {
		running, wanted talosconfig.Provider
		want            []string
	}{
		"nothing changes":         {runs(t, "controlplane", true), runs(t, "controlplane", true), nil},
		"kube-proxy goes":         {runs(t, "controlplane", true), runs(t, "controlplane", false), []string{proxy}},
		"kube-proxy of a worker":  {runs(t, "worker", true), runs(t, "worker", false), nil},
		"kube-proxy comes":        {runs(t, "controlplane", false), runs(t, "controlplane", true), nil},
		"the same server":         {joins(t, "https://a.lan"), joins(t, "https://a.lan"), nil},
		"another server":          {joins(t, "https://a.lan"), joins(t, "https://b.lan"), []string{"https://b.lan"}},
		"the server of Tailscale": {joins(t, "https://a.lan"), joins(t, ""), []string{"Tailscale's own"}},
		"another than Tailscale":  {joins(t, ""), joins(t, "https://b.lan"), []string{"https://b.lan"}},
		"kube-vip stays":          {old, old, nil},
		"kube-vip goes":           {old, announced(""), []string{vipGone}},
		"kube-vip changes":        {old, announced("{ name: kube-vip, contents: \"kind: DaemonSet\" }"), []string{vipOther}},
		"kube-vip comes":          {announced(""), old, nil},
		"a node that joins":       {runs(t, "worker", true), joins(t, "https://b.lan"), nil},
		"a node that leaves":      {joins(t, "https://b.lan"), runs(t, "worker", true), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, warning := range Warnings(c.running, c.wanted) {
				got = append(got, warning.String())
			}

			var want []string

			for _, text := range c.want {
				if text != proxy && !strings.HasPrefix(text, vip) {
					text = strings.Replace(login, "SERVER", text, 1)
				}

				want = append(want, text)
			}

			assert.Equal(t, want, got)
		})
	}
}

func runs(t *testing.T, role string, proxy bool) talosconfig.Provider {
	t.Helper()

	disabled := "false"
	if !proxy {
		disabled = "true"
	}

	return parsed(t, "version: v1alpha1\nmachine: { type: "+role+" }\ncluster: { proxy: { disabled: "+disabled+" } }\n")
}

// joins is a worker that joins the tailnet of a server, as the program renders it.
func joins(t *testing.T, server string) talosconfig.Provider {
	t.Helper()

	s := plantest.Atlas(plantest.Talos112)
	s.Tailscale = &spec.Tailscale{Pools: []string{"control"}, LoginServer: server}
	s.Provided.TailscaleKey = true
	p := plantest.New(t, s)
	document, err := machineconfig.Tailscale(p, p.Pools[0], "tskey-auth-a")
	require.NoError(t, err)

	cfg, err := configloader.NewFromBytes([]byte(minimal + "---\n" + document))
	require.NoError(t, err)

	return cfg
}
