package k3s

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/k3sconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/permissions"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/terminal"
	"talos-proxmox/components/wait"
)

// WaitJoined runs before the record of a node is created: it waits until the node is ready in Kubernetes and cloud-init
// has finished.
func (c *Cluster) WaitJoined(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	n, err := c.node(args)
	if err != nil {
		return err
	}

	c.Limiter.AddJoining(n.Name)

	j := &joinCheck{Cluster: c, node: n}
	if err := j.wait(ctx, c.Plan.ReadyTimeout); err != nil {
		return fmt.Errorf("%s has not joined: %w", n.Name, err)
	}

	return nil
}

// joinCheck is the check of one node on its way into the cluster.
type joinCheck struct {
	*Cluster

	node plan.Node

	// skipDatastore says that the first server is not told which etcd it is to have: it knows, or has one.
	skipDatastore     bool
	lastCheck         time.Time
	pendingSetUp      string // what is still missing of the machine's own set-up, as it was seen last
	cloudInitFailures string // what has gone wrong in it
}

// guestPollInterval is how often the guest agent is asked for files.
const guestPollInterval = 3 * time.Second

// wait waits until the node has joined. Where it cannot any more, or has not in time, the error shows what the machine
// says.
func (j *joinCheck) wait(ctx context.Context, timeout time.Duration) error {
	err := wait.Until(ctx, timeout, j.Progress, func(ctx context.Context) error {
		if err := j.checkInstallation(ctx); err != nil {
			return err
		}

		err := j.sendDatastoreOnce(ctx)
		if err == nil {
			err = j.checkJoined(ctx)
		}

		switch {
		case wait.NotYet(err):
			return wait.For("%v%s", err, j.cloudInitFailures)
		case err == nil && j.pendingSetUp != "":
			return wait.For("%s", j.pendingSetUp)
		default:
			return err
		}
	})
	if err == nil {
		return nil
	}

	// The wait may have ended with the context; its logs are wanted all the same, unless the operator has interrupted the
	// program.
	if ctx.Err() != nil {
		return err
	}

	return fmt.Errorf("%w\n%s", err, j.logs(ctx))
}

// sendDatastoreOnce tells the first server, once, which etcd it is to have.
func (j *joinCheck) sendDatastoreOnce(ctx context.Context) error {
	if j.skipDatastore || j.node.Name != j.Plan.ControlPlanes()[0].Name {
		return nil
	}

	err := j.sendDatastore(ctx, j.node)
	j.skipDatastore = err == nil

	return err
}

// serversToAsk are those who can say whether the node is there: a server itself, for its own API counts, and any server
// of an agent.
func (j *joinCheck) serversToAsk() []plan.Node {
	if j.node.Role == spec.RoleControlPlane {
		return []plan.Node{j.node}
	}

	return j.Plan.ControlPlanes()
}

// checkJoined is what the node lacks in Kubernetes, asked of the servers that are known.
func (j *joinCheck) checkJoined(ctx context.Context) error {
	api, err := j.kubernetesOfFirst(ctx, j.serversToAsk())
	if err != nil {
		return wait.For("%v", err)
	}

	n, there, err := api.Node(ctx, j.node.Name)

	switch {
	case err != nil:
		return wait.For("the Kubernetes API (%v)", wait.Reason(err))
	case !there:
		return wait.For("%s to join Kubernetes", j.node.Name)
	case n.Kubelet != j.Plan.K3s.Version:
		return wait.For("%s to run K3s %s (it runs %s)", j.node.Name, j.Plan.K3s.Version, n.Kubelet)
	case !n.Ready:
		return wait.For("%s to be ready in Kubernetes", j.node.Name)
	default:
		return nil
	}
}

// checkInstallation reads from time to time, through the guest agent, how the installation gets on. It is an error when
// it has given up. A machine that does not answer hides nothing that Kubernetes would not show.
func (j *joinCheck) checkInstallation(ctx context.Context) error {
	if time.Since(j.lastCheck) < guestPollInterval {
		return nil
	}

	j.lastCheck, j.pendingSetUp, j.cloudInitFailures = time.Now(), "", ""

	machine, there, err := j.Proxmox.Find(ctx, j.node.VMID)
	if err != nil || !there {
		return nil //nolint:nilerr // asked again, and not what is waited for
	}

	reason, err := j.Proxmox.GuestFile(ctx, machine, k3sconfig.FatalFile)
	if err == nil && strings.TrimSpace(reason) != "" {
		return errors.New(strings.TrimSpace(terminal.Plain(reason)))
	}

	if status, err := j.Proxmox.GuestFile(ctx, machine, k3sconfig.CloudInitStatus); err == nil {
		switch finished, failed, err := k3sconfig.Finished(status); {
		case err != nil:
		case !finished:
			j.pendingSetUp = "cloud-init of " + j.node.Name + " to finish"
		case len(failed) > 0:
			// The installation makes good for much of it, but not for all.
			j.cloudInitFailures = "; its cloud-init has failed: " + terminal.Plain(strings.Join(failed, "; "))
		}
	}

	return nil
}

// shownLogLines is how much of a log is shown: more than the installation shows of K3s' own.
const shownLogLines = 25

// logs are the ends of what the machine has logged, or why they cannot be had.
func (j *joinCheck) logs(ctx context.Context) string {
	machine, err := j.vmOf(ctx, j.node)

	var (
		shown  []string
		advice string
	)

	for _, log := range []string{k3sconfig.InstallLog, k3sconfig.CloudInitLog} {
		if err != nil {
			break
		}

		var text string
		if text, err = j.Proxmox.GuestFile(ctx, machine, log); err == nil {
			end := k3sconfig.Tail(text, shownLogLines)
			shown = append(shown, log+" ends with:\n"+indented(end))
			advice = cmp.Or(advice, k3sconfig.Advice(end))
		}
	}

	if err != nil {
		shown = append(shown, fmt.Sprintf("the machine's logs cannot be read through its guest agent: %v\nlog in, and see "+
			"them: ssh %s@%s sudo tail %s %s",
			j.explainRefusal(err, permissions.ReadGuestFiles), j.Plan.K3s.User, j.Addresses.Get(j.node.Name),
			k3sconfig.InstallLog, k3sconfig.CloudInitLog))
	}

	if advice != "" {
		shown = append(shown, advice)
	}

	return strings.Join(shown, "\n")
}

func indented(text string) string { return "    " + strings.ReplaceAll(text, "\n", "\n    ") }
