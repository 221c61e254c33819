package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMigrate prints the stack file, and what to know and to do in addition.
func TestMigrate(t *testing.T) {
	const data = "../migrate/testdata/"

	out, said, err := ops(t, "", "migrate", data+"terraform.tfvars", "--cluster", "k3s-dev", "--cidr", "192.168.10.0/24",
		"--outputs", data+"outputs.json")
	require.NoError(t, err)
	assert.Equal(t, file(t, data+"Pulumi.standing.yaml"), out)
	assert.Equal(t, "note: ssh_password (line 30) is an unknown variable, and is not converted\n"+
		"note: the nodes stay with the tool that configures them now; with cluster.bootstrap pulumi, this program "+
		"configures them\n"+
		"run: pulumi config set --secret proxmoxTokenSecret\n", said)

	_, _, err = ops(t, "", "migrate", data+"terraform.tfvars")
	assert.ErrorContains(t, err, "set it with --cidr")
}
