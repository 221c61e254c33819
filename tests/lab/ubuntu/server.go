package ubuntu

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/siderolabs/crypto/x509"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"talos-proxmox/tests/lab/kube"
)

// authorities are the files that K3s finds prepared, or makes (K3s: Using Custom CA Certificates).
var authorities = []string{"server-ca", "client-ca", "request-header-ca", "etcd/server-ca", "etcd/peer-ca"}

// cluster is what the servers of one cluster share: what is in etcd.
type cluster struct {
	// id is that of etcd.
	id   string
	etcd datastore
	kube clusterState

	// files are the authorities, by their path; the same on all servers.
	files map[string]string
	// token is the password of servers.
	token string
	// pods and services are its networks; all servers must state the same.
	pods, services string

	mu sync.Mutex
	// agentToken is the password of agents.
	agentToken string
	// running are the servers whose members run, by the names of those.
	running map[string]*service
	// deployed are the names of what servers have deployed.
	deployed []string
	// nodes are the passwords of nodes, by name.
	nodes map[string]string
}

// Deployed are the names of what is deployed in the system's namespace of the cluster that a node has joined; nil where
// it has joined none.
func (f *Firmware) Deployed(node string) []string {
	for _, c := range f.all() {
		if c.kube.Node(node) == nil {
			continue
		}

		c.mu.Lock()
		defer c.mu.Unlock()

		return slices.Clone(c.deployed)
	}

	return nil
}

// ReplaceAgentToken has the servers of each cluster let in agents by another token, as if an operator had given it to
// them, and returns the one before.
func (f *Firmware) ReplaceAgentToken(token string) (before string) {
	for _, c := range f.all() {
		c.mu.Lock()
		before, c.agentToken = c.agentToken, token
		c.mu.Unlock()
	}

	return before
}

func (f *Firmware) all() []*cluster {
	f.mu.Lock()
	defer f.mu.Unlock()

	return slices.Clone(f.clusters)
}

// server is the API of one server: Kubernetes, and K3s' supervisor on the same port.
type server struct {
	api  *kube.Server
	stop []func()
}

func (s *server) close() {
	s.api.Close()

	for _, f := range s.stop {
		f()
	}
}

// serve brings the control plane up: it goes on with the etcd on its disk. Where there is none, it joins the cluster
// that it is pointed at, or begins one (K3s: pkg/cluster, bootstrap.go).
func (k *service) serve() error {
	there, err := k.resume()

	switch c := k.config; {
	case there || err != nil:
	case c.ClusterInit == (c.Server != ""):
		return errors.New(
			"a server of the lab either begins a cluster with embedded etcd (cluster-init) or joins one (server)")
	case c.ClusterInit:
		err = k.begin()
	default:
		err = k.joinAsServer()
	}

	if err != nil {
		return err
	}

	lat := k.sys.fw.opts.Latencies
	if !k.sys.impose("etcd", lat.Etcd) || !k.sys.impose("api server", lat.APIServer) {
		return k.ctx.Err()
	}

	return k.listen()
}

// begin makes a cluster of the authorities that are prepared. K3s wants all of them or makes its own.
func (k *service) begin() error {
	found := map[string]string{}

	for _, name := range authorities {
		crt, there := k.sys.on.files.read(tlsDir + name + ".crt")
		key, both := k.sys.on.files.read(tlsDir + name + ".key")

		if !there || !both {
			return fmt.Errorf("the lab's K3s makes no authorities: %s is not prepared", name)
		}

		if _, err := tls.X509KeyPair([]byte(crt), []byte(key)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}

		if mode := k.sys.on.files.mode(tlsDir + name + ".key"); mode&0o077 != 0 {
			return fmt.Errorf("%s.key may be read by others than root: %o", name, mode)
		}

		found[name+".crt"], found[name+".key"] = crt, key
	}

	key, there := k.sys.on.files.read(tlsDir + "service.key")
	if !there || !strings.Contains(key, "RSA PRIVATE KEY") {
		return errors.New("service.key is not prepared")
	}

	found["service.key"] = key

	token, err := passwordOf(k.config.Token, found["server-ca.crt"])
	if err != nil {
		return err
	}

	c := &cluster{
		id: uuid.NewString(), files: found, token: token, agentToken: k.config.AgentToken,
		running: map[string]*service{}, nodes: map[string]string{},
	}
	c.pods, c.services = k.networks()
	c.etcd, c.kube = k.newStores(c.id, found, c.pods, c.services)

	if c.agentToken == "" {
		c.agentToken = token
	}

	if err := k.enroll(c); err != nil {
		return err
	}

	k.sys.fw.keep(c)

	return nil
}

// joinAsServer gets the authorities from a server that runs.
func (k *service) joinAsServer() error {
	client, err := dial(k.ctx, k.config.Server, k.config.Token, k.sys.now)
	if err != nil {
		return err
	}

	if err := k.compare(client); err != nil {
		return err
	}

	files, err := client.bootstrap(k.ctx)
	if err != nil {
		return err
	}

	c := k.sys.fw.clusterBy(client.cluster)
	if c == nil {
		return errors.New("etcd is gone")
	}

	for name, text := range files {
		k.sys.on.files.write(tlsDir+name, text)
	}

	if err := k.enroll(c); err != nil {
		return fmt.Errorf("ETCD join failed: %w", err)
	}

	return nil
}

// listen serves the API on the machine's address.
func (k *service) listen() error {
	c := k.cluster

	address := k.address()

	k.writeTokens(c)

	conf := kube.ServerConfig{
		Node: k.config.NodeName, Version: k.version, CA: authority(c.files, "server-ca"),
		ClientCA: []byte(c.files["client-ca.crt"]),
		Names: append([]string{
			address, k.config.NodeName, "localhost", "127.0.0.1", "kubernetes", "kubernetes.default.svc",
			serviceAddress(c, 1).String(),
		}, k.config.TLSSAN...),
		Now: k.sys.now, Journal: k.sys.fw.opts.Journal, Touch: k.sys.fw.opts.Timeline.Touch,
		Front: &supervisor{cluster: c, on: k},
	}

	end, err := k.deploy(c, &conf)
	if err != nil {
		return err
	}

	api, err := kube.NewServer(conf)
	if err != nil {
		end()

		return err
	}

	s := &server{api: api, stop: []func(){end}}

	listener, err := (&net.ListenConfig{}).Listen(k.ctx, "tcp", net.JoinHostPort(address, "6443"))
	if err != nil {
		s.close()

		return err
	}

	s.stop = append(s.stop, func() { _ = listener.Close() })
	api.Listen(listener)

	k.mu.Lock()
	k.server = s
	k.mu.Unlock()

	k.sys.work.Go(func() { k.manage(c) })

	return nil
}

// networks are those of pods and services (K3s: k3s server, cluster-cidr, service-cidr).
func (k *service) networks() (pods, services string) {
	return cmp.Or(k.config.Pods, "10.42.0.0/16"), cmp.Or(k.config.Services, "10.43.0.0/16")
}

// serviceAddress is the nth address of the network of services.
func serviceAddress(c *cluster, n int) netip.Addr {
	return nth(c.services, n)
}

// writeTokens has the server keep its tokens in their full form (K3s: pkg/server, printTokens).
func (k *service) writeTokens(c *cluster) {
	hash := sha256.Sum256([]byte(c.files["server-ca.crt"]))
	prefix := "K10" + hex.EncodeToString(hash[:]) + "::"

	c.mu.Lock()
	agentToken := c.agentToken
	c.mu.Unlock()

	k.sys.on.files.write(serverDir+"token", prefix+"server:"+c.token+"\n")
	k.sys.on.files.write(serverDir+"agent-token", prefix+"node:"+agentToken+"\n")
}

// ServerFiles are the files of a node below the directory of its server, by their path there.
func (f *Firmware) ServerFiles(node string) map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()

	found := map[string]string{}

	for _, s := range f.systems {
		if s.on == nil || s.status().Name != node {
			continue
		}

		for _, path := range s.on.files.under(serverDir) {
			found[strings.TrimPrefix(path, serverDir)], _ = s.on.files.read(path)
		}
	}

	return found
}

// manifests are what K3s deploys itself, without what is disabled. Its DNS has the tenth address.
func (k *service) manifests(c *cluster, signer *x509.PEMEncodedCertificateAndKey) kube.Manifests {
	m := kube.Manifests{
		CA: signer, APIServerIP: serviceAddress(c, 1), DNSIP: serviceAddress(c, 10),
	}

	var names []string

	for component, name := range map[string]string{
		"coredns": "coredns", "local-storage": "local-path-provisioner", "metrics-server": "metrics-server",
		"traefik": "traefik",
	} {
		if slices.Contains(k.config.Disable, component) {
			continue
		}

		names = append(names, name)
		labels := map[string]string{"k8s-app": name}

		m.Extra = append(m.Extra, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem, Labels: labels},
			Spec: appsv1.DeploymentSpec{
				Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: "rancher/mirrored-" + name}}},
				},
			},
		})
	}

	slices.SortFunc(m.Extra, func(a, b runtime.Object) int {
		return strings.Compare(a.(*appsv1.Deployment).Name, b.(*appsv1.Deployment).Name) //nolint:forcetypeassert // made above
	})
	slices.Sort(names)

	c.mu.Lock()
	c.deployed = names
	c.mu.Unlock()

	return m
}

// supervisor is what joins nodes (K3s: pkg/server/router.go), and takes snapshots (K3s: pkg/etcd/etcd.go).
type supervisor struct {
	cluster *cluster
	on      *service
}

// Handles says whether a request is the supervisor's.
func (s *supervisor) Handles(r *http.Request) bool {
	return r.URL.Path == "/cacerts" || r.URL.Path == "/db/snapshot" || strings.HasPrefix(r.URL.Path, "/v1-k3s/")
}

// ServeHTTP answers one request.
func (s *supervisor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := s.cluster

	if r.URL.Path == "/cacerts" {
		w.Header().Set(clusterHeader, c.id)
		_, _ = w.Write([]byte(c.files["server-ca.crt"]))

		return
	}

	user, password, _ := r.BasicAuth()
	asServer := user == "server" && password == c.token

	switch {
	case r.URL.Path == "/v1-k3s/server-bootstrap" && asServer:
		_ = json.NewEncoder(w).Encode(c.files)
	case r.URL.Path == "/v1-k3s/config" && (asServer || user == "node" && c.admitsAgent(password)):
		_ = json.NewEncoder(w).Encode(s.on.critical())
	case r.URL.Path == "/v1-k3s/client-kubelet.crt" && (asServer || user == "node" && c.admitsAgent(password)):
		s.kubelet(w, r)
	case r.URL.Path == "/db/snapshot" && asServer:
		s.snapshot(w, r)
	default:
		http.Error(w, "not authorized", http.StatusUnauthorized)
	}
}

// admitsAgent tells whether a password is that of agents.
func (c *cluster) admitsAgent(password string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	return password == c.agentToken
}

// snapshot keeps etcd on the disk of the server, and as many of the name as are asked for (K3s:
// pkg/etcd/snapshot_handler.go).
func (s *supervisor) snapshot(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Operation string   `json:"operation"`
		Name      []string `json:"name"`
		Retention int      `json:"retention"`
	}

	var stored []byte

	err := json.NewDecoder(r.Body).Decode(&request)

	switch {
	case err == nil && (request.Operation != "save" || len(request.Name) != 1):
		err = errors.New("invalid snapshot operation")
	case err == nil:
		stored, err = s.cluster.etcd.snapshot(s.on.memberName())
	}

	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusFailure, Message: err.Error(), Code: http.StatusInternalServerError,
		})

		return
	}

	const dir = serverDir + "db/snapshots/"

	files := s.on.sys.on.files
	prefix := request.Name[0] + "-" + s.on.config.NodeName + "-"
	name := prefix + strconv.FormatInt(time.Now().UnixNano(), 10)

	files.write(dir+name, string(stored))

	kept := slices.Sorted(slices.Values(files.under(dir + prefix)))

	for request.Retention > 0 && len(kept) > request.Retention {
		files.remove(kept[0])
		kept = kept[1:]
	}

	_ = json.NewEncoder(w).Encode(map[string][]string{"created": {name}})
}

// knows tells whether a node of a name may join with a password, and keeps that of a new one.
func (c *cluster) knows(name, password string) bool {
	registered := c.kube.Node(name) != nil

	c.mu.Lock()
	defer c.mu.Unlock()

	if known, there := c.nodes[name]; there && known != password && registered {
		return false
	}

	c.nodes[name] = password

	return true
}

// kubelet issues a node's certificate, to whoever knows the password that its name was first used with.
func (s *supervisor) kubelet(w http.ResponseWriter, r *http.Request) {
	c := s.cluster
	name, password := r.Header.Get("k3s-Node-Name"), r.Header.Get("k3s-Node-Password")

	if !c.knows(name, password) {
		http.Error(w, fmt.Sprintf("unable to verify password for node [%s]: hash does not match", name), http.StatusForbidden)

		return
	}

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(authority(c.files, "client-ca"))
	if err == nil {
		var pair *x509.KeyPair
		if pair, err = x509.NewKeyPair(ca, x509.CommonName("system:node:"+name), x509.Organization("system:nodes"),
			x509.NotAfter(time.Now().AddDate(1, 0, 0))); err == nil {
			_ = json.NewEncoder(w).Encode(map[string]string{"crt": string(pair.CrtPEM), "key": string(pair.KeyPEM)})

			return
		}
	}

	http.Error(w, err.Error(), http.StatusInternalServerError)
}

var _ http.Handler = (*supervisor)(nil)
