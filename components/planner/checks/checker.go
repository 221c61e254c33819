// Package checks has what the checks of a spec share: the problems that they find, and the forms that values have.
package checks

import (
	"slices"
	"time"

	"talos-proxmox/components/spec"
)

// Checker carries a spec while it is checked, and what is found. Checks go on after a problem, so that all are found.
type Checker struct {
	Spec     spec.Spec
	Problems spec.Problems
	Warnings []spec.Problem
}

// HasHost says whether a host is one of proxmox.hosts.
func (c *Checker) HasHost(name string) bool {
	return slices.ContainsFunc(c.Spec.Proxmox.Hosts, func(h spec.Host) bool { return h.Name == name })
}

// Warn notes what does not stop the program.
func (c *Checker) Warn(path, rule, value, remedy string) {
	c.Warnings = append(c.Warnings, spec.Problem{Path: path, Rule: rule, Value: value, Remedy: remedy})
}

// Duration reads a span of time.
func (c *Checker) Duration(path, text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		c.Problems.Add(path, "must be a time span above zero", text, "write it like 90s, 10m or 1h")
	}

	return d
}

// IsK3s says whether the nodes run K3s.
func (c *Checker) IsK3s() bool { return c.Spec.Cluster.Distribution == spec.DistributionK3s }

// VersionKey is the key that decides the version of Kubernetes.
func (c *Checker) VersionKey() string {
	if c.IsK3s() {
		return "cluster.versions.k3s"
	}

	return "cluster.versions.kubernetes"
}
