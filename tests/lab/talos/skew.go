package talos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
)

// Violation is a rule about versions that whoever operates a cluster has broken: what he did was carried out all the
// same.
type Violation struct {
	Time time.Time
	Text string // "kubelet v1.35.0 of vm-21 is newer than kube-apiserver v1.34.2 of vm-11"
}

// running is the version of something that runs on a node.
type running struct {
	node, name string
	version    semver.Version
}

func (r running) equal(other running) bool {
	return r.node == other.node && r.name == other.name && r.version.EQ(other.version)
}

func (r running) String() string { return fmt.Sprintf("%s v%s of %s", r.name, r.version, r.node) }

// maxKubeletSkew is how many minor versions kubelets and kube-proxies may be behind
// (https://kubernetes.io/releases/version-skew-policy).
const maxKubeletSkew = 3

// Violations returns what was done since a time against the version skew policy of Kubernetes, against the versions
// that Talos supports, or against the rule that no component goes back to an older minor version. Each is there once.
func (f *Firmware) Violations(since time.Time) []Violation {
	seen := map[string]bool{}

	for _, n := range f.nodes() {
		if cfg := n.config(); cfg != nil && !seen[clusterOf(cfg).ID()] {
			seen[clusterOf(cfg).ID()] = true
			f.checkVersions(n)
		}
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	return slices.DeleteFunc(slices.Clone(f.violations), func(v Violation) bool { return v.Time.Before(since) })
}

// checkVersions looks at all that runs in a node's cluster. One look does for all who asked for one before it began: of
// many nodes it takes long, and each asks.
func (f *Firmware) checkVersions(n *node) {
	cluster := clusterOf(n.config()).ID()

	f.mu.Lock()
	f.asked[cluster]++
	mine := f.asked[cluster]
	f.mu.Unlock()

	f.checking.Lock()
	defer f.checking.Unlock()

	f.mu.Lock()
	asked, done := f.asked[cluster], f.looked[cluster] >= mine
	f.mu.Unlock()

	if done {
		return
	}

	// What one node runs is looked at after another's: only what has not changed meanwhile was there at one time.
	all, broken := f.runningIn(cluster)
	for again, wrong := f.runningIn(cluster); !slices.EqualFunc(all, again, running.equal); again,
		wrong = f.runningIn(cluster) {
		all, broken = again, wrong
	}

	broken = append(broken, skews(all)...)

	f.mu.Lock()
	defer f.mu.Unlock()
	f.looked[cluster] = asked

	for _, r := range all {
		id := r.node + " " + r.name
		if was, ok := f.newest[id]; ok && was.Minor > r.version.Minor {
			broken = append(broken, fmt.Sprintf("%s goes back from v%s", r, was))
		}

		f.newest[id] = r.version
	}

	for _, text := range broken {
		if !slices.ContainsFunc(f.violations, func(v Violation) bool { return v.Text == text }) {
			f.violations = append(f.violations, Violation{Time: time.Now(), Text: text})
		}
	}
}

// runningIn is all that runs in a cluster, and what of it does not go together with its node's Talos.
func (f *Firmware) runningIn(cluster string) (all []running, broken []string) {
	for _, n := range f.nodes() {
		cfg := n.config()
		if cfg == nil || clusterOf(cfg).ID() != cluster {
			continue
		}

		here := n.runningVersions()
		all = append(all, here...)
		broken = append(broken, unsupported(n.image.Version, here)...)
	}

	return all, broken
}

// runningVersions are those of Kubernetes on a node.
func (n *node) runningVersions() []running {
	var out []running

	add := func(name, image string) {
		if v, err := semver.ParseTolerant(imageTag(image)); err == nil {
			out = append(out, running{n.name(), name, v})
		}
	}

	n.mu.Lock()
	for _, name := range []string{apiServer, controllerManager, scheduler} {
		if c, ok := n.components[name]; ok && c.running {
			add(name, c.image)
		}
	}

	if n.kube.joined && n.kube.kubelet != "" {
		add("kubelet", n.kube.kubelet)
	}

	in := n.kube.in
	n.mu.Unlock()

	if in == nil {
		return out
	}

	for _, p := range in.RunningOn(n.nodename()) {
		for _, c := range p.Spec.Containers {
			if c.Name == "kube-proxy" {
				add(c.Name, c.Image)
			}
		}
	}

	return out
}

// unsupported are those that a version of Talos does not go together with.
func unsupported(talos string, all []running) []string {
	target, err := compatibility.ParseTalosVersion(&machineapi.VersionInfo{Tag: talos})
	if err != nil {
		return nil
	}

	var out []string

	for _, r := range all {
		v, err := compatibility.ParseKubernetesVersion(r.version.String())
		if err != nil {
			continue
		}

		if err := v.SupportedWith(target); err != nil {
			out = append(out, fmt.Sprintf("%s: %v", r, err))
		}
	}

	return out
}

// skews are the pairs that are too far apart. Controller managers and schedulers ask the API server of their own
// machine, all else may ask any.
func skews(all []running) []string {
	var out []string

	for _, api := range all {
		if api.name != apiServer {
			continue
		}

		for _, r := range all {
			behind, local := int(api.version.Minor)-int(r.version.Minor), r.node == api.node
			tooOld := fmt.Sprintf("%s is too old for %s", r, api)

			switch {
			case r.name == apiServer && behind > 1:
				out = append(out, tooOld)
			case r.name == apiServer:
			case (r.name == controllerManager || r.name == scheduler) && !local:
			case behind < 0:
				out = append(out, fmt.Sprintf("%s is newer than %s", r, api))
			case (r.name == controllerManager || r.name == scheduler) && behind > 1, behind > maxKubeletSkew:
				out = append(out, tooOld)
			}
		}
	}

	slices.SortFunc(out, strings.Compare)

	return out
}
