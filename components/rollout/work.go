package rollout

import (
	"context"

	"talos-proxmox/components/impact"
)

// Work is what is to be done to a node.
type Work struct {
	// Effect is that of the first step.
	Effect impact.Effect
	// NotInCluster says that the node is in no cluster: nothing notices that it is taken down.
	NotInCluster bool
	// Unreachable says that the node cannot be drained, and is taken down as it is: the cluster does without it already,
	// as Kubernetes says of a worker.
	Unreachable bool
	// KeepPods says that pods stay on the node meanwhile: they outlive the work, or have no other place.
	KeepPods bool
	// Drain takes the pods off the node; nil: all of them leave, or nothing is done to it.
	Drain func(context.Context, Drain) error
	// DisruptiveSteps take the node down. A VM is restarted by the provider instead, between Prepare and Finish.
	DisruptiveSteps []DisruptiveStep
	// AfterUncordon is what is done at last, with pods on the node; nil: nothing.
	AfterUncordon func(context.Context) error
}

// DisruptiveStep takes a node down and waits until it is up again.
type DisruptiveStep struct {
	Effect impact.Effect
	// Needed says, for a step that follows another, whether there is anything left for it.
	Needed func(context.Context) (bool, error)
	Do     func(context.Context) error
}
