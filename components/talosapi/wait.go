package talosapi

import (
	"context"
	"crypto/tls"
	"net/url"
	"time"

	"talos-proxmox/components/wait"
)

// WaitAnswering waits until the node's API port answers, configured or not.
func WaitAnswering(ctx context.Context, t Target, bound time.Duration, progress wait.Reporter) error {
	return wait.Until(ctx, bound, progress, func(ctx context.Context) error {
		if err := answers(ctx, t); err != nil {
			return wait.For("%s to answer at %s (%v)", t.Name, t.Address, wait.Reason(err))
		}

		return nil
	})
}

// WaitReady waits until etcd, the kubelet and the Kubernetes API server are up on every control plane. When it gives
// up, the error says of each node what it still lacked.
func WaitReady(ctx context.Context, nodes []Target, c Credentials, bound time.Duration, progress wait.Reporter) error {
	probes, err := open(ctx, nodes, c)
	if err != nil {
		return err
	}
	defer probes.close()

	return wait.Until(ctx, bound, progress, func(ctx context.Context) error {
		return probes.missing(ctx)
	})
}

// WaitEndpoint waits until the Kubernetes API answers where the cluster's endpoint is ("https://10.0.0.20:6443"), with
// a certificate that covers it. Who signed the certificate is for its users to decide.
func WaitEndpoint(ctx context.Context, endpoint string, bound time.Duration, progress wait.Reporter) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}

	return wait.Until(ctx, bound, progress, func(ctx context.Context) error {
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}} //nolint:gosec // nothing is sent

		conn, err := dialer.DialContext(ctx, "tcp", u.Host)
		if err != nil {
			return wait.For("the Kubernetes API to answer at %s (%v)", endpoint, wait.Reason(err))
		}
		defer conn.Close() // it has served

		shown := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
		if err := shown.VerifyHostname(u.Hostname()); err != nil {
			return wait.For("a certificate that covers %s (%v)", endpoint, err)
		}

		return nil
	})
}
