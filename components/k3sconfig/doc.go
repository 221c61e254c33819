// Package k3sconfig decides what a K3s node is told: the identity of its cluster, its configuration, and the user data
// that carry both into the machine. It is pure; random keys are made once by the caller, and kept.
package k3sconfig
