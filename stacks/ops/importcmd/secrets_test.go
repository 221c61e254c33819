package importcmd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/tokens"
)

// lost is a cluster with control planes of which VMs 401 and 402 stand, and the guest agent of 401 answers.
func lost(nodes ...plan.Node) *cluster {
	return &cluster{
		plan: &plan.Plan{
			Pools:   []plan.PlannedPool{{Role: spec.RoleControlPlane, Nodes: nodes}},
			Network: netip.MustParsePrefix("10.0.0.0/24"), VIP: netip.MustParseAddr("10.0.0.20"),
		},
		proxmox: pve{},
	}
}

var (
	stated   = plan.Node{Name: "c-control-1", VMID: 401, Address: netip.MustParseAddr("10.0.0.31")}
	reported = plan.Node{Name: "c-control-1", VMID: 401, MAC: "bc:24:11:00:00:01"}
	silent   = plan.Node{Name: "c-control-2", VMID: 402, MAC: "bc:24:11:00:00:02"}
	gone     = plan.Node{Name: "c-control-3", VMID: 403, Address: netip.MustParseAddr("10.0.0.33")}
)

// TestNotFounded: the secrets in the state stay where no control plane has been configured, and new ones are made where
// there are none. One that does not answer, or whose address is unknown, may be a part of a cluster.
func TestNotFounded(t *testing.T) {
	const (
		stay    = "no control plane has been configured yet: there is no cluster that has secrets; those in the state stay\n"
		refused = "the secrets in the state are not accepted by the cluster: "
		forget  = ". If an update ran after the state was lost, it created new ones: remove them from the state " +
			"(pulumi state delete " +
			"--force --target-dependents 'urn'), and run this " +
			"again with --talosconfig or --secrets"
		addressless = "no address of a control plane is known: name one with --control-plane"
		giveOne     = "the cluster's secrets are lost with the state: give either --talosconfig, an administrator's, to " +
			"read them from a control plane, or --secrets, " +
			"what 'talosctl gen secrets' wrote. Without them the nodes cannot be managed any more: rebuild the cluster"
	)

	one := talosapi.Target{Name: "c-control-1", Address: "10.0.0.31"}

	for name, c := range map[string]struct {
		nodes []plan.Node
		named string
		// founded is what the control planes say of themselves.
		founded bool
		// asked are those that are asked for their secrets, and to whom they belong.
		asked, whose []talosapi.Target
		said, want   string
		lost         string
	}{
		"none has a VM": {nodes: []plan.Node{gone}, said: stay},
		"one that waits": {
			nodes: []plan.Node{stated, gone}, asked: []talosapi.Target{one},
			whose: []talosapi.Target{one}, said: stay,
		},
		"one of others": {
			nodes: []plan.Node{stated, gone}, founded: true, asked: []talosapi.Target{one},
			whose: []talosapi.Target{one}, want: refused + "TLS" + forget, lost: giveOne,
		},
		"one whose agent answers": {
			nodes: []plan.Node{reported}, asked: at("10.0.0.11"), whose: at("10.0.0.11"),
			said: stay,
		},
		"one whose agent is silent": {nodes: []plan.Node{silent}, want: refused + addressless + forget, lost: giveOne},
		"one that waits, one silent": {
			nodes: []plan.Node{reported, silent}, asked: at("10.0.0.11"),
			want: refused + "TLS" + forget, lost: giveOne,
		},
		"one that was named": {
			nodes: []plan.Node{gone}, named: "10.0.0.99", founded: true, want: refused + "TLS" + forget, lost: giveOne,
			asked: []talosapi.Target{{Name: "control plane", Address: "10.0.0.99"}},
			whose: []talosapi.Target{{Name: "control plane", Address: "10.0.0.99"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var (
				out          bytes.Buffer
				asked, whose []talosapi.Target
			)

			cluster := lost(c.nodes...)
			cluster.options = Options{ControlPlane: c.named, Out: &out}
			cluster.talos = talos{
				func(_ context.Context, all []talosapi.Target, credentials talosapi.Credentials,
					_ func(talosapi.Target, string) error,
				) (*secrets.Bundle, error) {
					compare(t, talosapi.Credentials{CA: "CA", Certificate: "certificate", Key: "key"}, credentials)
					asked = all

					return nil, errors.New("TLS")
				},
				func(_ context.Context, all []talosapi.Target, _ talosapi.Credentials) bool {
					whose = all

					return c.founded
				},
			}

			compare(t, c.want, message(cluster.compare(t.Context(), withSecrets(t))))
			compare(t, c.said, out.String())
			compare(t, c.asked, asked)
			compare(t, c.whose, whose)

			path, err := cluster.bundle(t.Context())
			compare(t, c.lost, message(err))
			compare(t, "", path)
		})
	}
}

// TestAccepted: the secrets in the state that a control plane accepts are the cluster's, and nothing needs to be said.
func TestAccepted(t *testing.T) {
	var out bytes.Buffer

	cluster := lost(stated)
	cluster.options.Out = &out
	cluster.talos.secrets = func(context.Context, []talosapi.Target, talosapi.Credentials,
		func(talosapi.Target, string) error,
	) (*secrets.Bundle, error) {
		return nil, nil
	}

	if err := cluster.compare(t.Context(), withSecrets(t)); err != nil || out.String() != "" {
		t.Fatal(err, out.String())
	}
}

// TestOtherCluster: a talosconfig without a context of the cluster's name leads to where its selected one does. Of what
// answers there, the secrets of this cluster alone are imported.
func TestOtherCluster(t *testing.T) {
	const (
		ours   = `  c: { endpoints: [10.0.0.41] }`
		theirs = `  other: { endpoints: [10.0.0.99] }`
	)

	accepted := errors.New("accepted")

	for name, c := range map[string]struct {
		contexts string
		nodes    []plan.Node
		named    string
		// names are those of the clusters that the addresses belong to.
		names map[string]string
		want  string
	}{
		"its own context": {
			contexts: ours + "\n" + theirs, names: map[string]string{"10.0.0.41": "c"}, want: "accepted",
		},
		"another context": {
			contexts: theirs, names: map[string]string{"10.0.0.99": "other"},
			want: "endpoint (10.0.0.99) is a control plane of cluster other, and the stack's cluster is c: its secrets are " +
				"not imported. Give the talosconfig of c, or the address of its control plane with --control-plane",
		},
		"another context that leads to it": {
			contexts: theirs, names: map[string]string{"10.0.0.99": "c"}, want: "accepted",
		},
		"a VM of the plan, whatever it calls itself": {
			contexts: theirs, nodes: []plan.Node{stated}, names: map[string]string{"10.0.0.31": "old", "10.0.0.99": "other"},
			want: "accepted",
		},
		"an address of another cluster": {
			contexts: ours, named: "10.0.0.99", names: map[string]string{"10.0.0.99": "other"},
			want: "control plane (10.0.0.99) is a control plane of cluster other, and the stack's cluster is c: its secrets " +
				"are not imported. Give the talosconfig of c, or the address of its control plane with --control-plane",
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "talosconfig")
			if err := os.WriteFile(path, []byte("context: other\ncontexts:\n"+c.contexts+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}

			cluster := lost(c.nodes...)
			cluster.plan.Cluster = "c"
			cluster.options = Options{Talosconfig: path, ControlPlane: c.named}
			cluster.talos.secrets = func(_ context.Context, all []talosapi.Target, _ talosapi.Credentials,
				accept func(talosapi.Target, string) error,
			) (*secrets.Bundle, error) {
				for _, target := range all {
					if name, answers := c.names[target.Address]; answers {
						return nil, cmp.Or(accept(target, name), accepted)
					}
				}

				return nil, errors.New("none answers")
			}

			_, err := cluster.bundle(t.Context())
			compare(t, c.want, message(err))
		})
	}
}

// TestNoSecretsYet: without a cluster, the entry of its secrets goes out of the file.
func TestNoSecretsYet(t *testing.T) {
	w := &wanted{
		Resources: []map[string]any{entry(tokens.Secrets, "c-secrets"), entry(tokens.VM, "c-control-1-vm")},
		planned: map[key]planned{
			{tokens.VM, "c-control-1-vm"}: inputs("vmId", 401.0),
		},
	}
	f := finder{proxmox: pve{}, secrets: func(context.Context) (string, error) { return "", nil }}

	all, err := f.fill(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}

	compare(t, "absent c-secrets: no control plane has been configured yet: there is no cluster that has secrets",
		string(all[1].verdict)+" "+all[1].name+": "+all[1].remark)
	compare(t, 1, len(w.Resources))
}

func at(address string) []talosapi.Target {
	return []talosapi.Target{{Name: "c-control-1", Address: address}}
}

func message(err error) string {
	if err == nil {
		return ""
	}

	return err.Error()
}

// withSecrets is a state with the cluster's secrets, as it is exported with everything decrypted.
func withSecrets(t *testing.T) apitype.UntypedDeployment {
	t.Helper()

	text, err := json.Marshal(apitype.DeploymentV3{Resources: []apitype.ResourceV3{{
		URN: "urn", Type: tokens.Secrets, Outputs: map[string]any{"clientConfiguration": map[string]any{
			"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270",
			"plaintext":                        `{"caCertificate":"CA","clientCertificate":"certificate","clientKey":"key"}`,
		}},
	}}})
	if err != nil {
		t.Fatal(err)
	}

	return apitype.UntypedDeployment{Version: 3, Deployment: text}
}
