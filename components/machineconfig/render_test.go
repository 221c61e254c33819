package machineconfig

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/spec"
)

func TestIdentity(t *testing.T) {
	const pool = "version: v1alpha1\nmachine:\n  type: "

	for _, c := range []struct {
		pool, patch, name string
		role              spec.Role
	}{
		{
			pool + "controlplane\n", "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: one\nauto: off\n", "one",
			spec.RoleControlPlane,
		},
		{pool + "worker\n", "machine:\n  network:\n    hostname: two\n", "two", spec.RoleWorker},
		{pool + "worker\n", "machine:\n  nodeLabels:\n    a: b\n", "", spec.RoleWorker},
	} {
		applied, err := Applied(c.pool, []string{c.patch})
		require.NoError(t, err)

		name, role := Identity(applied)
		assert.Equal(t, c.name, name)
		assert.Equal(t, c.role, role)
	}
}

// TestAppliedQuotesNoValues: what cannot be applied may hold a password.
func TestAppliedQuotesNoValues(t *testing.T) {
	const pool = "version: v1alpha1\nmachine:\n  type: "

	_, err := Applied(pool+"worker\n", []string{"{"})
	require.ErrorContains(t, err, "a patch cannot be read: ")

	const password = "machine:\n  registry:\n    password: hunter2\n"

	for _, c := range []struct{ pool, patch, cause string }{
		{pool + "worker\n", password, "a patch cannot be read: "},
		{pool + "worker\n", "machine: !!int hunter2\n", "a patch cannot be read: "},
		{password, "machine: { type: worker }\n", "the configuration cannot be patched: "},
	} {
		_, err := Applied(c.pool, []string{c.patch})
		require.ErrorContains(t, err, c.cause)
		assert.NotContains(t, err.Error(), "hunter2")
	}
}
