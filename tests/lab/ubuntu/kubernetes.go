package ubuntu

import (
	"fmt"
	"path/filepath"

	"github.com/siderolabs/crypto/x509"
	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/tests/lab/kube"
	"talos-proxmox/tests/lab/realkube"
	"talos-proxmox/tests/upstream"
)

// clusterState is what the lab knows of a cluster's Kubernetes without asking a server over its network, and what K3s'
// own controllers change there: the objects that the lab's own API servers serve, or what real ones told last.
type clusterState interface {
	kube.NodeStates
	// UpdateNode changes a node. Changed is closed at the next change of one.
	UpdateNode(name string, change func(*corev1.Node)) error
	Changed() <-chan struct{}
}

var (
	_ clusterState = (*kube.Cluster)(nil)
	_ clusterState = (*realkube.Cluster)(nil)
)

// issuer is that of the tokens of service accounts.
const issuer = "https://kubernetes.default.svc.cluster.local"

// newStores are an etcd and a Kubernetes that nothing is in yet.
func (k *service) newStores(id string, files map[string]string, pods, services string) (datastore, clusterState) {
	o := k.sys.fw.opts
	if o.Upstream == nil {
		return newEtcdModel(id), kube.NewCluster()
	}

	dir := filepath.Join(o.Dir, "k3s-"+id)

	return newRealEtcd(o.Upstream, dir), realkube.New(realkube.Config{
		Binary: o.Upstream, Dir: dir, Services: services, Pods: pods, Issuer: issuer,
		PKI: upstream.PKI{
			Server: authority(files, "server-ca"), Client: authority(files, "client-ca"),
			Aggregator:     authority(files, "request-header-ca"),
			ServiceAccount: &x509.PEMEncodedKey{Key: []byte(files["service.key"])},
		},
		Log: func(format string, args ...any) { k.log(fmt.Sprintf(format, args...)) },
	})
}

// authority is one among the files of servers.
func authority(files map[string]string, name string) *x509.PEMEncodedCertificateAndKey {
	return &x509.PEMEncodedCertificateAndKey{Crt: []byte(files[name+".crt"]), Key: []byte(files[name+".key"])}
}

// deploy has a configuration of a server serve the cluster's objects, with what K3s deploys. End ends what is behind it.
func (k *service) deploy(c *cluster, conf *kube.ServerConfig) (end func(), err error) {
	m := k.manifests(c, authority(c.files, "client-ca"))

	switch state := c.kube.(type) {
	case *realkube.Cluster:
		s, err := state.Serve(k.ctx, realkube.Machine{
			Address: k.address(), Version: k.version, Args: k.apiServerArgs(), File: k.sys.on.files.read,
		})
		if err != nil {
			return nil, err
		}

		conf.Backend = s

		k.sys.work.Go(func() { k.untilDone("manifests", func() error { return state.Apply(k.ctx, m) }) })

		return s.Stop, nil
	case *kube.Cluster:
		conf.Cluster, conf.Healthy = state, func() error { return c.healthy(k) }

		return func() {}, state.Apply(m)
	default:
		return nil, fmt.Errorf("nothing serves a %T", state)
	}
}

// apiServerArgs are the flags of the API server that the configuration has.
func (k *service) apiServerArgs() []string {
	var args []string
	for _, arg := range texts(k.config.APIServer) {
		args = append(args, "--"+arg)
	}

	return args
}

// texts are the values of a key of K3s' configuration, which may have one or several.
func texts(value any) []string {
	switch v := value.(type) {
	case string:
		return []string{v}
	case []any:
		var all []string
		for _, one := range v {
			all = append(all, fmt.Sprint(one))
		}

		return all
	default:
		return nil
	}
}

// untilDone does something again and again while the service runs, and logs why it cannot.
func (k *service) untilDone(what string, do func() error) {
	_ = until(k.ctx, func() error { // it ends with the service, too
		err := do()
		if err != nil && k.ctx.Err() == nil {
			k.log(fmt.Sprintf("level=error msg=%q", what+": "+err.Error()))
		}

		return err
	})
}

// runPods runs the pods of the node while K3s does, where nothing else says that they run.
func (k *service) runPods(kubelet *kube.Kubelet) {
	if k.sys.fw.opts.Upstream == nil {
		return
	}

	k.sys.work.Go(func() { k.untilDone("pods", func() error { return kubelet.RunPods(k.ctx, k.ready) }) })
}

// log writes a line into K3s' journal.
func (k *service) log(line string) { k.sys.on.files.append(k3sLog, line+"\n") }
