package ubuntu

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/crypto/x509"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/tests/lab/kube"
)

// Where K3s has its things.
const (
	k3sConfig = "/etc/rancher/k3s/config.yaml"
	k3sLog    = "/var/log/journal/k3s"
	serverDir = "/var/lib/rancher/k3s/server/"
	tlsDir    = serverDir + "tls/"
)

// config is the configuration file of K3s, as far as the lab heeds it. Another key is none of K3s', or not known to the
// lab.
type config struct {
	Token       string   `yaml:"token"`
	AgentToken  string   `yaml:"agent-token"`
	ClusterInit bool     `yaml:"cluster-init"`
	Server      string   `yaml:"server"`
	NodeName    string   `yaml:"node-name"`
	NodeIP      string   `yaml:"node-ip"`
	TLSSAN      []string `yaml:"tls-san"`
	Pods        string   `yaml:"cluster-cidr"`
	Services    string   `yaml:"service-cidr"`
	Disable     []string `yaml:"disable"`
	NodeLabel   []string `yaml:"node-label"`
	NodeTaint   []string `yaml:"node-taint"`
	Mode        string   `yaml:"write-kubeconfig-mode"`
	Encryption  bool     `yaml:"secrets-encryption"`
	Provider    string   `yaml:"secrets-encryption-provider"`
	DNS         any      `yaml:"cluster-dns"`
	Domain      string   `yaml:"cluster-domain"`
	NoCloud     bool     `yaml:"disable-cloud-controller"`
	NoHelm      bool     `yaml:"disable-helm-controller"`
	NoPolicy    bool     `yaml:"disable-network-policy"`
	Registry    bool     `yaml:"embedded-registry"`
	Egress      string   `yaml:"egress-selector-mode"`
	Masquerade  bool     `yaml:"flannel-ipv6-masq"`
	ExternalIP  bool     `yaml:"flannel-external-ip"`
	Metrics     bool     `yaml:"supervisor-metrics"`
	APIServer   any      `yaml:"kube-apiserver-arg"`
	Kubelet     any      `yaml:"kubelet-arg"`
	// NoDefaultRegistry is heeded by containerd, which the lab does not have.
	NoDefaultRegistry bool `yaml:"disable-default-registry-endpoint"`
}

// ignored are the settings that the lab takes and does nothing about: it has no containerd, and
// its machines have no users.
func (c config) ignored() []string {
	var names []string

	for name, set := range map[string]bool{
		"write-kubeconfig-mode": c.Mode != "", "disable-default-registry-endpoint": c.NoDefaultRegistry,
	} {
		if set {
			names = append(names, name)
		}
	}

	return names
}

// packaged are the components that a server deploys unless they are disabled (K3s: Packaged Components).
var packaged = []string{"coredns", "local-storage", "metrics-server", "runtimes", "servicelb", "traefik"}

// service is K3s while it runs on a machine.
type service struct {
	sys     *system
	role    string // "controlplane" or "worker"
	version string
	config  config

	ctx  context.Context //nolint:containedctx // ends with the service
	stop context.CancelFunc

	mu      sync.Mutex
	joined  bool
	cluster *cluster // that it serves, or that it has joined
	server  *server  // nil on agents
	member  *member  // of etcd, nil on agents
}

func (k *service) ready() bool {
	k.mu.Lock()
	defer k.mu.Unlock()

	return k.joined
}

// restartK3s is systemctl restart: containers go on meanwhile.
func (s *system) restartK3s(name string) int {
	s.mu.Lock()
	starting := s.starting
	s.mu.Unlock()

	if starting != nil {
		starting.stop()
	}

	s.k3s.Lock()
	defer s.k3s.Unlock()

	s.endService()

	return s.bringUp(name)
}

// startAgain is what systemd does when K3s has ended by itself.
func (k *service) startAgain() {
	s := k.sys

	k.stop() // it may be coming up still
	s.k3s.Lock()

	s.mu.Lock()
	ours := s.service == k
	s.mu.Unlock()

	if ours {
		s.endService()
	}

	s.k3s.Unlock()

	if ours {
		s.keepK3s("k3s.service")
	}
}

// keepK3s starts K3s again until it is up.
func (s *system) keepK3s(name string) {
	for s.ctx.Err() == nil && s.startK3s(name) != 0 {
		select {
		case <-s.ctx.Done():
		case <-time.After(again):
		}
	}
}

// startK3s is systemctl start: it returns when K3s says that it is up, or has failed.
func (s *system) startK3s(name string) int {
	s.k3s.Lock()
	defer s.k3s.Unlock()

	return s.bringUp(name)
}

// bringUp starts K3s, unless it runs. The caller holds the lock.
func (s *system) bringUp(name string) int {
	log := func(format string, args ...any) { s.on.files.append(k3sLog, fmt.Sprintf(format, args...)+"\n") }

	role, there := s.on.files.read(units + name)
	binary, installed := s.on.files.read(binaryPath)

	if !there || !installed {
		log("%s: no such unit", name)

		return 5
	}

	s.mu.Lock()
	running := s.service != nil
	s.mu.Unlock()

	if running {
		return 0
	}

	k := &service{sys: s, role: "worker", version: strings.TrimPrefix(binary, Binary(""))}
	k.ctx, k.stop = context.WithCancel(s.ctx)

	// K3s reads the files of that directory after the one, in their order.
	for _, path := range append([]string{k3sConfig}, slices.Sorted(slices.Values(s.on.files.under(k3sConfig+".d/")))...) {
		text, _ := s.on.files.read(path)
		decoder := yaml.NewDecoder(strings.NewReader(text))
		decoder.KnownFields(true)

		if err := decoder.Decode(&k.config); err != nil {
			log(`level=fatal msg="%s: %v"`, path, err)
			s.fw.opts.Journal.Ignore(fmt.Sprintf("a configuration of K3s that does not start here: %v", err))
			k.stop()

			return 1
		}
	}

	for _, name := range k.config.ignored() {
		s.fw.opts.Journal.Ignore("the setting " + name + " of K3s")
	}

	if role == "server" {
		k.role = "controlplane"
	}

	s.mu.Lock()
	s.starting = k
	s.mu.Unlock()

	err := k.start()

	s.mu.Lock()
	s.starting = nil
	s.mu.Unlock()

	if err != nil {
		log(`level=fatal msg="%v"`, err)
		k.end()

		return 1
	}

	s.mu.Lock()
	s.service = k
	s.mu.Unlock()

	return 0
}

// start brings K3s up: the control plane on servers, the kubelet on all.
func (k *service) start() error {
	c := k.config

	switch {
	case c.NodeName == "" || c.Token == "":
		return fmt.Errorf("the lab's K3s wants node-name and token")
	case c.NodeIP != "" && c.NodeIP != k.address():
		return fmt.Errorf("node-ip %s is no address of this machine", c.NodeIP)
	}

	for _, name := range c.Disable {
		if !slices.Contains(packaged, name) {
			return fmt.Errorf("there is no packaged component %s", name)
		}
	}

	if k.role == "worker" {
		return k.joinAsAgent(c.Server)
	}

	if err := k.serve(); err != nil {
		return err
	}

	return k.joinAsAgent("https://" + k.address() + ":6443")
}

func (k *service) address() string { return k.sys.status().Address.String() }

// end stops K3s, and lets the cluster know that its node is lost: it would find out.
func (k *service) end() {
	k.stop()

	k.mu.Lock()
	server, cluster, joined := k.server, k.cluster, k.joined
	k.server, k.joined = nil, false
	k.mu.Unlock()

	if server != nil {
		server.close()
	}

	if cluster != nil {
		cluster.leave(k)
	}

	if cluster != nil && joined {
		cluster.kube.NodeLost(k.config.NodeName)
	}
}

// joinAsAgent gets the node a certificate for its token, and registers it.
func (k *service) joinAsAgent(url string) error {
	if err := k.checkKubelet(); err != nil {
		return err
	}

	client, issued, err := k.admitted(url)
	if err != nil {
		return err
	}

	if !k.sys.impose("kubelet", k.sys.fw.opts.Latencies.Kubelet) {
		return k.ctx.Err()
	}

	kubelet := &kube.Kubelet{
		Servers: []string{url}, CA: client.ca, Certificate: issued, Node: k.node(), Journal: k.sys.fw.opts.Journal,
	}

	if err := kubelet.Join(k.ctx); err != nil {
		return fmt.Errorf("the node does not register: %w", err)
	}

	found := k.sys.fw.clusterBy(client.cluster)
	if err := k.label(found); err != nil {
		return err
	}

	found.kube.NodeReports(k.config.NodeName)

	if err := kubelet.Report(k.ctx, true, ""); err != nil {
		return err
	}

	k.mu.Lock()
	k.joined, k.cluster = true, found
	k.mu.Unlock()

	k.runPods(kubelet)

	return nil
}

// admitted asks until the server lets the node in. K3s never gives that up, and says each time why it was not (K3s:
// pkg/agent, createProxyAndValidateToken).
func (k *service) admitted(url string) (*client, *x509.PEMEncodedCertificateAndKey, error) {
	for {
		client, issued, err := k.ask(url)
		if err == nil {
			return client, issued, nil
		}

		k.sys.on.files.append(k3sLog, fmt.Sprintf("level=error msg=\"Failed to validate connection to cluster at %s: %v\"\n",
			url, err))

		select {
		case <-k.ctx.Done():
			return nil, nil, k.ctx.Err()
		case <-time.After(again):
		}
	}
}

// ask gets a certificate for the node's token and password.
func (k *service) ask(url string) (*client, *x509.PEMEncodedCertificateAndKey, error) {
	client, err := dial(k.ctx, url, k.config.Token, k.sys.now)
	if err != nil {
		return nil, nil, err
	}

	password, _ := k.sys.on.files.read("/etc/rancher/node/password")
	if password = strings.TrimSpace(password); password == "" {
		// K3s makes one up, and keeps it.
		password = "made-up-" + k.sys.on.instance
		k.sys.on.files.write("/etc/rancher/node/password", password)
	}

	issued, err := client.kubelet(k.ctx, k.config.NodeName, password)

	return client, issued, err
}
