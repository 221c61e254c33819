package sequence

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Effect is what becomes of a node, in the words of the table.
type Effect string

// The effects.
const (
	None    Effect = "none"
	Live    Effect = "live"
	Reboot  Effect = "reboot"
	Upgrade Effect = "upgrade"
	Replace Effect = "replace"
	Create  Effect = "create"
	Remove  Effect = "remove"
	Unknown Effect = "unknown"
)

// Settings are what a node runs, or is to run.
type Settings struct {
	Talos, Kubernetes string
	// Extension says that there is one more.
	Extension bool
	// Sysctl is taken at once, Env with a reboot; Label is taken at once, and is for workers. 0: there is none.
	Sysctl, Env, Label int
	// MemoryMiB of the VM; a change restarts it. 0: as much as it was made with.
	MemoryMiB int
	// Peers are the control planes: the certificates of each name all of them.
	Peers string
}

// Config is what the operator asks for.
type Config struct {
	Settings

	// Controls and Workers are ordinals.
	Controls, Workers []int
	Replace, Force    []string
	// Apply is "auto", "staged" or "noReboot".
	Apply string
	// MaxUnavailable is how many workers may be away.
	MaxUnavailable int
}

// String is how a cluster begins.
func (c Config) String() string {
	return fmt.Sprintf("Talos %s, Kubernetes %s, %d control planes, %d workers, %d of them away at most",
		c.Talos, c.Kubernetes, len(c.Controls), len(c.Workers), c.MaxUnavailable)
}

func (c Config) clone() Config {
	c.Controls, c.Workers = slices.Clone(c.Controls), slices.Clone(c.Workers)
	c.Replace, c.Force = slices.Clone(c.Replace), slices.Clone(c.Force)

	return c
}

// Names of the nodes.
func control(n int) string { return fmt.Sprintf("seq-control-%d", n) }
func worker(n int) string  { return fmt.Sprintf("seq-worker-%d", n) }

func isControl(name string) bool { return strings.HasPrefix(name, "seq-control-") }

// nodes are the settings of each node that is asked for.
func (c Config) nodes() map[string]Settings {
	all := map[string]Settings{}

	for _, n := range c.Controls {
		s := c.Settings
		s.Label, s.Peers = 0, fmt.Sprint(c.Controls)
		all[control(n)] = s
	}

	for _, n := range c.Workers {
		all[worker(n)] = c.Settings
	}

	return all
}

// Stage is where a change is refused.
type Stage string

// The stages. What is refused in the preview is refused in the update, too.
const (
	Preview Stage = "preview"
	Update  Stage = "update"
)

// Forecast is what a change must do.
type Forecast struct {
	// Effects by node; of a change that is refused, what the table may say.
	Effects map[string]Effect
	// Refused says where the change is refused; empty when it is not. Why is for people.
	Refused Stage
	Why     string
	// Again says that the update may have to be run again: nothing goes down before a dead control plane is replaced, and
	// that may be over in time or not.
	Again bool
	// StandsStill says that etcd has so few members that it stands still while one is away.
	StandsStill bool
}

// Model is what there is to know of the cluster.
type Model struct {
	Asked Config
	// Running is what each node runs, by what the updates so far must have brought about.
	Running map[string]Settings
	// Dead is a node that was switched off; empty when all run.
	Dead string
}

// NewModel is that of a cluster that was made as asked.
func NewModel(c Config) *Model { return &Model{Asked: c, Running: c.nodes()} }

// upgradable lists, for the minor versions of Talos in use, to which others each can go at once (Talos' documentation,
// "Supported upgrade paths", and the installer of each version).
var upgradable = map[string][]string{
	"v1.9":  {"v1.9", "v1.10", "v1.11"},
	"v1.10": {"v1.9", "v1.10", "v1.11", "v1.12"},
	"v1.11": {"v1.10", "v1.11", "v1.12", "v1.13"},
	"v1.12": {"v1.11", "v1.12", "v1.13", "v1.14"},
	"v1.13": {"v1.12", "v1.13", "v1.14"},
	"v1.14": {"v1.13", "v1.14"},
}

// supported lists the minor versions of Kubernetes that each of Talos goes with (Talos' support matrix).
var supported = map[string][2]int{
	"v1.9": {27, 32}, "v1.10": {28, 33}, "v1.11": {29, 34}, "v1.12": {30, 35}, "v1.13": {31, 36}, "v1.14": {32, 37},
}

func minor(version string) string { return version[:strings.LastIndex(version, ".")] }

func minorOf(version string) (n int) {
	_, _ = fmt.Sscanf(version, "v1.%d.", &n) // 0 is none of ours

	return n
}

func goesWith(talos, kubernetes string) bool {
	between, k := supported[minor(talos)], minorOf(kubernetes)

	return between[0] <= k && k <= between[1]
}

// Foresee says what an update to a configuration must do.
func (m *Model) Foresee(to Config) Forecast {
	f := Forecast{Effects: map[string]Effect{}}
	wanted, is := to.nodes(), m.Asked.nodes()

	for name := range is {
		if _, stays := wanted[name]; !stays {
			f.Effects[name] = Remove
		}
	}

	for name, settings := range wanted {
		_, there := is[name]

		switch {
		case !there:
			f.Effects[name] = Create
		case slices.Contains(to.Replace, name) && !slices.Contains(m.Asked.Replace, name):
			f.Effects[name] = Replace
		case settings == is[name] && (to.Apply == "staged") == (m.Asked.Apply == "staged"):
			f.Effects[name] = None
		default:
			f.Effects[name] = effect(m.Running[name], settings, to.Apply)
		}
	}

	f.refuse(m, to)

	voters := len(m.Asked.Controls)
	for name, e := range f.Effects {
		f.StandsStill = f.StandsStill || isControl(name) && voters < 3 && (e == Reboot || e == Upgrade)
	}

	return f
}

func effect(now, wanted Settings, apply string) Effect {
	switch {
	case now.Talos != wanted.Talos || now.Extension != wanted.Extension:
		return Upgrade
	case now.Env != wanted.Env && apply != "staged", now.MemoryMiB != wanted.MemoryMiB:
		return Reboot
	case now != wanted:
		return Live
	default:
		return None
	}
}

// refuse says whether the change must be refused.
func (f *Forecast) refuse(m *Model, to Config) {
	has := func(e Effect, of func(string) bool) (names []string) {
		for _, name := range slices.Sorted(maps.Keys(f.Effects)) {
			if f.Effects[name] == e && of(name) {
				names = append(names, name)
			}
		}

		return names
	}
	every := func(string) bool { return true }
	refuse := func(where Stage, why string, args ...any) {
		if f.Refused == "" {
			f.Refused, f.Why = where, fmt.Sprintf(why, args...)
		}
	}

	// Etcd has those as voters that were and that come, when the first leaves; most of them must stay.
	leaving, joiningNodes := len(has(Remove, isControl)), len(has(Create, isControl))
	before := len(m.Asked.Controls) + joiningNodes

	if remaining := before - leaving; leaving > 0 && remaining < before/2+1 {
		refuse(Preview, "%d of %d control planes would stay", remaining, before)
	}

	if again := has(Replace, isControl); len(again) > 0 && len(to.Controls) < 3 {
		refuse(Preview, "%s is one of %d control planes", again[0], len(to.Controls))
	}

	talos, kubernetes := m.Asked.Talos, m.Asked.Kubernetes
	for _, s := range m.Running {
		talos, kubernetes = s.Talos, s.Kubernetes
	}

	switch step := minorOf(to.Kubernetes) - minorOf(kubernetes); {
	case !slices.Contains(upgradable[minor(talos)], minor(to.Talos)):
		refuse(Preview, "Talos %s cannot become %s", talos, to.Talos)
	case step < 0 || step > 1:
		refuse(Preview, "Kubernetes %s cannot become %s", kubernetes, to.Kubernetes)
	case !goesWith(to.Talos, to.Kubernetes) || !goesWith(talos, to.Kubernetes) || !goesWith(to.Talos, kubernetes):
		refuse(Preview, "Talos %s and %s do not go with Kubernetes %s and %s", talos, to.Talos, kubernetes, to.Kubernetes)
	}

	if down := has(Upgrade, every); len(down) > 0 && to.Apply != "auto" {
		refuse(Preview, "lifecycle.apply is %s, and %s would be upgraded", to.Apply, down[0])
	}

	if down := has(Reboot, every); len(down) > 0 && to.Apply == "noReboot" {
		refuse(Preview, "lifecycle.apply is noReboot, and %s would be rebooted", down[0])
	}

	if len(has(Upgrade, isControl)) > 0 && len(to.Controls) == 2 {
		refuse(Update, "Talos upgrades none of two control planes")
	}

	if m.Dead != "" {
		f.refuseDead(m, to, refuse)
	}
}

// refuseDead says what the death of a node stands in the way of.
func (f *Forecast) refuseDead(m *Model, to Config, refuse func(Stage, string, ...any)) {
	goes := f.Effects[m.Dead] == Remove || f.Effects[m.Dead] == Replace
	forced := slices.Contains(to.Force, m.Dead)

	if goes && !forced {
		refuse(Update, "%s is dead, and was not said to be", m.Dead)
	}

	for _, name := range slices.Sorted(maps.Keys(f.Effects)) {
		e := f.Effects[name]

		switch {
		case name == m.Dead && !goes && e != None:
			f.Effects[name] = Unknown
			refuse(Update, "%s is dead, and cannot be changed", name)
		case name != m.Dead && e != None && !(goes && forced) && isControl(m.Dead) && isControl(name) && e != Live:
			refuse(Update, "%s is dead, and no other control plane may leave or join", m.Dead)
		case name != m.Dead && isControl(m.Dead) && isControl(name) && (e == Reboot || e == Upgrade) &&
			f.Effects[m.Dead] == Replace:
			f.Again = true
		case name != m.Dead && isControl(m.Dead) && isControl(name) && (e == Reboot || e == Upgrade):
			// What leaves goes last, and etcd counts it until then.
			refuse(Update, "%s is dead, and no other control plane may go down", m.Dead)
		}
	}
}

// Done notes that the update went through.
func (m *Model) Done(to Config, f Forecast) {
	wanted, is := to.nodes(), m.Running
	m.Running = map[string]Settings{}

	for name, s := range wanted {
		before, there := is[name]

		// What is kept for the next reboot is not run yet. A node that was not looked at runs what it did.
		if there && (f.Effects[name] == None || to.Apply == "staged" && f.Effects[name] == Live) {
			s = before
		}

		m.Running[name] = s
	}

	if e := f.Effects[m.Dead]; e == Remove || e == Replace {
		m.Dead = ""
	}

	m.Asked = to.clone()
}
