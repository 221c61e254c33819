package kubeapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"talos-proxmox/components/wait"
)

// patient sends a request again whose connection fails.
type patient struct {
	next  http.RoundTripper
	bound time.Duration
	say   wait.Say
}

// RoundTrip implements http.RoundTripper.
func (p *patient) RoundTrip(req *http.Request) (reply *http.Response, err error) {
	err = wait.Until(req.Context(), p.bound, p.say, func(context.Context) (string, error) {
		attempt := req.Clone(req.Context())

		if req.GetBody != nil {
			if attempt.Body, err = req.GetBody(); err != nil {
				return "", err
			}
		}

		if reply, err = p.next.RoundTrip(attempt); err == nil || req.Context().Err() != nil { //nolint:bodyclose // who asked closes it
			return "", err
		}

		return fmt.Sprintf("the Kubernetes API at %s (%v)", req.URL.Host, wait.Reason(err)), nil
	})

	return reply, err
}
