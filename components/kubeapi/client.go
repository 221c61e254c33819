// Package kubeapi is what the program asks of a cluster's Kubernetes API: to take the pods off a node before something
// happens to it, and to forget a node that is gone. It speaks with one control plane, never with the cluster's
// endpoint, which may be the very node that is taken down.
package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientretry "k8s.io/client-go/util/retry"

	"talos-proxmox/components/wait"
)

// port of the API server of a control plane.
const port = "6443"

// cordonedBy is the annotation of a node that this program has cordoned, so that no other is uncordoned.
const cordonedBy = "talos-proxmox/cordoned"

// fieldManager is who changes nodes, whatever the name of the program's binary.
const fieldManager = "talos-proxmox"

// requestTimeout bounds one request, for an API server that accepts connections and says nothing.
const requestTimeout = 20 * time.Second

// Client speaks with the Kubernetes API of one control plane.
type Client struct {
	api    kubernetes.Interface
	config *rest.Config
}

// New returns a client with the credentials of a kubeconfig, whatever server that names. It makes no connection.
func New(kubeconfig []byte, address string) (*Client, error) {
	return newClient(kubeconfig, address, func(err error) error { return err })
}

// NewK3s is New for a server of K3s, which does not renew a certificate while it runs.
func NewK3s(kubeconfig []byte, address string) (*Client, error) {
	return newClient(kubeconfig, address, renewedByK3s)
}

func newClient(kubeconfig []byte, address string, explain func(error) error) (*Client, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig of %s cannot be read: %w", address, err)
	}

	config.Host = "https://" + net.JoinHostPort(address, port)
	config.Timeout = requestTimeout
	config.QPS = -1 // there are as many requests as nodes
	// What is deprecated in a cluster is not said here.
	config.WarningHandler = rest.NoWarnings{}

	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return noPages{certified{next, config.CertData, explain}}
	})

	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig of %s cannot be used: %w", address, err)
	}

	return &Client{api, config}, nil
}

// noPages refuses pages: the client library takes one in answer to a deletion for a success.
type noPages struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p noPages) RoundTrip(r *http.Request) (*http.Response, error) {
	reply, err := p.RoundTripper.RoundTrip(r)
	if err != nil || !strings.HasPrefix(reply.Header.Get("Content-Type"), "text/html") {
		return reply, err
	}

	return nil, errors.Join(errors.New("text/html that is not from the Kubernetes API: a proxy may have answered "+
		"in its place"), reply.Body.Close())
}

// Of returns a client for an API that is there already, such as a fake of client-go.
func Of(api kubernetes.Interface) *Client { return &Client{api: api} }

// Node is a node as Kubernetes sees it.
type Node struct {
	Name string
	// Machine is the SMBIOS UUID of its machine, as its kubelet has reported it.
	Machine string
	// Ready is its kubelet's word, or that of the control plane when the kubelet is silent.
	Ready bool
	// Cordoned says that no pod is put on it.
	Cordoned bool
	// Ours says that it was this program that has cordoned it.
	Ours bool
	// Labelled says that it names labels, taints or annotations that this program or Talos has given it.
	Labelled bool
	// Kubelet is the version of its kubelet, with a leading v.
	Kubelet string
	// System is the name of its operating system, such as "Talos (v1.12.4)".
	System string
	// Boot is another one after each boot.
	Boot string
	// Reported is when the kubelet said last whether the node is ready, by its own clock, to the second.
	Reported time.Time

	uid     types.UID
	version string
}

// Nodes are all nodes, by name.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) {
	list, err := c.api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}

	var all []Node
	for i := range list.Items {
		all = append(all, nodeOf(&list.Items[i]))
	}

	return all, nil
}

// Node is one node; false when there is none of the name.
func (c *Client) Node(ctx context.Context, name string) (Node, bool, error) {
	n, err := c.api.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})

	switch {
	case apierrors.IsNotFound(err):
		return Node{}, false, nil
	case err != nil:
		return Node{}, false, err
	default:
		return nodeOf(n), true, nil
	}
}

func nodeOf(n *corev1.Node) Node {
	var reported corev1.NodeCondition

	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			reported = c
		}
	}

	return Node{
		Name: n.Name, Machine: n.Status.NodeInfo.SystemUUID, uid: n.UID, version: n.ResourceVersion,
		Ready: reported.Status == corev1.ConditionTrue, Reported: reported.LastHeartbeatTime.Time,
		Cordoned: n.Spec.Unschedulable, Ours: marked(n) && !cordonedByOthers(n),
		Labelled: labelled(n), Kubelet: n.Status.NodeInfo.KubeletVersion, System: n.Status.NodeInfo.OSImage,
		Boot: n.Status.NodeInfo.BootID,
	}
}

// WaitReady waits until a node is ready, in the boot that is named: it takes a while until Kubernetes notices that one
// is gone. Without one, any will do.
func (c *Client) WaitReady(ctx context.Context, name, boot string, bound time.Duration, progress wait.Reporter) error {
	return wait.Until(ctx, bound, progress, func(ctx context.Context) error {
		n, there, err := c.Node(ctx, name)

		switch {
		case err != nil:
			return wait.For("%s to be ready in Kubernetes (%v)", name, wait.Reason(err))
		case !there:
			return wait.For("%s to join Kubernetes", name)
		case !n.Ready || boot != "" && n.Boot != boot:
			return wait.For("%s to be ready in Kubernetes", name)
		default:
			return nil
		}
	})
}

// Cordon keeps new pods off a node. A node that another has cordoned stays theirs. Without the node, nothing is
// done.
func (c *Client) Cordon(ctx context.Context, name string) error {
	n, there, err := c.Node(ctx, name)
	if err != nil || !there || n.Cordoned {
		return err
	}

	return c.setCordon(ctx, name, true)
}

// Uncordon lets pods onto a node that Cordon has closed, and leaves alone what another has cordoned.
func (c *Client) Uncordon(ctx context.Context, name string) error {
	n, err := c.api.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})

	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case !marked(n):
		return nil
	case cordonedByOthers(n):
		return c.patchNode(ctx, name, markPatch(nil))
	default:
		return c.setCordon(ctx, name, false)
	}
}

// marked says that a node has the mark of a cordon of this program.
func marked(n *corev1.Node) bool { return n.Annotations[cordonedBy] != "" }

// cordonedByOthers says that another than the one who has set the mark has cordoned the node since: an operator may
// have uncordoned it after a run that was cut off, and cordoned it again.
func cordonedByOthers(n *corev1.Node) bool {
	return slices.ContainsFunc(n.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		var fields struct {
			Metadata struct {
				Annotations map[string]any `json:"f:annotations"`
			} `json:"f:metadata"`
			Spec map[string]any `json:"f:spec"`
		}

		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.Raw, &fields) != nil {
			return false
		}

		_, cordons := fields.Spec["f:unschedulable"]
		_, marks := fields.Metadata.Annotations["f:"+cordonedBy]

		return n.Spec.Unschedulable && cordons && !marks
	})
}

// setCordon changes mark and cordon at once: a run that is cut off leaves no cordon of unknown origin.
func (c *Client) setCordon(ctx context.Context, name string, cordoned bool) error {
	var mark any // nil deletes
	if cordoned {
		// Another value than one that an earlier run has left: who sets it is noted for both fields, or for none.
		mark = time.Now().UTC().Format(time.RFC3339Nano)
	}

	patch := markPatch(mark)
	patch["spec"] = map[string]any{"unschedulable": cordoned}

	return c.patchNode(ctx, name, patch)
}

func markPatch(mark any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{cordonedBy: mark}}}
}

// patchNode changes a node, if it is there.
func (c *Client) patchNode(ctx context.Context, name string, changes map[string]any) error {
	patch, err := json.Marshal(changes)
	if err != nil {
		return err
	}

	_, err = c.api.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager})
	if apierrors.IsNotFound(err) {
		return nil
	}

	return err
}

// DeleteNode makes Kubernetes forget a node that check allows to be deleted. One that has changed since it was checked
// is checked again: another machine may have joined by its name. One that is not there is no error.
func (c *Client) DeleteNode(ctx context.Context, name string, check func(Node) error) error {
	return clientretry.RetryOnConflict(clientretry.DefaultBackoff, func() error {
		n, there, err := c.Node(ctx, name)
		if err != nil || !there {
			return err
		}

		if err := check(n); err != nil {
			return err
		}

		err = c.api.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &n.uid, ResourceVersion: &n.version},
		})
		if apierrors.IsNotFound(err) {
			return nil
		}

		return err
	})
}
