package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/types/k8s"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"
)

// The networks that Talos configures by default.
const (
	podNetwork     = "10.244.0.0/16"
	serviceNetwork = "10.96.0.0/12"
)

// Port is that of the API server.
const Port = 6443

// PKI are the authorities of a cluster.
type PKI struct {
	// Server signs the certificates of API servers, Client those of their clients, Aggregator those of their proxies.
	Server, Client, Aggregator *x509.PEMEncodedCertificateAndKey
	// ServiceAccount signs the tokens of service accounts.
	ServiceAccount *x509.PEMEncodedKey
}

// NewPKI generates what Talos generates for a cluster.
func NewPKI() (PKI, error) {
	b, err := secrets.NewBundle(secrets.NewClock(), config.TalosVersionCurrent, secrets.WithECDSAServiceAccountKey())
	if err != nil {
		return PKI{}, err
	}

	return TalosPKI(b.Certs.K8s, b.Certs.K8sAggregator, b.Certs.K8sServiceAccount), nil
}

// TalosPKI are the authorities of a cluster of Talos: one signs for servers and clients.
func TalosPKI(kubernetes, aggregator *x509.PEMEncodedCertificateAndKey, serviceAccount *x509.PEMEncodedKey) PKI {
	return PKI{Server: kubernetes, Client: kubernetes, Aggregator: aggregator, ServiceAccount: serviceAccount}
}

// Issue signs a certificate of a client of Kubernetes.
func (p PKI) Issue(name string, groups ...string) (*x509.PEMEncodedCertificateAndKey, error) {
	return issue(p.Client, stdx509.ExtKeyUsageClientAuth, x509.CommonName(name),
		x509.Organization(groups...))
}

func issue(ca *x509.PEMEncodedCertificateAndKey, usage stdx509.ExtKeyUsage,
	options ...x509.Option,
) (*x509.PEMEncodedCertificateAndKey, error) {
	authority, err := x509.NewCertificateAuthorityFromCertificateAndKey(ca)
	if err != nil {
		return nil, err
	}

	pair, err := x509.NewKeyPair(authority, append(options,
		x509.NotAfter(time.Now().Add(24*time.Hour)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature|stdx509.KeyUsageKeyEncipherment),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{usage}))...)
	if err != nil {
		return nil, err
	}

	return x509.NewCertificateAndKeyFromKeyPair(pair), nil
}

// Config is that of a client with a certificate, of the API server at an address.
func (p PKI) Config(address, name string, groups ...string) (*rest.Config, error) {
	return p.configAt(fmt.Sprintf("https://%s:%d", address, Port), name, groups...)
}

func (p PKI) configAt(host, name string, groups ...string) (*rest.Config, error) {
	cert, err := p.Issue(name, groups...)
	if err != nil {
		return nil, err
	}

	return &rest.Config{
		Host: host, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: p.Server.Crt, CertData: cert.Crt, KeyData: cert.Key},
	}, nil
}

// Kubeconfig is a configuration as a file.
func Kubeconfig(c *rest.Config) ([]byte, error) {
	out := clientcmdapi.NewConfig()
	out.Clusters["c"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	out.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: c.CertData, ClientKeyData: c.KeyData}
	out.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	out.CurrentContext = "x"

	return clientcmd.Write(*out)
}

// ControlPlane is a control plane that runs: a member of etcd, the API server, the controllers and the scheduler.
type ControlPlane struct {
	Etcd      *Member
	processes []*Process
}

// Logs are the ends of the logs.
func (c *ControlPlane) Logs() string {
	var all []string
	for _, p := range c.processes {
		all = append(all, p.name+": "+p.Tail())
	}

	return strings.Join(all, "\n")
}

// Stop ends everything.
func (c *ControlPlane) Stop() {
	for _, p := range c.processes {
		p.Stop()
	}
}

// Costs are the costs of the processes, by their names.
func (c *ControlPlane) Costs() string {
	var all []string

	for _, p := range c.processes {
		cpu, memory := p.Cost()
		all = append(all, fmt.Sprintf("%s %.1f s, %d MB", p.name, cpu.Seconds(), memory>>20))
	}

	return strings.Join(all, "; ")
}

// StartControlPlane starts a control plane at an address of the loopback network, as Talos does, and waits until the
// API server is ready.
func (b *Binary) StartControlPlane(ctx context.Context, dir, address string, pki PKI) (*ControlPlane, error) {
	c := &ControlPlane{}

	err := c.start(ctx, b, dir, address, pki)
	if err != nil {
		c.Stop()

		return nil, err
	}

	return c, nil
}

func (c *ControlPlane) start(ctx context.Context, b *Binary, dir, address string, pki PKI) error {
	var err error
	if c.Etcd, err = b.StartMember(ctx, MemberConfig{Name: "cp", Dir: dir, Address: address}); err != nil {
		return err
	}

	c.processes = append(c.processes, c.Etcd.Process)

	admission, err := Admission(map[string]any{
		"PodSecurity": k8s.DefaultPodSecurityAdmissionControlConfig().PluginConfig.Object,
	})
	if err != nil {
		return err
	}

	api, err := b.StartAPIServer(ctx, APIServerConfig{
		Dir: dir, Address: address, Port: Port, PKI: pki, Services: serviceNetwork, Pods: podNetwork,
		Args: []string{"--" + AdmissionFlag + "=/admission.yaml"},
		File: func(string) (string, bool) { return string(admission), true },
	})
	if err != nil {
		return err
	}

	c.processes = append(c.processes, api.Process)

	controllers, err := b.StartControllers(api)
	c.processes = append(c.processes, controllers...)

	return err
}

// APIServerConfig is what an API server is started with.
type APIServerConfig struct {
	// Dir has its files, and those of the controllers.
	Dir string
	// Address is a loopback address, at which a member of etcd runs; Port 0: one that is free.
	Address string
	Port    int
	PKI     PKI
	// Services and Pods are the networks of the cluster, as the flags of Kubernetes have them.
	Services, Pods string
	// Issuer is that of the tokens of service accounts; empty: the server itself.
	Issuer string
	// Args are further flags, instead of those that the server has otherwise. A value that is a path is one of the
	// machine, whose file goes with the server.
	Args []string
	// File is what a file of the machine holds.
	File func(path string) (text string, there bool)
}

// AdmissionFlag names the file that configures admission plugins.
const AdmissionFlag = "admission-control-config-file"

// Admission is the file that configures admission plugins.
func Admission(plugins map[string]any) ([]byte, error) {
	var all []any
	for _, name := range slices.Sorted(maps.Keys(plugins)) {
		all = append(all, map[string]any{"name": name, "configuration": plugins[name]})
	}

	return yaml.Marshal(map[string]any{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": all,
	})
}

// APIServer is an API server that runs.
type APIServer struct {
	*Process
	APIServerConfig
}

// Host is where the server answers.
func (s *APIServer) Host() string { return fmt.Sprintf("https://%s:%d", s.Address, s.Port) }

// Config is that of a client with a certificate.
func (s *APIServer) Config(name string, groups ...string) (*rest.Config, error) {
	return s.PKI.configAt(s.Host(), name, groups...)
}

// FrontProxyCertificate is the one that a proxy in front of the server identifies itself with: the server believes it
// who the users of requests are.
func (s *APIServer) FrontProxyCertificate() (tls.Certificate, error) {
	pair, err := issue(s.PKI.Aggregator, stdx509.ExtKeyUsageClientAuth, frontProxy...)
	if err != nil {
		return tls.Certificate{}, err
	}

	return tls.X509KeyPair(pair.Crt, pair.Key)
}

var frontProxy = []x509.Option{x509.CommonName("front-proxy-client")}

// StartAPIServer starts an API server as Talos does, and waits until it is ready.
func (b *Binary) StartAPIServer(ctx context.Context, c APIServerConfig) (*APIServer, error) {
	if c.Port == 0 {
		var err error
		if c.Port, err = freePort(c.Address); err != nil {
			return nil, err
		}
	}

	s := &APIServer{APIServerConfig: c}
	s.Args = slices.Clone(c.Args)

	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}

	if err := errors.Join(s.writeFiles(), s.takeFiles()); err != nil {
		return nil, err
	}

	admin, err := s.Config("readyz", "system:masters")
	if err != nil {
		return nil, err
	}

	client, err := rest.HTTPClientFor(admin)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()

	if s.Process, err = b.start(c.Dir, "kube-apiserver", s.args()...); err != nil {
		return nil, err
	}

	if err := s.await(ctx, func() error { return ready(ctx, client, admin.Host) }); err != nil {
		s.Stop()

		return nil, err
	}

	return s, nil
}

// StartControllers starts the controllers and the scheduler of a cluster at an API server that is ready: they end when
// they cannot ask it what they need to know first. Those that were started are returned with an error, too.
func (b *Binary) StartControllers(s *APIServer) ([]*Process, error) {
	var all []*Process

	for name, args := range map[string][]string{
		"kube-controller-manager": s.controllerArgs(), "kube-scheduler": {"--kubeconfig=scheduler.conf"},
	} {
		port, err := freePort(s.Address)
		if err != nil {
			return all, err
		}

		p, err := b.start(s.Dir, name, append(args, "--leader-elect=false", "--bind-address="+s.Address,
			fmt.Sprintf("--secure-port=%d", port))...)
		if err != nil {
			return all, err
		}

		all = append(all, p)
	}

	return all, nil
}

func ready(ctx context.Context, client *http.Client, host string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/readyz", nil)
	if err != nil {
		return err
	}

	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()

	if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", answer.Status, text)
	}

	return nil
}

// args are those of Talos, except for what has to do with addresses and files.
func (s *APIServer) args() []string {
	args := []string{
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true", "--anonymous-auth=false", "--authorization-mode=Node,RBAC",
		"--enable-bootstrap-token-auth=true", "--profiling=false", "--tls-min-version=VersionTLS13",
		"--bind-address=" + s.Address, fmt.Sprintf("--secure-port=%d", s.Port),
		// Endpoints cannot be of the loopback network.
		"--advertise-address=10.5.0.2", "--endpoint-reconciler-type=none",
		"--etcd-servers=" + clientURL(s.Address), "--service-cluster-ip-range=" + s.Services,
		"--service-account-issuer=" + cmp.Or(s.Issuer, s.Host()),
		"--client-ca-file=client-ca.crt", "--tls-cert-file=server.crt", "--tls-private-key-file=server.key",
		"--kubelet-client-certificate=kubelet-client.crt", "--kubelet-client-key=kubelet-client.key",
		"--service-account-key-file=service-account.key", "--service-account-signing-key-file=service-account.key",
		"--requestheader-client-ca-file=aggregator-ca.crt", "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=front-proxy-client.crt", "--proxy-client-key-file=front-proxy-client.key",
	}

	stated := map[string]bool{}
	for _, arg := range s.Args {
		stated[flagOf(arg)] = true
	}

	return append(slices.DeleteFunc(args, func(arg string) bool { return stated[flagOf(arg)] }), s.Args...)
}

func flagOf(arg string) string {
	name, _, _ := strings.Cut(arg, "=")

	return name
}

// machineFiles is the directory of what a server has of the files of its machine.
const machineFiles = "machine"

// takeFiles writes the files that flags name, and has the flags name those.
func (s *APIServer) takeFiles() error {
	for i, arg := range s.Args {
		name, path, _ := strings.Cut(arg, "=")
		if !strings.HasPrefix(path, "/") {
			continue
		}

		own := filepath.Join(machineFiles, path)
		if err := os.MkdirAll(filepath.Join(s.Dir, filepath.Dir(own)), 0o700); err != nil {
			return err
		}

		s.Args[i] = name + "=" + own

		if text, there := s.File(path); there {
			if err := os.WriteFile(filepath.Join(s.Dir, own), []byte(text), 0o600); err != nil {
				return err
			}
		}
	}

	return nil
}

func (s *APIServer) controllerArgs() []string {
	return []string{
		"--kubeconfig=controllers.conf", "--authentication-kubeconfig=controllers.conf",
		"--authorization-kubeconfig=controllers.conf", "--use-service-account-credentials",
		"--allocate-node-cidrs=true", "--cluster-cidr=" + s.Pods, "--service-cluster-ip-range=" + s.Services,
		"--cluster-signing-cert-file=client-ca.crt", "--cluster-signing-key-file=client-ca.key",
		"--root-ca-file=server-ca.crt",
		"--service-account-private-key-file=service-account.key", "--controllers=*,tokencleaner", "--profiling=false",
		"--node-monitor-grace-period=1h", // nothing renews the leases of nodes
		"--node-monitor-period=1s",
	}
}

// writeFiles writes what the components are started with.
func (s *APIServer) writeFiles() error {
	dir, address, pki := s.Dir, s.Address, s.PKI
	server := []x509.Option{
		x509.CommonName("kube-apiserver"), x509.IPAddresses([]net.IP{net.ParseIP(address), net.ParseIP("10.96.0.1")}),
		x509.DNSNames([]string{"localhost", "kubernetes", "kubernetes.default.svc"}),
	}
	kubelet := []x509.Option{
		x509.CommonName("apiserver-kubelet-client"), x509.Organization("system:masters"),
	}

	files := map[string][]byte{
		"server-ca.crt": pki.Server.Crt, "client-ca.crt": pki.Client.Crt, "client-ca.key": pki.Client.Key,
		"aggregator-ca.crt": pki.Aggregator.Crt, "service-account.key": pki.ServiceAccount.Key,
	}

	for name, of := range map[string]struct {
		ca      *x509.PEMEncodedCertificateAndKey
		usage   stdx509.ExtKeyUsage
		options []x509.Option
	}{
		"server":             {pki.Server, stdx509.ExtKeyUsageServerAuth, server},
		"kubelet-client":     {pki.Client, stdx509.ExtKeyUsageClientAuth, kubelet},
		"front-proxy-client": {pki.Aggregator, stdx509.ExtKeyUsageClientAuth, frontProxy},
	} {
		pair, err := issue(of.ca, of.usage, of.options...)
		if err != nil {
			return err
		}

		files[name+".crt"], files[name+".key"] = pair.Crt, pair.Key
	}

	for file, user := range map[string]string{
		"controllers.conf": "system:kube-controller-manager", "scheduler.conf": "system:kube-scheduler",
	} {
		c, err := s.Config(user)
		if err != nil {
			return err
		}

		if files[file], err = Kubeconfig(c); err != nil {
			return err
		}
	}

	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}

	return nil
}
