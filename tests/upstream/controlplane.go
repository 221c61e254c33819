package upstream

import (
	"context"
	stdx509 "crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
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

// PKI is what Talos generates for a cluster.
type PKI struct{ *secrets.Bundle }

// NewPKI generates one.
func NewPKI() (PKI, error) {
	b, err := secrets.NewBundle(secrets.NewClock(), config.TalosVersionCurrent, secrets.WithECDSAServiceAccountKey())

	return PKI{b}, err
}

// Issue signs a certificate of a client of Kubernetes.
func (p PKI) Issue(name string, groups ...string) (*x509.PEMEncodedCertificateAndKey, error) {
	return issue(p.Certs.K8s, stdx509.ExtKeyUsageClientAuth, x509.CommonName(name),
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
	cert, err := p.Issue(name, groups...)
	if err != nil {
		return nil, err
	}

	return &rest.Config{
		Host: fmt.Sprintf("https://%s:%d", address, Port), QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: p.Certs.K8s.Crt, CertData: cert.Crt, KeyData: cert.Key},
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
	if err := writeFiles(dir, address, pki); err != nil {
		return err
	}

	var err error
	if c.Etcd, err = b.StartMember(ctx, MemberConfig{Name: "cp", Dir: dir, Address: address}); err != nil {
		return err
	}

	c.processes = append(c.processes, c.Etcd.Process)

	api, err := b.start(dir, "kube-apiserver", apiServerArgs(address)...)
	if err != nil {
		return err
	}

	c.processes = append(c.processes, api)

	admin, err := pki.Config(address, "readyz", "system:masters")
	if err != nil {
		return err
	}

	client, err := rest.HTTPClientFor(admin)
	if err != nil {
		return err
	}

	if err := api.await(ctx, func() error { return ready(ctx, client, admin.Host) }); err != nil {
		return err
	}

	// These end when they cannot ask the API server what they need to know first.
	for name, args := range map[string][]string{
		"kube-controller-manager": controllerArgs, "kube-scheduler": {"--kubeconfig=scheduler.conf"},
	} {
		port, err := freePort(address)
		if err != nil {
			return err
		}

		p, err := b.start(dir, name, append(args, "--leader-elect=false", "--bind-address="+address,
			fmt.Sprintf("--secure-port=%d", port))...)
		if err != nil {
			return err
		}

		c.processes = append(c.processes, p)
	}

	return nil
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

// apiServerArgs are those of Talos, except for what has to do with addresses and files.
func apiServerArgs(address string) []string {
	return []string{
		"--admission-control-config-file=admission.yaml", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true", "--anonymous-auth=false", "--authorization-mode=Node,RBAC",
		"--enable-bootstrap-token-auth=true", "--profiling=false", "--tls-min-version=VersionTLS13",
		"--bind-address=" + address, fmt.Sprintf("--secure-port=%d", Port),
		// Endpoints cannot be of the loopback network.
		"--advertise-address=10.5.0.2", "--endpoint-reconciler-type=none",
		"--etcd-servers=" + clientURL(address), "--service-cluster-ip-range=" + serviceNetwork,
		"--service-account-issuer=https://" + net.JoinHostPort(address, "6443"),
		"--client-ca-file=ca.crt", "--tls-cert-file=server.crt", "--tls-private-key-file=server.key",
		"--kubelet-client-certificate=kubelet-client.crt", "--kubelet-client-key=kubelet-client.key",
		"--service-account-key-file=service-account.key", "--service-account-signing-key-file=service-account.key",
		"--requestheader-client-ca-file=aggregator-ca.crt", "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=front-proxy-client.crt", "--proxy-client-key-file=front-proxy-client.key",
	}
}

var controllerArgs = []string{
	"--kubeconfig=controllers.conf", "--authentication-kubeconfig=controllers.conf",
	"--authorization-kubeconfig=controllers.conf", "--use-service-account-credentials",
	"--allocate-node-cidrs=true", "--cluster-cidr=" + podNetwork, "--service-cluster-ip-range=" + serviceNetwork,
	"--cluster-signing-cert-file=ca.crt", "--cluster-signing-key-file=ca.key", "--root-ca-file=ca.crt",
	"--service-account-private-key-file=service-account.key", "--controllers=*,tokencleaner", "--profiling=false",
	"--node-monitor-grace-period=1h", // nothing renews the leases of nodes
}

// writeFiles writes what the components are started with.
func writeFiles(dir, address string, pki PKI) error {
	server := []x509.Option{
		x509.CommonName("kube-apiserver"), x509.IPAddresses([]net.IP{net.ParseIP(address), net.ParseIP("10.96.0.1")}),
		x509.DNSNames([]string{"localhost", "kubernetes", "kubernetes.default.svc"}),
	}
	kubelet := []x509.Option{
		x509.CommonName("apiserver-kubelet-client"), x509.Organization("system:masters"),
	}
	proxy := []x509.Option{x509.CommonName("front-proxy-client")}

	files := map[string][]byte{
		"ca.crt": pki.Certs.K8s.Crt, "ca.key": pki.Certs.K8s.Key, "aggregator-ca.crt": pki.Certs.K8sAggregator.Crt,
		"service-account.key": pki.Certs.K8sServiceAccount.Key,
	}

	for name, of := range map[string]struct {
		ca      *x509.PEMEncodedCertificateAndKey
		usage   stdx509.ExtKeyUsage
		options []x509.Option
	}{
		"server":             {pki.Certs.K8s, stdx509.ExtKeyUsageServerAuth, server},
		"kubelet-client":     {pki.Certs.K8s, stdx509.ExtKeyUsageClientAuth, kubelet},
		"front-proxy-client": {pki.Certs.K8sAggregator, stdx509.ExtKeyUsageClientAuth, proxy},
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
		c, err := pki.Config(address, user)
		if err != nil {
			return err
		}

		if files[file], err = Kubeconfig(c); err != nil {
			return err
		}
	}

	admission := map[string]any{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
		"plugins": []any{map[string]any{
			"name": "PodSecurity", "configuration": k8s.DefaultPodSecurityAdmissionControlConfig().PluginConfig.Object,
		}},
	}

	var err error
	if files["admission.yaml"], err = yaml.Marshal(admission); err != nil {
		return err
	}

	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}

	return nil
}
