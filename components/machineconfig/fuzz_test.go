package machineconfig

import (
	"errors"
	"testing"

	"talos-proxmox/components/planner"
	"talos-proxmox/components/spec"
)

// FuzzPatch: whatever an operator writes as a patch, Talos takes the configuration with it, or there are problems that
// name the patch.
func FuzzPatch(f *testing.F) {
	for _, patch := range []string{
		"machine:\n  nodeLabels: { tier: db }\n",
		"machine: { network: { interfaces: [{ deviceSelector: { physical: true }, dhcp: true }] } }",
		"apiVersion: v1alpha1\nkind: WatchdogTimerConfig\ndevice: /dev/watchdog0\n",
		`[{"op": "add", "path": "/machine/sysctls", "value": {"a": "b"}}]`,
		"$patch: delete\n", "cluster:\n  inlineManifests:\n    - $patch: delete\n", "---\n---\n", "machine: [",
		"machine:\n  typ: x\n", "\x00", "&a [*a]",
	} {
		f.Add(patch)
	}

	f.Fuzz(func(t *testing.T, patch string) {
		p, err := planner.Plan(patched(spec.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"}, patch, "", ""))
		if err != nil {
			return // no place for a patch
		}

		_, err = Check(p)

		var problems spec.Problems
		if err != nil && !errors.As(err, &problems) {
			t.Fatalf("no list of problems: %v", err)
		}

		for _, problem := range problems {
			if problem.Path == "" || problem.Rule == "" {
				t.Fatalf("a problem without its place or its rule: %+v", problem)
			}
		}
	})
}
