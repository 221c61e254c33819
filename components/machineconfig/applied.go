package machineconfig

import (
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"

	"talos-proxmox/components/spec"
)

// Applied is the configuration that a node was given: that of its pool with the patches that are its own. Its errors
// quote no values, which may be secret.
func Applied(pool string, patches []string) (config.Provider, error) {
	var loaded []configpatcher.Patch

	for _, text := range patches {
		patch, err := configpatcher.LoadPatch([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("a patch cannot be read: %s", keysOnly(err))
		}

		loaded = append(loaded, patch)
	}

	out, err := configpatcher.Apply(configpatcher.WithBytes([]byte(pool)), loaded)
	if err != nil {
		return nil, fmt.Errorf("the configuration cannot be patched: %s", keysOnly(err))
	}

	applied, err := out.Config()
	if err != nil {
		return nil, fmt.Errorf("the configuration cannot be read: %s", keysOnly(err))
	}

	return applied, nil
}

// Identity is the name and the role of the node that a configuration was given to.
func Identity(c config.Provider) (name string, role spec.Role) {
	if h := c.NetworkHostnameConfig(); h != nil {
		name = h.Hostname()
	}

	role = spec.RoleWorker
	if c.Machine().Type().IsControlPlane() {
		role = spec.RoleControlPlane
	}

	return name, role
}
