package sequence

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// Step is one change, with what goes wrong.
type Step struct {
	// Name says what is changed.
	Name string
	To   Config
	// Killed is a node that is switched off before the change; empty: none.
	Killed string
	Fault  Fault
	// Forecast is what it must do.
	Forecast Forecast
}

func (s Step) String() string {
	text := s.Name
	if s.Killed != "" {
		text = s.Killed + " killed; " + text
	}

	if s.Fault.Kind != "" {
		text += "; " + s.Fault.String()
	}

	if s.Forecast.Refused != "" {
		text += ": refused in the " + string(s.Forecast.Refused)
	}

	return text
}

// beginnings are what clusters run at first.
var beginnings = []Settings{
	{Talos: "v1.9.5", Kubernetes: "v1.31.4"},
	{Talos: "v1.10.7", Kubernetes: "v1.32.3"},
	{Talos: "v1.11.6", Kubernetes: "v1.33.6"},
	{Talos: "v1.11.6", Kubernetes: "v1.33.6"},
	{Talos: "v1.12.4", Kubernetes: "v1.34.2"},
	{Talos: "v1.13.9", Kubernetes: "v1.35.4"},
	{Talos: "v1.14.1", Kubernetes: "v1.36.1"},
}

// The versions that are asked for.
var (
	talosVersions      = []string{"v1.9.5", "v1.10.7", "v1.11.6", "v1.12.2", "v1.12.4", "v1.13.9", "v1.14.1"}
	kubernetesVersions = []string{"v1.31.4", "v1.32.3", "v1.33.6", "v1.34.2", "v1.35.4", "v1.36.1", "v1.37.0"}
)

// The most nodes that a cluster has.
const (
	mostControls = 5
	mostWorkers  = 4
)

// begin draws a cluster.
func begin(r *rand.Rand) Config {
	c := Config{
		Settings: beginnings[r.IntN(len(beginnings))], Controls: []int{1, 2, 3}, Workers: []int{1, 2}, Apply: "auto",
		MaxUnavailable: 1 + r.IntN(2),
	}

	if r.IntN(8) == 0 {
		c.Controls = []int{1}
	}

	return c
}

// change is a kind of change. It returns what it does, in words; empty when it does not apply.
type change struct {
	weight int
	draw   func(r *rand.Rand, m *Model, to *Config) string
}

var changes = []change{
	{8, growControls},
	{8, shrinkControls},
	{5, growWorkers},
	{4, shrinkWorkers},
	{7, replace},
	{7, upTalos},
	{4, anyTalos},
	{6, extend},
	{6, upKubernetes},
	{2, anyKubernetes},
	{4, setSysctl},
	{4, setLabel},
	{6, setEnv},
	{5, resize},
	{3, stage},
	{3, noReboot},
	{2, noChange},
}

// Draw draws the cluster of a seed, and its steps, and makes nothing of it.
func Draw(seed uint64, steps int) (Config, []Step) {
	r := source(seed)
	m := NewModel(begin(r))
	first := m.Asked.clone()

	var all []Step

	for range steps {
		s := next(r, m)

		if s.Killed != "" {
			m.Dead = s.Killed
		}

		if s.Forecast = m.Foresee(s.To); s.Forecast.Refused == "" {
			m.Done(s.To, s.Forecast)
		}

		all = append(all, s)
	}

	return first, all
}

// source is where everything comes from that is drawn for a seed.
func source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 9)) }

// next draws a step for a cluster.
func next(r *rand.Rand, m *Model) Step {
	to := m.Asked.clone()
	to.Replace, to.Force, to.Apply = nil, nil, "auto"

	if m.Dead != "" {
		return handleDeadNode(r, m, to)
	}

	// A killed node is removed in the same step, or not at all.
	if r.IntN(9) == 0 && len(m.Asked.Controls) > 2 {
		return failNode(r, m, to)
	}

	total := 0
	for _, c := range changes {
		total += c.weight
	}

	for {
		at := r.IntN(total)
		i := slices.IndexFunc(changes, func(c change) bool {
			at -= c.weight

			return at < 0
		})

		s := Step{To: to.clone()}
		if s.Name = changes[i].draw(r, m, &s.To); s.Name != "" {
			s.Fault = drawFault(r, m, s.To)

			return s
		}
	}
}

func growControls(r *rand.Rand, m *Model, to *Config) string {
	n := min(1+r.IntN(2), mostControls-len(to.Controls))
	if n <= 0 {
		return ""
	}

	from := len(to.Controls)
	to.Controls = grow(to.Controls, n)

	return fmt.Sprintf("control planes %d to %d", from, len(to.Controls))
}

func shrinkControls(r *rand.Rand, m *Model, to *Config) string {
	from := len(to.Controls)
	to.Controls = shrink(r, to.Controls, min(1+r.IntN(2), from))

	return fmt.Sprintf("control planes %d to %d", from, len(to.Controls))
}

func growWorkers(r *rand.Rand, m *Model, to *Config) string {
	n := min(1+r.IntN(2), mostWorkers-len(to.Workers))
	if n <= 0 {
		return ""
	}

	from := len(to.Workers)
	to.Workers = grow(to.Workers, n)

	return fmt.Sprintf("workers %d to %d", from, len(to.Workers))
}

func shrinkWorkers(r *rand.Rand, m *Model, to *Config) string {
	from := len(to.Workers)
	if from < 2 {
		return ""
	}

	to.Workers = shrink(r, to.Workers, 1)

	return fmt.Sprintf("workers %d to %d", from, len(to.Workers))
}

// grow takes the lowest ordinals that are free.
func grow(ordinals []int, n int) []int {
	for next := 1; n > 0; next++ {
		if !slices.Contains(ordinals, next) {
			ordinals, n = append(ordinals, next), n-1
		}
	}

	slices.Sort(ordinals)

	return ordinals
}

func shrink(r *rand.Rand, ordinals []int, n int) []int {
	for range n {
		i := r.IntN(len(ordinals))
		ordinals = slices.Delete(ordinals, i, i+1)
	}

	return ordinals
}

func replace(r *rand.Rand, m *Model, to *Config) string {
	names := slices.Sorted(maps.Keys(to.nodes()))
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })

	// What becomes of others where one must be refused is not said.
	n := 1
	if len(to.Controls) > 2 {
		n += r.IntN(2)
	}

	for _, name := range names[:n] {
		// Only a name that is added counts.
		if !slices.Contains(m.Asked.Replace, name) {
			to.Replace = append(to.Replace, name)
		}
	}

	slices.Sort(to.Replace)

	if len(to.Replace) == 0 {
		return ""
	}

	return fmt.Sprint("replace ", to.Replace)
}

func upTalos(r *rand.Rand, m *Model, to *Config) string {
	var legal []string

	for _, v := range talosVersions {
		if minorOf(v) > minorOf(to.Talos) && slices.Contains(upgradable[minor(to.Talos)], minor(v)) &&
			goesWith(v, to.Kubernetes) {
			legal = append(legal, v)
		}
	}

	if len(legal) == 0 {
		return ""
	}

	return setTalos(to, legal[r.IntN(len(legal))])
}

func anyTalos(r *rand.Rand, m *Model, to *Config) string {
	return setTalos(to, talosVersions[r.IntN(len(talosVersions))])
}

func setTalos(to *Config, version string) string {
	if version == to.Talos {
		return ""
	}

	from := to.Talos
	to.Talos = version

	return "Talos " + from + " to " + version
}

func extend(r *rand.Rand, m *Model, to *Config) string {
	to.Extension = !to.Extension

	if name := upTalos(r, m, to); name != "" && r.IntN(2) == 0 {
		return fmt.Sprintf("%s, with the extension: %t", name, to.Extension)
	}

	to.Talos = m.Asked.Talos

	return fmt.Sprintf("with the extension: %t", to.Extension)
}

func upKubernetes(r *rand.Rand, m *Model, to *Config) string {
	i := slices.Index(kubernetesVersions, to.Kubernetes)
	if i+1 == len(kubernetesVersions) || !goesWith(to.Talos, kubernetesVersions[i+1]) {
		return ""
	}

	return setKubernetes(to, kubernetesVersions[i+1])
}

func anyKubernetes(r *rand.Rand, m *Model, to *Config) string {
	return setKubernetes(to, kubernetesVersions[r.IntN(len(kubernetesVersions))])
}

func setKubernetes(to *Config, version string) string {
	if version == to.Kubernetes {
		return ""
	}

	from := to.Kubernetes
	to.Kubernetes = version

	return "Kubernetes " + from + " to " + version
}

func setSysctl(r *rand.Rand, m *Model, to *Config) string {
	to.Sysctl++

	return "a setting that is taken at once"
}

func setLabel(r *rand.Rand, m *Model, to *Config) string {
	to.Label++

	return "a label of the workers"
}

func setEnv(r *rand.Rand, m *Model, to *Config) string {
	to.Env++

	return "a setting that needs a reboot"
}

func stage(r *rand.Rand, m *Model, to *Config) string {
	to.Env++
	to.Apply = "staged"

	return "a setting that needs a reboot, staged"
}

func noReboot(r *rand.Rand, m *Model, to *Config) string {
	to.Apply = "noReboot"

	if r.IntN(2) == 0 {
		to.Sysctl++

		return "a setting that is taken at once, noReboot"
	}

	to.Env++

	return "a setting that needs a reboot, noReboot"
}

func resize(r *rand.Rand, m *Model, to *Config) string {
	to.MemoryMiB = max(to.MemoryMiB, 6144) + 1024

	return "more memory"
}

func noChange(*rand.Rand, *Model, *Config) string { return "nothing" }

// failNode lets a node die, and draws what the operator does about it.
func failNode(r *rand.Rand, m *Model, to Config) Step {
	names := slices.Sorted(maps.Keys(to.nodes()))
	killed := names[r.IntN(len(names))]

	with := *m
	with.Dead = killed

	s := handleDeadNode(r, &with, to)
	s.Killed = killed

	return s
}

// handleDeadNode draws what is done about a dead node: it is removed or recreated, and the operator says that it is
// dead, or forgets it.
func handleDeadNode(r *rand.Rand, m *Model, to Config) Step {
	s := Step{To: to}

	forgets := r.IntN(3) == 0
	if !forgets {
		s.To.Force = []string{m.Dead}
	}

	if r.IntN(2) == 0 {
		s.To.Replace = []string{m.Dead}
		s.Name = fmt.Sprintf("replace %s, said to be dead: %t", m.Dead, !forgets)
	} else {
		without := func(name func(int) string, ordinals []int) []int {
			return slices.DeleteFunc(slices.Clone(ordinals), func(n int) bool { return name(n) == m.Dead })
		}

		s.To.Controls, s.To.Workers = without(control, s.To.Controls), without(worker, s.To.Workers)
		s.Name = fmt.Sprintf("remove %s, said to be dead: %t", m.Dead, !forgets)
	}

	// The operator tries to remove another instead.
	if forgets && isControl(m.Dead) && r.IntN(2) == 0 {
		s.To = to
		other := slices.IndexFunc(to.Controls, func(n int) bool { return control(n) != m.Dead })
		s.Name = fmt.Sprintf("remove %s while %s is dead", control(to.Controls[other]), m.Dead)
		s.To.Controls = slices.Delete(slices.Clone(to.Controls), other, other+1)
	}

	return s
}
