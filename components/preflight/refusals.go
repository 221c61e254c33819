package preflight

import (
	"errors"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// explain names what to change when Proxmox VE does not answer, or not us.
func explain(err error) error {
	switch {
	case errors.Is(err, proxmoxapi.ErrUnreachable):
		return spec.Problems{{
			Path: "proxmox.endpoint", Rule: err.Error(), Remedy: "correct it, or make sure that the host is up and " +
				"its port is reachable from here",
		}}
	case errors.Is(err, proxmoxapi.ErrOffline):
		return spec.Problems{{Path: "proxmox.endpoint", Rule: err.Error(), Remedy: "unset it: without Proxmox VE there are " +
			"only previews"}}
	case errors.Is(err, proxmoxapi.ErrUntrusted):
		return spec.Problems{{
			Path: "proxmox.endpoint", Rule: err.Error(),
			Remedy: "let this machine trust the certificate's authority, or set proxmox.insecure",
		}}
	case errors.Is(err, proxmoxapi.ErrRefused):
		return spec.Problems{refusal(err)}
	default:
		return err
	}
}

func refusal(err error) spec.Problem {
	return spec.Problem{
		Path: "proxmox.tokenId", Rule: err.Error(),
		Remedy: "check it with proxmoxTokenSecret (or proxmox.username with proxmoxPassword), and that its role may do this",
	}
}

// noteRefused notes the requests of checks that were refused.
func (c *checker) noteRefused(refused []error) {
	// A privilege that is missing says more than the call that was refused for it.
	for _, err := range refused {
		switch {
		case c.permissions.ReadOnly:
			c.Warnings = append(c.Warnings, spec.Problem{
				Path: "proxmox", Rule: "was not checked with read-only credentials: " + err.Error(),
			})
		case !c.permissions.Denied:
			c.Problems = append(c.Problems, refusal(err))
		}
	}
}
