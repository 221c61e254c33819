package sequence

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestDraw: a seed always draws the same, and many draw every kind of change, of refusal and of fault.
func TestDraw(t *testing.T) {
	t.Parallel()

	const seeds = 400

	var (
		text   strings.Builder
		kinds  = map[Kind]int{}
		fates  = map[Stage]int{}
		deaths int
	)

	for seed := range uint64(seeds) {
		first, steps := Draw(seed, 6)
		again, same := Draw(seed, 6)

		assert.Equal(t, first, again)
		assert.Equal(t, steps, same)

		for _, s := range steps {
			text.WriteString(s.String() + "\n")
			kinds[s.Fault.Kind]++
			fates[s.Forecast.Refused]++

			if s.Killed != "" {
				deaths++
			}
		}
	}

	for _, k := range []Kind{"", CallFails, Killed, EtcdCut, EtcdBlinks, NodeFails, ImageGone} {
		assert.Greater(t, kinds[k], seeds/50, k)
	}

	for _, s := range []Stage{"", Preview, Update} {
		assert.Greater(t, fates[s], seeds/20, s)
	}

	assert.Greater(t, deaths, seeds/20)

	for _, wanted := range []string{
		`control planes 3 to 5\b`, `control planes 5 to 3\b`, `control planes 3 to 1: refused in the preview`,
		`control planes 1 to 0: refused in the preview`,
		`Talos v1.11.6 to v1.12.4, with the extension`, `Talos v1.9.5 to v1.12.\d: refused in the preview`,
		`Kubernetes v1.33.6 to v1.34.2`,
		`said to be dead: false: refused in the update`, `replace seq-control-\d, said to be dead: true`, `workers 2 to 3`,
		`installer fails`, `never returns`,
	} {
		assert.Regexp(t, regexp.MustCompile(wanted), text.String())
	}
}

// TestForesee: what becomes of each node, and what must be refused.
func TestForesee(t *testing.T) {
	t.Parallel()

	first := Config{
		Settings: Settings{Talos: "v1.11.6", Kubernetes: "v1.33.6"}, Controls: []int{1, 2, 3}, Workers: []int{1},
		Apply: "auto", MaxUnavailable: 1,
	}

	for name, c := range map[string]struct {
		change  func(*Config)
		dead    string
		want    string // control planes 1 to 3, the worker
		refused Stage
		again   bool
	}{
		"nothing": {func(*Config) {}, "", "none none none none", "", false},
		"3 to 2": {
			func(c *Config) { c.Controls = []int{1, 2} }, "", "live live remove none",
			"", false,
		},
		"3 to 1": {
			func(c *Config) { c.Controls = []int{1} }, "", "live remove remove none",
			Preview, false,
		},
		"3 to others": {
			func(c *Config) { c.Controls = []int{4, 5, 6} }, "",
			"remove remove remove none", Preview, false,
		},
		"replace": {
			func(c *Config) { c.Replace = []string{"seq-control-2"} }, "",
			"none replace none none", "", false,
		},
		"the next Talos": {
			func(c *Config) { c.Talos = "v1.12.4" }, "",
			"upgrade upgrade upgrade upgrade", "", false,
		},
		"a Talos too far back": {
			func(c *Config) { c.Talos = "v1.9.5" }, "",
			"upgrade upgrade upgrade upgrade", Preview, false,
		},
		"the next Kubernetes": {
			func(c *Config) { c.Kubernetes = "v1.34.2" }, "", "live live live live", "",
			false,
		},
		"both, which do not go": {
			func(c *Config) { c.Talos, c.Kubernetes = "v1.12.4", "v1.35.0" }, "",
			"upgrade upgrade upgrade upgrade", Preview, false,
		},
		"a label":  {func(c *Config) { c.Label = 1 }, "", "none none none live", "", false},
		"a reboot": {func(c *Config) { c.Env = 1 }, "", "reboot reboot reboot reboot", "", false},
		"a reboot, staged": {
			func(c *Config) { c.Env, c.Apply = 1, "staged" }, "", "live live live live",
			"", false,
		},
		"a reboot, noReboot": {
			func(c *Config) { c.Env, c.Apply = 1, "noReboot" }, "",
			"reboot reboot reboot reboot", Preview, false,
		},
		"an extension, staged": {
			func(c *Config) { c.Extension, c.Apply = true, "staged" }, "",
			"upgrade upgrade upgrade upgrade", Preview, false,
		},
		"dead, and not said to be": {
			func(c *Config) { c.Controls = []int{1, 2} }, "seq-control-3",
			"live live remove none", Update, false,
		},
		"dead, and said to be": {func(c *Config) {
			c.Controls, c.Force = []int{1, 2},
				[]string{"seq-control-3"}
		}, "seq-control-3", "live live remove none", "", false},
		"dead and replaced, and others reboot": {func(c *Config) {
			c.Replace, c.Force, c.Env = []string{"seq-control-3"},
				[]string{"seq-control-3"}, 1
		}, "seq-control-3", "reboot reboot replace reboot", "", true},
		"another leaves one is dead": {
			func(c *Config) { c.Controls = []int{1, 3} }, "seq-control-3",
			"live remove unknown none", Update, false,
		},
		"an upgrade while one is off": {
			func(c *Config) { c.Talos = "v1.12.4" }, "seq-control-3",
			"upgrade upgrade unknown upgrade", Update, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			m := NewModel(first)
			m.Dead = c.dead

			to := first.clone()
			c.change(&to)

			f := m.Foresee(to)

			var found []string
			for _, node := range []string{control(1), control(2), control(3), worker(1)} {
				found = append(found, string(f.Effects[node]))
			}

			assert.Equal(t, c.want, strings.Join(found, " "))
			assert.Equal(t, c.refused, f.Refused, f.Why)
			assert.Equal(t, c.again, f.Again)
		})
	}
}
