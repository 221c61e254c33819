package machineconfig

import (
	_ "embed"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/impact"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/spec"
	"talos-proxmox/tests/golden"
)

// providerSettings are the settings of the documents of Talos' library of 1.12.0, which the provider of the SDK holds, as
// settingsOf lists them.
//
//go:embed testdata/settings-1.12.0.txt
var providerSettings string

// TestLaterSettingsAreComplete: whoever moves to a later version of Talos' library finds the settings here that the
// provider does not know.
func TestLaterSettingsAreComplete(t *testing.T) {
	known := strings.Split(strings.TrimSpace(providerSettings), "\n")
	later := map[string]bool{}

	for kind, paths := range laterSettings {
		for _, path := range paths {
			later[kind+" "+path] = true
		}
	}

	for _, kind := range providerKinds {
		document := reflect.TypeFor[v1alpha1.Config]()

		if kind != v1alpha1Kind {
			loaded, err := configloader.NewFromBytes([]byte("apiVersion: v1alpha1\nkind: " + kind + "\n"))
			require.NoError(t, err, "Talos' library does not have it any more")

			document = reflect.TypeOf(loaded.Documents()[0]).Elem()
		}

		for _, path := range settingsOf(document, "", nil) {
			if slices.Contains(known, kind+" "+path) {
				assert.False(t, later[kind+" "+path], "%s %s is known", kind, path)

				continue
			}

			covered := slices.ContainsFunc(laterSettings[kind], func(known string) bool {
				return path == known || strings.HasPrefix(path, known+".") || strings.HasPrefix(path, known+"[]")
			})
			assert.True(t, covered, "%s %s came after Talos 1.12: add it to laterSettings", kind, path)
		}
	}
}

// TestWhatWaitsForAReboot lists, of all settings that the provider can apply, those that a running node of Talos 1.14 and
// later does not take up. Whoever moves to a later version looks at what changes here.
func TestWhatWaitsForAReboot(t *testing.T) {
	var waiting []string

	for setting := range strings.Lines(providerSettings) {
		kind, path, _ := strings.Cut(strings.TrimSpace(setting), " ")
		if kind != v1alpha1Kind {
			path = kind + "." + path
		}

		path = strings.ReplaceAll(path, "[]", "[0]")
		if impact.WaitsForReboot("v1.14.0", []impact.Setting{{Path: path, Before: "a"}}) {
			waiting = append(waiting, path)
		}
	}

	golden.Check(t, "testdata/waits-for-reboot.txt", strings.Join(waiting, "\n")+"\n")
}

// settingsOf are the paths of the settings of a document, from its type.
func settingsOf(of reflect.Type, below string, inside []reflect.Type) []string {
	var found []string

	switch of.Kind() {
	case reflect.Pointer:
		return settingsOf(of.Elem(), below, inside)
	case reflect.Slice, reflect.Array, reflect.Map:
		return settingsOf(of.Elem(), below+"[]", inside)
	case reflect.Struct:
		if slices.Contains(inside, of) {
			return nil
		}

		for i := range of.NumField() {
			field := of.Field(i)
			name, options, _ := strings.Cut(field.Tag.Get("yaml"), ",")
			path := strings.TrimPrefix(below+"."+name, ".")

			switch {
			case options == "inline":
				path = below
			case name == "" || name == "-":
				continue
			default:
				found = append(found, path)
			}

			found = append(found, settingsOf(field.Type, path, append(slices.Clone(inside), of))...)
		}
	}

	return found
}

// TestLaterSettings: the provider would end with an error at them, in the middle of an update.
func TestLaterSettings(t *testing.T) {
	for text, want := range map[string]string{
		"kind: VolumeConfig\nname: EPHEMERAL\nmount: { secure: true }\n":  "mount of VolumeConfig",
		"kind: VolumeConfig\nname: EPHEMERAL\nmount: { secure: false }\n": "mount of VolumeConfig",
		"kind: UserVolumeConfig\nname: a\nmount: { disableAccessTime: true }\nprovisioning:\n" +
			"  diskSelector: { match: system_disk }\n  minSize: 1GiB\n": "mount of UserVolumeConfig",
		"kind: TimeSyncConfig\nntp: { servers: [a.example], useNTS: true }\n":                                               "ntp.useNTS of TimeSyncConfig",
		"kind: ResolverConfig\nnameservers: [{ address: 192.0.2.1 }, { address: 192.0.2.2, tlsServerName: dns.example }]\n": "nameservers[].tlsServerName of ResolverConfig",
		"cluster: { network: { cni: { name: flannel, flannel: { kubeNetworkPoliciesEnabled: true } } } }\n":                 "cluster.network.cni.flannel.kubeNetworkPoliciesEnabled of v1alpha1",
	} {
		if strings.HasPrefix(text, "kind") {
			text = "apiVersion: v1alpha1\n" + text
		}

		s := plantest.Atlas(plantest.Talos112)
		s.Cluster.Patches = []spec.Patch{{Path: "cluster.patches[0]", Origin: "a.yaml", Text: text}}
		_, err := Check(plantest.New(t, s))
		require.ErrorContains(t, err, "cluster.patches[0]: is not a patch that Talos can apply: "+want+" was added after Talos 1.12")
	}

	assert.False(t, states(map[string]any{"ntp": "x"}, []string{"ntp", "useNTS"}))
	assert.False(t, states(map[string]any{"ntp": nil}, []string{"ntp", "useNTS"}))
}
