package talos

import (
	"context"
	"time"
)

// goesDown notes that a node which was up is so no more.
func (n *node) goesDown(why string) {
	n.mu.Lock()
	up := n.up
	n.up = false
	n.mu.Unlock()

	if up {
		n.fw.history.down(n.name(), n.config().Machine().Type().String(), why)
	}
}

// allThere tells whether the node does what it is there for: its services run, and its Node is Ready.
func (n *node) allThere() bool {
	if !n.services.running("apid") || !n.services.running("kubelet") {
		return false
	}

	if n.controlPlane() && (!n.services.running("etcd") || n.etcdHealth() != "") {
		return false
	}

	if n.config().K8sNodeConfig().SkipNodeRegistration() {
		return true
	}

	n.mu.Lock()
	in := n.kube.in
	n.mu.Unlock()

	if in == nil {
		return false
	}

	_, ready := in.NodeReady(n.nodename())

	return ready
}

// watchReturn notes that the node is up: its services run, and its Node is Ready.
func (n *node) watchReturn(ctx context.Context) {
	for {
		changed := n.kick.next()

		if n.allThere() {
			n.mu.Lock()
			n.up = n.why == ""
			n.mu.Unlock()

			n.fw.history.up(n.name())
			n.store(func(i *Installed) {
				// Another system may be installed by now, which has not come up yet.
				i.fresh = i.fresh && i.Image.describe() != n.image.describe()
			})

			return
		}

		select {
		case <-changed:
		case <-time.After(retry): // others say whether the Node is Ready
		case <-ctx.Done():
			return
		}
	}
}
