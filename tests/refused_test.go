package tests

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks/config"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// TestRefused gives the program wrong input through the engine: each is refused before anything is made, in the
// operator's words, all problems at once.
func TestRefused(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	w := r.Lab.World()

	// A VM that is to become a template.
	_, err := w.Create(administrator, "pve", world.CreateRequest{VMID: 9900, Conf: map[string]string{
		"name": "half-made", "scsi0": "tank:10",
	}})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		v, err := w.VM("pve", 9900)

		return err == nil && v.Lock == ""
	}, wait, wait/1000)

	for _, c := range []struct {
		name   string
		change map[string]string
		want   []string
		// mend is what the message asks for where it is not to take the change back.
		mend func()
	}{
		{
			name: "unknown key, wrong type, missing value and a duplicate address, together",
			change: map[string]string{
				"proxmox.tokenID": "x", "pools.worker.cores": "many", "cluster.name": "",
				"pools.worker.addresses": "{control}",
			},
			want: []string{
				`proxmox.tokenID: is not a key of the configuration; did you mean "tokenId"?`,
				`pools.worker.cores: must be a whole number (given: text, "many"); write digits alone, without a unit or quotes`,
				`cluster.name: is required; give the cluster a name, for example k3s-dev`,
				`pools.worker.addresses: overlaps pools.control.addresses {range} (given: {control}); the next free address is `,
			},
		},
		{
			name: "a template that is not there",
			change: map[string]string{
				"image.template.worker":                "talos-v1.12.4-Base",
				"image.template.allowNonCanonicalName": "true",
			},
			want: []string{
				`image.template.worker: is not on host pve; there is "talos-v1.12.4-base" (VMID 9000) on host pve (given: talos-v1.12.4-Base); ` +
					`correct the name, whose case matters, or make the template on the node's host`,
			},
		},
		{
			name:   "a VMID that is taken",
			change: map[string]string{"pools.worker.vmids": "9900-9909"},
			want:   []string{`pools.worker.vmids: 9900 is taken by "half-made" on host pve`},
		},
		{
			name: "a template that is none",
			change: map[string]string{
				"image.template.worker": "half-made", "image.template.allowNonCanonicalName": "true",
			},
			want: []string{"not a template: it was never finalised"},
			mend: func() {
				_, err := w.ConvertToTemplate(administrator, "pve", 9900)
				require.NoError(t, err)
			},
		},
		{
			name:   "an endpoint without https",
			change: map[string]string{"proxmox.endpoint": "http://127.0.0.1:8006"},
			want:   []string{`proxmox.endpoint: must begin with https:// (given: http://127.0.0.1:8006); Proxmox VE serves its API with TLS only: write https://127.0.0.1:8006`},
		},
		{
			name:   "an endpoint that does not answer",
			change: map[string]string{"proxmox.endpoint": "https://127.0.0.1:9"},
			want: []string{`proxmox.endpoint: Proxmox VE at https://127.0.0.1:9 cannot be reached: dial tcp 127.0.0.1:9: connect: connection refused; ` +
				`correct it, or make sure that the host is up and its port is reachable from here`},
		},
		{
			name:   "a token that is refused",
			change: map[string]string{"proxmox.tokenId": "unknown@pve!talos"},
			want: []string{
				`proxmox.tokenId: Proxmox VE at {lab} refuses the credentials (GET /cluster/resources?type=vm): ` +
					`Authentication failed!; check it with proxmoxTokenSecret (or proxmox.username with proxmoxPassword), and that its role may do this`,
			},
		},
		{
			name:   "an untrusted certificate",
			change: map[string]string{"proxmox.insecure": "false"},
			want: []string{
				`proxmox.endpoint: Proxmox VE at {lab} shows a certificate that this machine does not trust: x509: `,
				`let this machine trust the certificate's authority, or set proxmox.insecure`,
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			stack, err := r.Open(t.Context(), rehearsalName(c.name))
			require.NoError(t, err)

			before := w.Snapshot()

			original := map[string]string{}

			for path, value := range c.change {
				if is, err := stack.GetConfigWithOptions(t.Context(), config.Project+":"+path,
					&auto.ConfigOptions{Path: true}); err == nil {
					original[path] = is.Value
				}

				if value == "{control}" {
					value = addressOf(r, "k3s-dev-control-1")
				}

				set(t, stack, path, value)
			}

			said := failUp(t, stack)
			for _, want := range c.want {
				assert.Contains(t, said, replaceControl(want, r))
			}

			assert.Equal(t, before, r.Lab.World().Snapshot(), "nothing was made")

			for _, resource := range state(t, stack).Resources {
				assert.Equal(t, "pulumi:pulumi:Stack", string(resource.Type), "nothing is in state")
			}

			// Corrected, as the message asks, it is accepted.
			if c.mend != nil {
				c.mend()
			}

			for path := range c.change {
				switch value, was := original[path]; {
				case c.mend != nil:
				case was:
					set(t, stack, path, value)
				default:
					unset(t, stack, path)
				}
			}

			previewOf(t, stack)
		})
	}
}

// rehearsalName makes a stack name of a test's name.
func rehearsalName(name string) string {
	out := []rune("refused-")

	for _, c := range name {
		if c >= 'a' && c <= 'z' {
			out = append(out, c)
		}
	}

	return string(out)
}

func replaceControl(text string, r *rehearsal.Rehearsal) string {
	first := addressOf(r, "k3s-dev-control-1")

	return strings.NewReplacer("{control}", first, "{range}", first+"-"+first[:len(first)-1]+"3", "{lab}",
		r.Lab.Endpoint()).Replace(text)
}
