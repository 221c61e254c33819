package talosapi

import (
	"context"
	"crypto/tls"
	"net/url"
	"time"

	"talos-proxmox/components/wait"
)

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
