package impact

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMessage(t *testing.T) {
	want := NodeImpact{
		Node: "c-1", Pool: "control", Role: "controlplane", Now: "v1.11.0", Wanted: "v1.12.0", Effect: EffectUpgrade, Order: 2,
		Quorum: "2 of 3", Why: "Talos", Refused: "no\nquorum", Settings: []Setting{{Path: "machine.sysctls", After: "1"}},
		Limits: Limits{MaxUnavailable: 2, Canary: true}, Kubernetes: true, VM: true,
	}

	text, err := want.Message()
	require.NoError(t, err)

	got, found, err := ParseMessage("<{%fg 13%}>debug: <{%reset%}>" + text + "<{%reset%}>\n")
	require.NoError(t, err)
	assert.True(t, found)
	assert.Equal(t, want, got)

	_, found, err = ParseMessage("waiting for Godot")
	require.NoError(t, err)
	assert.False(t, found)

	_, _, err = ParseMessage(messagePrefix + "{")
	assert.EqualError(t, err, "what the program says of a node cannot be read: unexpected EOF")
}
