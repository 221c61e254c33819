package config

import (
	"net/url"
	"regexp"
	"strings"
	"time"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// The forms that the provider and Proxmox VE accept. The provider passes over a token of another form without a word.
var (
	tokenID     = regexp.MustCompile(`^[^\s@!=]+@[^\s@!=]+![^\s@!=]+$`)
	tokenSecret = regexp.MustCompile(`^[a-zA-Z0-9-]+$`)
	userName    = regexp.MustCompile(`^[^\s@!=]+@[^\s@!=]+$`)
)

// Access is how Proxmox VE is reached, by the API token or by the user that the configuration names. A duration that
// lifecycle does not state is zero, which stands for the client's default.
func (c Config) Access() proxmoxapi.Access {
	timeout, _ := time.ParseDuration(c.Lifecycle.TaskTimeout) // the plan refuses what is none; absent: 0
	grace, _ := time.ParseDuration(c.Lifecycle.SettleTimeout)

	return proxmoxapi.Access{
		TaskTimeout: timeout, GracePeriod: grace,
		Endpoint: c.Proxmox.Endpoint, Insecure: c.Proxmox.Insecure,
		TokenID: c.Proxmox.TokenID, TokenSecret: c.ProxmoxTokenSecret,
		Username: c.Proxmox.Username, Password: c.ProxmoxPassword, Offline: c.Offline,
	}
}

// checkAccess checks how Proxmox VE is reached. No secret is ever quoted.
func (c Config) checkAccess() spec.Problems {
	var ps spec.Problems

	p := c.Proxmox

	switch u, err := url.Parse(p.Endpoint); {
	case p.Endpoint == "":
		ps.Add("proxmox.endpoint", "is required", "", "write it like https://pve.lan:8006")
	case err == nil && u.User != nil:
		ps.Add("proxmox.endpoint", "must not hold credentials", u.Redacted(), "use proxmox.tokenId and proxmoxTokenSecret")
	case err != nil || u.Host == "":
		given := p.Endpoint
		if strings.Contains(given, "@") {
			given = "" // what stands before it may be a password
		}

		ps.Add("proxmox.endpoint", "must be a URL", given, "write it like https://pve.lan:8006")
	case u.Scheme != "https":
		ps.Add("proxmox.endpoint", "must begin with https://", p.Endpoint,
			"Proxmox VE serves its API with TLS only: write https://"+u.Host)
	case spec.HasWrongPort(u):
		ps.Add("proxmox.endpoint", spec.WrongPort, p.Endpoint,
			"write https://"+u.Hostname()+":8006")
	case strings.TrimSuffix(u.Path, "/") != "" && strings.TrimSuffix(u.Path, "/") != "/api2/json":
		ps.Add("proxmox.endpoint", "must have no path but /api2/json", p.Endpoint, "write https://"+u.Host)
	}

	switch {
	case p.TokenID != "" && p.Username != "":
		ps.Add("proxmox.username", "excludes proxmox.tokenId", p.Username, "keep one of the two")
	case p.TokenID != "":
		if id, _, whole := strings.Cut(p.TokenID, "="); whole {
			ps.Add("proxmox.tokenId", "must have the form user@realm!name, without the secret", id+"=...",
				"put what follows the = into proxmoxTokenSecret")
		} else if !tokenID.MatchString(p.TokenID) {
			ps.Add("proxmox.tokenId", "must have the form user@realm!name", p.TokenID,
				"copy it from Datacenter, Permissions, API Tokens")
		}

		secret(&ps, "proxmoxTokenSecret", c.ProxmoxTokenSecret, tokenSecret)
	case p.Username != "":
		if !userName.MatchString(p.Username) {
			ps.Add("proxmox.username", "must have the form user@realm", p.Username, "write it like root@pam")
		}

		secret(&ps, "proxmoxPassword", c.ProxmoxPassword, nil)
	default:
		ps.Add("proxmox.tokenId", "is required", "", "name an API token, user@realm!name, or set proxmox.username")
	}

	return ps
}

func secret(ps *spec.Problems, key, value string, form *regexp.Regexp) {
	switch {
	case value == "":
		ps.Add(key, "is required", "", "run: pulumi config set --secret "+key)
	case form != nil && !form.MatchString(value):
		ps.Add(key, "does not look like the secret of an API token: letters, digits and dashes", "",
			"run: pulumi config set --secret "+key)
	}
}
