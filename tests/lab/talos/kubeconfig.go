package talos

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	stdx509 "crypto/x509"
	"strings"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// chunk is how much of a file goes into one message (Talos: pkg/chunker).
const chunk = 1024

// adminCertificate is a client certificate of the cluster's admin, for as long as the configuration says: a year by
// default.
func adminCertificate(cfg *v1alpha1.ClusterConfig) (*x509.KeyPair, error) {
	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(cfg.ClusterCA)
	if err != nil {
		return nil, err
	}

	admin := cfg.AdminKubeconfig()

	return x509.NewKeyPair(ca,
		x509.CommonName(admin.CommonName()), x509.Organization(admin.CertOrganization()),
		x509.NotBefore(time.Now().Add(-10*time.Second)), x509.NotAfter(time.Now().Add(admin.CertLifetime())),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature|stdx509.KeyUsageKeyEncipherment),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}),
	)
}

// adminKubeconfig is the kubeconfig that Talos hands out (Talos: pkg/kubeconfig/generate.go).
func adminKubeconfig(cfg *v1alpha1.ClusterConfig) ([]byte, error) {
	pair, err := adminCertificate(cfg)
	if err != nil {
		return nil, err
	}

	cert, name := x509.NewCertificateAndKeyFromKeyPair(pair), "admin@"+cfg.Name()

	return clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			cfg.Name(): {Server: cfg.Endpoint().String(), CertificateAuthorityData: kubernetesCAs(cfg)},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			name: {ClientCertificateData: cert.Crt, ClientKeyData: cert.Key},
		},
		Contexts: map[string]*clientcmdapi.Context{
			name: {Cluster: cfg.Name(), Namespace: "default", AuthInfo: name},
		},
		CurrentContext: name,
	})
}

// Kubeconfig sends the admin's kubeconfig as a tar.gz with one file. It needs nothing but the configuration: neither
// etcd nor the Kubernetes API.
func (s *machined) Kubeconfig(_ *emptypb.Empty, stream machineapi.MachineService_KubeconfigServer) error {
	if err := s.onlyControlPlane("kubeconfig"); err != nil {
		return err
	}

	content, err := adminKubeconfig(clusterOf(s.node.config()))
	if err != nil {
		return err
	}

	var buf bytes.Buffer

	zw := gzip.NewWriter(&buf)
	tw := tar.NewWriter(zw)

	if err := tw.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: "kubeconfig", Size: int64(len(content)),
		ModTime: time.Now(), Mode: 0o600,
	}); err != nil {
		return err
	}

	if _, err := tw.Write(content); err != nil {
		return err
	}

	if err := tw.Close(); err != nil {
		return err
	}

	if err := zw.Close(); err != nil {
		return err
	}

	return sendChunks(stream.Send, buf.Bytes())
}

func sendChunks(send func(*common.Data) error, data []byte) error {
	for len(data) > 0 {
		n := min(chunk, len(data))
		if err := send(&common.Data{Bytes: data[:n]}); err != nil {
			return err
		}

		data = data[n:]
	}

	return nil
}

// GenerateClientConfiguration issues a talosconfig.
func (s *machined) GenerateClientConfiguration(_ context.Context,
	in *machineapi.GenerateClientConfigurationRequest,
) (*machineapi.GenerateClientConfigurationResponse, error) {
	if !s.node.controlPlane() {
		return nil, status.Error(codes.FailedPrecondition,
			"client configuration (talosconfig) can't be generated on worker nodes")
	}

	ttl := in.GetCrtTtl().AsDuration()
	if ttl <= 0 {
		return nil, status.Error(codes.InvalidArgument, "crt_ttl should be positive")
	}

	roles, _ := role.Parse(in.GetRoles())
	bundle, err := secrets.NewBundleFromConfig(secrets.NewFixedClock(time.Now()), s.node.config())
	if err != nil {
		return nil, err
	}

	cert, err := bundle.GenerateTalosAPIClientCertificateWithTTL(roles, ttl)
	if err != nil {
		return nil, err
	}

	name := clusterOf(s.node.config()).Name()
	if r := roles.Strings(); len(r) == 1 {
		name = strings.TrimPrefix(r[0], role.Prefix) + "@" + name
	}

	conf, err := clientconfig.NewConfig(name, nil, bundle.Certs.OS.Crt, cert).Bytes()
	if err != nil {
		return nil, err
	}

	return &machineapi.GenerateClientConfigurationResponse{Messages: []*machineapi.GenerateClientConfiguration{{
		Ca: bundle.Certs.OS.Crt, Crt: cert.Crt, Key: cert.Key, Talosconfig: conf,
	}}}, nil
}
