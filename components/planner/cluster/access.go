package cluster

import (
	"cmp"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/labels"
	"golang.org/x/crypto/ssh"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spec"
)

var userName = regexp.MustCompile(`^[a-z_][a-z0-9_.-]*$`)

// CheckEndpointPort warns of an endpoint without a port, which means 443.
func (r *Resolver) CheckEndpointPort() {
	given := r.Spec.Proxmox.Endpoint

	if u, err := url.Parse(given); err == nil && u.Host != "" && u.Port() == "" && u.User == nil {
		r.Warn("proxmox.endpoint", "has no port, which means 443: Proxmox VE itself listens on 8006", given,
			"write https://"+u.Host+":8006, or :443 if a proxy listens there")
	}
}

// checkHostKey: the program and the provider must ask the same server, so its address is set too.
func (r *Resolver) checkHostKey(path, host string, login *spec.SSH) {
	given := login.HostKeys[host]

	if !r.HasHost(host) {
		r.Problems.Add(path, "is not one of proxmox.hosts", host, "name one of them, or add it")
	} else if login.Addresses[host] == "" {
		r.Problems.Add("proxmox.ssh.addresses."+host, "is required with "+path, "", "set the host's address or DNS name")
	}

	_, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(given))
	if err == nil && len(options) == 0 && len(rest) == 0 {
		return
	}

	if strings.Contains(given, "PRIVATE KEY") {
		given = "" // it is the other half
	}

	r.Problems.Add(path, "must be one public host key", given,
		"copy the last two columns of what 'ssh-keyscan -t ed25519 <address>' prints, and compare it on the host")
}

// CheckAccess holds the SSH login, which the import of disk images needs, and the user data of K3s nodes.
func (r *Resolver) CheckAccess(p *plan.Plan) {
	image := r.Spec.Image
	needed := r.IsK3s() || image.Source == spec.SourceFactory && image.Factory.Format == spec.FormatDisk
	given := r.Spec.Proxmox.SSH

	switch {
	case given == nil && !needed:
		return
	case given == nil && r.IsK3s():
		r.Problems.Add("proxmox.ssh",
			`is required with cluster.kind "k3s": the user data of its nodes are files on the hosts, which can be written `+
				"over SSH only",
			"", "set proxmox.ssh.username and sshPrivateKey")

		return
	case given == nil:
		r.Problems.Add("proxmox.ssh", `is required with image.factory.format "disk": Proxmox VE imports a disk over SSH`, "",
			"set proxmox.ssh.username, or set the format to iso")

		return
	case !needed:
		r.Warn("proxmox.ssh", "is not used: only image.factory.format disk and cluster.kind k3s need it", "", "leave it out")
	case !r.Spec.Provided.SSHKey:
		r.Problems.Add("sshPrivateKey", "is required: proxmox.ssh is used", "",
			"run: pulumi config set --secret sshPrivateKey")
	}

	if !userName.MatchString(given.Username) {
		r.Problems.Add("proxmox.ssh.username", "must be the name of a user on the hosts, without a realm", given.Username,
			"write it like root")
	}

	login := *given
	login.Port = cmp.Or(login.Port, 22)
	r.CheckBounds("proxmox.ssh.port", login.Port, 1, 65535)

	// The provider takes a port together with an address only.
	for _, host := range r.Spec.Proxmox.Hosts {
		if needed && login.Port != 22 && given.Addresses[host.Name] == "" {
			r.Problems.Add("proxmox.ssh.addresses."+host.Name, "is required with a port other than 22", "",
				"set the host's address or DNS name")
		}
	}

	for _, host := range slices.Sorted(maps.Keys(given.Addresses)) {
		path := "proxmox.ssh.addresses." + host

		if !r.HasHost(host) {
			r.Problems.Add(path, "is not one of proxmox.hosts", host, "name one of them, or add it")
		}

		if a := given.Addresses[host]; labels.ValidateDNS1123Subdomain(a) != nil && !checks.IsAddress(a) {
			r.Problems.Add(path, "must be an address or a DNS name", a, "write it like 10.0.0.2")
		}
	}

	for _, host := range slices.Sorted(maps.Keys(login.HostKeys)) {
		r.checkHostKey("proxmox.ssh.hostKeys."+host, host, &login)
	}

	if needed {
		p.SSH = &login
	}
}
