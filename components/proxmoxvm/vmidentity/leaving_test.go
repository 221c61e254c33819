package vmidentity

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/proxmoxapi"
)

// TestUnreachableVM: each message says what can be done without the host, and removes no other VM.
func TestUnreachableVM(t *testing.T) {
	t.Parallel()

	one := &UnreachableVM{"c-1", []proxmoxapi.VM{{ID: 401, Host: "pve2"}}}
	two := &UnreachableVM{"c-1", []proxmoxapi.VM{{ID: 401, Host: "pve2"}, {ID: 402, Host: "pve2"}}}

	const file = "run 'rm /etc/pve/nodes/pve2/qemu-server/401.conf' on another host"

	assert.EqualError(t, one.BlocksRecovery(), "the VM of c-1 cannot be deleted: it is VM 401 on host pve2, which does not "+
		"answer; start the host; if it never comes back, "+file+", remove the host from proxmox.hosts, then run 'pulumi "+
		"up --refresh'")
	assert.EqualError(t, one.LeftBehind(), "c-1 has left the cluster, and its VM is still there: it is VM 401 on host "+
		"pve2, which does not answer. When the host is back, run 'pulumi up' again. If it never comes back, "+file+
		", then 'pulumi up --refresh'")
	assert.EqualError(t, two.LeftBehind(), "c-1 has left the cluster, and its VM is still there: it is VM 401 on host pve2 "+
		"or VM 402 on host pve2, which does not answer. When the host is back, run 'pulumi up' again. If it never comes "+
		"back, remove, on another host, the one of these files that has its name ('grep -l \"^name: c-1$\" "+
		"/etc/pve/nodes/pve2/qemu-server/401.conf /etc/pve/nodes/pve2/qemu-server/402.conf'), then 'pulumi up --refresh'")
}
