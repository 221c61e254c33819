// Package ubuntu is what runs in the lab's VMs that boot Ubuntu's cloud images: cloud-init, which is given its user
// data and heeds them strictly, a shell for what they install, and K3s, as far as others see it of a node.
//
// The installation script is run as it is, by a shell on files of its own; the commands that it calls are those of a
// machine with the network that the lab has. K3s takes the authorities that it finds prepared, and lets join who knows
// the token; what runs in Kubernetes is package kube, or Kubernetes as it is released, with [Options.Upstream].
package ubuntu
