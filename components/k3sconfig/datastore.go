package k3sconfig

import (
	"strings"

	"talos-proxmox/components/spec"
)

const (
	// DatastoreFile tells the first server, which has none, which etcd it is to have: see Datastore. It begins none by
	// itself, for a disk without etcd may be all that is left of a cluster.
	DatastoreFile = stateDir + "datastore"
	// Begin begins a cluster with the server, unless it has an etcd.
	Begin = "cluster-init: true\n"
	// DoneFile holds the version of K3s that has been up on a node; it is not there before.
	DoneFile = stateDir + "done"
)

// Datastore is what is known when a server without etcd is to be told which one to have.
type Datastore struct {
	// Cluster and Server are their names.
	Cluster, Server string
	// Answering is the URL of another server of the cluster that answers; empty: none does.
	Answering string
	// Existed says that the state knows that the server has been in the cluster.
	Existed bool
	// Servers and Agents are the other nodes on which K3s has been up, by name.
	Servers, Agents []string
	// Unknown are other nodes that do not say whether it has, each with why.
	Unknown []string
	// AcceptEmpty says that an empty cluster is wanted where all servers are gone.
	AcceptEmpty bool
	// EmptyRecord is the resource that says that one was accepted before; empty: none was.
	EmptyRecord string
}

// Settings are what goes into the configuration of K3s. Where they are empty, something must be waited for.
func (d Datastore) Settings() (settings, waitingFor string, err error) {
	switch {
	case d.Answering != "":
		return "server: " + d.Answering + "\n", "", nil
	case len(d.Unknown) > 0:
		return "", "the guest agent to report whether K3s has run on " + strings.Join(d.Unknown, ", "), nil
	case len(d.Servers) > 0:
		return "", strings.Join(d.Servers, ", ") + " to answer: K3s has run there, and " + d.Server +
			" joins that cluster", nil
	case (d.Existed || len(d.Agents) > 0) && !d.AcceptEmpty:
		return "", "", Lost(d.Server, d.Cluster, d.EmptyRecord)
	default:
		return Begin, "", nil
	}
}

// Lost is why a server begins no second cluster. record is the resource that says that an empty one was accepted
// before, or empty.
func Lost(server, cluster, record string) error {
	accept := "set lifecycle.acceptEmptyCluster to " + cluster
	if record != "" {
		accept = "run 'pulumi state delete' with the URN of " + record +
			": lifecycle.acceptEmptyCluster was already applied once"
	}

	return spec.Blocked(
		"the cluster has no server left, so the data of etcd is lost: "+server+" would start an empty cluster",
		"restore a snapshot of K3s on it (stacks/docs/k3s.md, Restore a snapshot); or, to start an empty cluster, "+accept+
			"; then run 'pulumi up' again",
	)
}
