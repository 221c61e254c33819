package timeline

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCriticalPath builds two chains that meet: the longer one counts, however long the run took.
func TestCriticalPath(t *testing.T) {
	line := New()
	line.Touch()

	wait := func(name string, ms int, after ...*Span) *Span {
		s, err := line.Wait(t.Context(), name, "vm", time.Duration(ms)*time.Millisecond, after...)
		require.NoError(t, err)

		return s
	}

	clone := wait("clone", 3)
	boot := wait("boot", 2, clone)
	other := wait("clone", 1)
	etcd := wait("etcd", 4, boot, other, nil)

	line.Touch()

	r := line.Report()
	assert.Equal(t, 9*time.Millisecond, r.CriticalPath)
	assert.GreaterOrEqual(t, r.Wall, 10*time.Millisecond)

	var names []string
	for _, s := range r.Chain {
		names = append(names, s.Name)
	}

	assert.Equal(t, []string{"clone", "boot", "etcd"}, names)

	line.Reset()
	assert.Zero(t, line.Report().CriticalPath)

	// What happened before the reset does not count for what follows it.
	wait("stop", 1, etcd)
	assert.Equal(t, time.Millisecond, line.Report().CriticalPath)
}

func TestSetLatencies(t *testing.T) {
	l := DefaultLatencies()
	require.NoError(t, l.Set(map[string]string{"clone": "10s", "apiServer": "0"}))
	assert.Equal(t, 10*time.Second, l.Clone)
	assert.Zero(t, l.APIServer)

	err := l.Set(map[string]string{"clon": "1s", "boot": "soon"})
	require.Error(t, err)
	assert.Contains(t, err.Error(), `latency boot: "soon" is no time span: write it like 10s`)
	assert.Contains(t, err.Error(), `there is no latency "clon": choose from clone, createvm, start`)
}
