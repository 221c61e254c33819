package kubeapi

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"talos-proxmox/components/wait"
)

// What K3s says on a Node about its member of etcd, and takes from there (K3s: pkg/etcd, member_controller.go and
// metadata_controller.go).
const (
	etcdRole      = "node-role.kubernetes.io/etcd"
	memberName    = "etcd.k3s.cattle.io/node-name"
	removeMember  = "etcd.k3s.cattle.io/remove"
	removedMember = "etcd.k3s.cattle.io/removed-node-name"
	voter         = corev1.NodeConditionType("EtcdIsVoter")
)

// leaving is the annotation of a node whose VM this program has shut down to remove it.
const leaving = "talos-proxmox/leaving"

// Server is what a node of K3s says about the member of etcd that its server has.
type Server struct {
	// Member is the name of the member; empty: it has none, or has none any more.
	Member string
	// Learner has no vote yet.
	Learner bool
	// Machine is the SMBIOS UUID of the machine.
	Machine string
	// Leaving says that this program has shut its VM down to remove it.
	Leaving bool
}

// Servers are the nodes of K3s that have a server, by name.
func (c *Client) Servers(ctx context.Context) (map[string]Server, error) {
	list, err := c.api.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: etcdRole + "=true"})
	if err != nil {
		return nil, err
	}

	found := map[string]Server{}

	for i := range list.Items {
		n := &list.Items[i]
		s := Server{
			Member: n.Annotations[memberName], Machine: n.Status.NodeInfo.SystemUUID,
			Leaving: n.Annotations[leaving] != "",
		}

		// One that was removed and has come back has another name, which K3s notes when it sees that.
		if gone := n.Annotations[removedMember]; gone != "" && gone == s.Member {
			s.Member = ""
		}

		for _, condition := range n.Status.Conditions {
			s.Learner = s.Learner || condition.Type == voter && condition.Status == corev1.ConditionFalse
		}

		found[n.Name] = s
	}

	return found, nil
}

// MarkLeaving notes on a node that its VM is shut down to remove it.
func (c *Client) MarkLeaving(ctx context.Context, name string) error {
	return c.annotate(ctx, name, leaving)
}

// RemoveMember has K3s remove the member of etcd of a node, and waits until it has.
func (c *Client) RemoveMember(ctx context.Context, name string, bound time.Duration, progress wait.Reporter) error {
	if err := c.annotate(ctx, name, removeMember); err != nil {
		return err
	}

	return wait.Until(ctx, bound, progress, func(ctx context.Context) error {
		n, err := c.api.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})

		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return wait.For("etcd to remove the member of %s (%v)", name, wait.Reason(err))
		case n.Annotations[removedMember] == "" || n.Annotations[memberName] != "" &&
			n.Annotations[memberName] != n.Annotations[removedMember]:
			return wait.For("etcd to remove the member of %s", name)
		default:
			return nil
		}
	})
}

// WaitForgotten waits until a node that was deleted is gone: K3s has yet to finish with it.
func (c *Client) WaitForgotten(ctx context.Context, name string, bound time.Duration, progress wait.Reporter) error {
	return wait.Until(ctx, bound, progress, func(ctx context.Context) error {
		_, there, err := c.Node(ctx, name)

		switch {
		case err != nil:
			return wait.For("Kubernetes to delete the node %s (%v)", name, wait.Reason(err))
		case there:
			return wait.For("Kubernetes to delete the node %s", name)
		default:
			return nil
		}
	})
}

func (c *Client) annotate(ctx context.Context, name, annotation string) error {
	patch,
		err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{annotation: "true"}}})
	if err != nil {
		return err
	}

	_, err = c.api.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})

	return err
}
