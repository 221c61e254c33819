package main

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shelf is a registry of what it holds: "latest" or a version of a module, by "module@query".
type shelf map[string]string

var errRefused = errors.New("403 Forbidden")

// required is the version that the module begins with here.
func (s shelf) required(_ context.Context, _, module string) (string, error) {
	return s.released(context.Background(), "", module, "here")
}

func (s shelf) released(_ context.Context, _, module, query string) (string, error) {
	if version, ok := s[module+"@"+query]; ok {
		return version, nil
	}

	return "", errRefused
}

func TestRun(t *testing.T) {
	const talos, kubernetes = "github.com/siderolabs/talos/pkg/machinery", "k8s.io/kubernetes"

	same := shelf{}
	for _, d := range dependencies {
		same[d.module+"@here"], same[d.module+"@latest"] = "v0.7.1", "v0.7.1"
	}

	maps.Copy(same, shelf{
		talos + "@here": "v1.14.1", talos + "@latest": "v1.14.1",
		kubernetes + "@here": "v1.37.2", kubernetes + "@latest": "v1.37.2",
	})

	for name, c := range map[string]struct {
		other shelf
		said  string
		err   string
	}{
		"nothing is newer": {nil, "A stack that asks for Talos v1.14.1 and Kubernetes v1.37.2 is accepted.", ""},
		"a patch release": {
			shelf{talos + "@latest": "v1.14.4"}, "Talos v1.14.1 v1.14.4 a patch release", "",
		},
		"a minor version of Talos": {
			shelf{talos + "@latest": "v1.15.0"},
			"must be 1.14 or earlier: this release supports no later version",
			"the program refuses Talos v1.15.0 with Kubernetes v1.37.2",
		},
		"a minor version of Kubernetes": {
			shelf{kubernetes + "@latest": "v1.38.1"},
			"Kubernetes v1.37.2 v1.38.1 a new minor version",
			"the program refuses Talos v1.14.1 with Kubernetes v1.38.1",
		},
		"a major version": {
			shelf{"github.com/muhlba91/pulumi-proxmoxve/sdk/v8@latest": "v8.6.0"},
			"Proxmox VE provider v0.7.1 v8.6.0 a new major version", "",
		},
		"a proxy without lists": {
			shelf{talos + "@latest": "", talos + "@v1.14.3": "v1.14.3"}, "Talos v1.14.1 v1.14.3 a patch release", "",
		},
		"a proxy that serves nothing": {shelf{talos + "@latest": ""}, "", "403 Forbidden"},
		"older than ours":             {shelf{talos + "@latest": "v1.13.9"}, "Talos v1.14.1 v1.14.1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			have := maps.Clone(same)
			maps.Copy(have, c.other)
			maps.DeleteFunc(have, func(_, version string) bool { return version == "" })

			var out strings.Builder

			err := run(t.Context(), ".", have, &out)
			assert.Contains(t, strings.Join(strings.Fields(out.String()), " "), c.said)

			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.err)
			}
		})
	}
}

// TestDependencies: each is required where it is said to be.
func TestDependencies(t *testing.T) {
	for _, d := range dependencies {
		version, err := goCommand{}.required(t.Context(), "../../"+d.dir, d.module)
		require.NoError(t, err)
		assert.NotEmpty(t, version, d.module)
	}
}
