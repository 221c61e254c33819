// Package kubecomponents says what the components of Kubernetes accept in their configuration: with anything else they
// do not start. It is pure.
package kubecomponents
