package kubeapi

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/components/wait"
)

// certified explains what a certificate fails for.
type certified struct {
	http.RoundTripper

	// own is the client certificate, PEM.
	own []byte
	// explain is what is made of a server's certificate that has expired.
	explain func(error) error
}

// RoundTrip implements http.RoundTripper.
func (c certified) RoundTrip(r *http.Request) (*http.Response, error) {
	reply, err := c.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, c.explain(err)
	}

	if reply.StatusCode == http.StatusUnauthorized {
		if err := c.unknown(reply); err != nil {
			return nil, err
		}
	}

	return reply, nil
}

// unknown adds to an answer how long the certificate is valid: an API server does not say why it refuses one.
func (c certified) unknown(reply *http.Response) error {
	block, _ := pem.Decode(c.own)
	if block == nil {
		return nil
	}

	own, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil //nolint:nilerr // the answer stays as it is
	}

	body, err := io.ReadAll(reply.Body)
	if err = errors.Join(err, reply.Body.Close()); err != nil {
		return err
	}

	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Reason == metav1.StatusReasonUnauthorized {
		status.Message = fmt.Sprintf("%s: it does not accept the administrator's certificate, which is valid from %s to %s; "+
			"correct its clock if it is wrong ('date -u' shows it), then run 'pulumi up' again", status.Message,
			own.NotBefore.UTC().Format(time.RFC3339), own.NotAfter.UTC().Format(time.RFC3339))

		if body, err = json.Marshal(status); err != nil {
			return err
		}
	}

	reply.Body, reply.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	reply.Header.Del("Content-Length")

	return nil
}

// renewedByK3s names the command that renews a certificate which has expired: K3s does so when it starts.
func renewedByK3s(err error) error {
	if clock, is := wait.Clock(err.Error()); is && clock.Expired {
		return errors.New(clock.Fact + ": run 'sudo systemctl restart k3s' on it, which renews it, then 'pulumi up' again; " +
			"if this machine's clock is wrong ('date -u' shows it), correct it instead")
	}

	return err
}
