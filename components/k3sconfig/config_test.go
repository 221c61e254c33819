package k3sconfig

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/planner"
	"talos-proxmox/components/spec"
)

// TestOptionsHaveOneSource: what the program writes into the configuration file of K3s is refused as an argument, or
// both are joined. A key that stands there twice cannot be written.
func TestOptionsHaveOneSource(t *testing.T) {
	t.Parallel()

	const joined = "tls-san"

	kind := reflect.TypeFor[config]()
	for i := range kind.NumField() {
		option, _, _ := strings.Cut(kind.Field(i).Tag.Get("yaml"), ",")
		if option == "" {
			continue // the arguments themselves
		}

		arg := "--" + option + "=644"
		s := k3s()
		s.K3s.ServerArgs, s.K3s.AgentArgs = []string{arg}, []string{arg}

		if option == joined {
			s.K3s.AgentArgs = nil
		}

		p, err := planner.Plan(s)

		if option != joined {
			assert.ErrorContains(t, err, "k3s.serverArgs[0]: is set by the program itself (given: --"+option+")")
			assert.ErrorContains(t, err, "k3s.agentArgs[0]: is set by the program itself (given: --"+option+")")

			continue
		}

		require.NoError(t, err)

		for _, n := range p.Nodes() {
			_, err := UserData(p, Node{Planned: n, First: n.Role == spec.RoleControlPlane}, identity(), Secrets{})
			require.NoError(t, err, option)
		}
	}
}
