package talos

import (
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/siderolabs/crypto/x509"
	securityapi "github.com/siderolabs/talos/pkg/machinery/api/security"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"talos-proxmox/tests/lab/journal"
)

// trustd signs the server certificates of workers, which do not have the CA's key (Talos: internal/app/trustd).
type trustd struct {
	securityapi.UnimplementedSecurityServiceServer

	node *node
}

// serveTrustd runs trustd on a control plane.
func (n *node) serveTrustd(ctx context.Context) {
	creds := credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			n.mu.Lock()
			defer n.mu.Unlock()

			return &tls.Config{
				MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
				Certificates: []tls.Certificate{*n.identity.server},
			}, nil
		},
	})
	srv := grpc.NewServer(grpc.Creds(creds), grpc.WaitForHandlers(true), grpc.UnaryInterceptor(n.record))
	securityapi.RegisterSecurityServiceServer(srv, &trustd{node: n})
	defer srv.Stop()

	n.serve(ctx, trustdPort, func(l net.Listener) { n.background(func(context.Context) { _ = srv.Serve(l) }) })
}

// record passes trustd's calls through the journal. They come from other nodes, which try again whatever went wrong, so
// a connection that is cut and a reply that is lost are both an error.
func (n *node) record(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any,
	error,
) {
	fault := n.fw.opts.Journal.Enter(journal.Talos, n.name(), info.FullMethod)
	if fault == nil {
		return handler(ctx, req)
	}

	if fault.Kind == journal.LoseReply {
		_, _ = handler(ctx, req)
	}

	return nil, status.Error(codes.Unavailable, fault.Message)
}

func (t *trustd) Certificate(ctx context.Context, in *securityapi.CertificateRequest) (*securityapi.CertificateResponse,
	error,
) {
	sec := t.node.config().Machine().Security()

	md, _ := metadata.FromIncomingContext(ctx)
	if token := md.Get("token"); len(token) != 1 || token[0] != sec.Token() {
		return nil, errors.New(codes.Unauthenticated.String()) // a plain error, as trustd's own
	}

	block, _ := pem.Decode(in.GetCsr())
	if block == nil {
		return nil, status.Error(codes.InvalidArgument, "failed to decode CSR")
	}

	if _, err := stdx509.ParseCertificateRequest(block.Bytes); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "failed to parse CSR: %s", err)
	}

	// whatever the request says, the certificate is one of a server, and of no organisation: it gives no role
	signed, err := x509.NewCertificateFromCSRBytes(sec.IssuingCA().Crt, sec.IssuingCA().Key, in.GetCsr(),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}),
		x509.OverrideSubject(func(subject *pkix.Name) { subject.Organization = nil }),
	)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "failed to sign CSR: %s", err)
	}

	return &securityapi.CertificateResponse{Ca: t.node.acceptedCAs(), Crt: signed.X509CertificatePEM}, nil
}

// askTrustd sends a request to the control planes that the worker knows of, until one signs it.
func (n *node) askTrustd(ctx context.Context, csr []byte) (ca, crt []byte, err error) {
	pool := stdx509.NewCertPool()
	pool.AppendCertsFromPEM(n.acceptedCAs())

	endpoints, err := n.controlPlanes(ctx)
	if err != nil {
		return nil, nil, err
	}

	if len(endpoints) == 0 {
		return nil, nil, errors.New("no control plane is known yet")
	}

	var errs []error

	for _, endpoint := range endpoints {
		reply, err := n.askOne(ctx, endpoint, pool, csr)
		if err == nil {
			return reply.GetCa(), reply.GetCrt(), nil
		}

		errs = append(errs, fmt.Errorf("trustd at %s: %w", endpoint, err))
	}

	return nil, nil, errors.Join(errs...)
}

func (n *node) askOne(ctx context.Context, endpoint string, pool *stdx509.CertPool,
	csr []byte,
) (*securityapi.CertificateResponse, error) {
	conn, err := grpc.NewClient("passthrough:///"+net.JoinHostPort(endpoint, strconv.Itoa(trustdPort)),
		grpc.WithContextDialer(n.dialTCP), grpc.WithTransportCredentials(
			credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, Time: n.now})))
	if err != nil {
		return nil, err
	}
	defer conn.Close()

	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()

	ctx = metadata.AppendToOutgoingContext(ctx, "token", n.config().Machine().Security().Token())

	return securityapi.NewSecurityServiceClient(conn).Certificate(ctx, &securityapi.CertificateRequest{Csr: csr})
}
