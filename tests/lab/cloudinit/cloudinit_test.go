package cloudinit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Parallel()

	c, err := Parse("#cloud-config\nhostname: a\nwrite_files:\n  - { path: /x, content: aGk=, encoding: b64 " +
		"}\nruncmd:\n  - [echo, \"1\"]\n")
	require.NoError(t, err)
	require.Equal(t, "a", c.Hostname)
	require.Equal(t, [][]string{{"echo", "1"}}, c.Commands)

	f, there := c.File("/x")
	require.True(t, there)
	require.Equal(t, "hi", f.Content)
}

// TestParseIsStrict: what cloud-init would pass over is refused.
func TestParseIsStrict(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"hostname: a\n":                      `must begin with the line #cloud-config (it begins with "hostname: a")`,
		"#cloud-config\nhostnam: a\n":        "additional properties 'hostnam' not allowed",
		"#cloud-config\nhostname: [a]\n":     "at '/hostname': got array, want string",
		"#cloud-config\na: 1\na: 2\n":        `key "a" already set in map`,
		"#cloud-config\nruncmd: [reboot]\n":  "the lab runs lists of words",
		"#cloud-config\nwrite_files: [{}]\n": "missing property 'path'",
	} {
		_, err := Parse(text)
		require.ErrorContains(t, err, want, text)
	}
}
