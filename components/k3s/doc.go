// Package k3s decides what a K3s node is told: the identity of its cluster, its configuration, and the user data that
// carry both into the machine. It is pure; random keys come from the caller's call and stay as they are from then on.
package k3s
