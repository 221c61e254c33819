package rehearsal

import (
	"errors"
	"maps"
	"net/netip"
	"regexp"
	"strings"

	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/spec"
	"talos-proxmox/stacks/config"
	"talos-proxmox/tests/lab"
)

// rewrite makes a copy of a stack that means the lab instead of the operator's Proxmox VE: its endpoint and
// credentials, and every address of the stack's network mapped onto the lab's. The program does not notice.
func (s *Stack) rewrite(original config.Config, l *lab.Lab, to access, network netip.Prefix,
	toLab func(netip.Addr) netip.Addr,
) (*Stack, error) {
	r := &Stack{Name: s.Name, Path: s.Path, values: maps.Clone(s.values), policy: s.policy}

	// The rehearsal runs in another directory: what files hold goes where their paths were.
	errs := []error{
		r.edit("cluster", func(cluster map[string]any) {
			inline(cluster, original.Cluster.Patches)
			inlineTexts(cluster, "manifests", original.Cluster.Manifests)
			inlineTexts(cluster, "trustedCAs", original.Cluster.TrustedCAs)
			inlineText(cluster, "audit", original.Cluster.APIServer.Audit)
			inlineText(cluster, "authentication", original.Cluster.APIServer.Authentication)
		}),
		r.edit("pools", func(pools map[string]any) {
			for name, pool := range original.Pools {
				block := pools[name].(map[string]any)
				inline(block, pool.Patches)

				for number, node := range pool.Nodes {
					inline(block["nodes"].(map[string]any)[number], node.Patches)
				}

				for number, node := range pool.GPUs {
					inline(block["gpus"].(map[string]any)[number], node.Patches)
				}
			}
		}),
	}

	for key, text := range r.values {
		r.values[key] = mapAddresses(text, network, toLab)
	}

	if _, given := r.values["machineSecrets"]; given {
		secrets, err := machineconfig.ThrowAwaySecrets()
		r.values["machineSecrets"] = secrets
		errs = append(errs, err)
	}

	for _, key := range []string{"csiToken", "ccmToken"} {
		if r.values[key] == config.Placeholder {
			r.values[key] = "rehearsal@pve!" + key + "=" + config.Placeholder
		}
	}

	if r.values["gitOpsKey"] == config.Placeholder && strings.HasPrefix(original.Cluster.GitOps.Repository, "ssh://") {
		r.values["gitOpsKey"] = l.SSH().PrivateKey
	}

	// What is encrypted in the file cannot be read here, and nodes of the lab do without it.
	for _, key := range []string{"secretManifests", "registryLogins", "ageKey"} {
		if r.values[key] == config.Placeholder {
			delete(r.values, key)
		}
	}

	errs = append(errs, r.rewriteImages(original, l))

	errs = append(errs, r.edit("proxmox", func(proxmox map[string]any) {
		proxmox["endpoint"] = to.endpoint
		// The lab's certificate is its own.
		proxmox["insecure"] = true

		if _, user := proxmox["username"]; user {
			proxmox["username"] = to.credentials.Username
			r.values["proxmoxPassword"] = to.credentials.Password
		} else {
			proxmox["tokenId"] = to.credentials.TokenID
			r.values["proxmoxTokenSecret"] = to.credentials.TokenSecret
		}

		if original.Proxmox.SSH != nil {
			to.rewriteSSH(proxmox["ssh"].(map[string]any), original.Proxmox.Hosts)
			r.values["sshPrivateKey"] = to.sshKey
		}
	}))

	return r, errors.Join(errs...)
}

// access is how the program reaches Proxmox VE.
type access struct {
	endpoint    string
	credentials lab.Credentials
	sshKey      string
	// sshHostKey and sshAddress are those of a host.
	sshHostKey func(host string) string
	sshAddress func(host string) netip.AddrPort
}

// accessTo is how it reaches the lab's.
func accessTo(l *lab.Lab) access {
	return access{
		endpoint: l.Endpoint(), credentials: l.Credentials(), sshKey: l.SSH().PrivateKey, sshAddress: l.SSHAddress,
		sshHostKey: func(string) string { return l.SSHHostKey() },
	}
}

// rewriteSSH names the SSH servers. The user is the stack's own.
func (to access) rewriteSSH(login map[string]any, hosts []spec.Host) {
	addresses := map[string]string{}

	if keys, stated := login["hostKeys"].(map[string]any); stated {
		for host := range keys {
			keys[host] = to.sshHostKey(host)
		}
	}

	for _, h := range hosts {
		address := to.sshAddress(h.Name)
		addresses[h.Name], login["port"] = address.Addr().String(), address.Port()
	}

	login["addresses"] = addresses
}

// rewriteImages has images come from the lab.
func (s *Stack) rewriteImages(original config.Config, l *lab.Lab) error {
	iso := func(block any, given *spec.ISOImage) {
		if given == nil || given.URL == "" {
			return
		}

		path := mirrored(given.URL)
		to := block.(map[string]any)["iso"].(map[string]any)
		to["url"] = l.FactoryURL() + path

		if given.Checksum != "" {
			to["checksum"] = "sha256:" + l.Factory().SHA256At(path)
		}
	}

	image := s.edit("image", func(image map[string]any) {
		iso(image, &original.Image.ISO)

		if c := original.Image.CloudImage; c.URL != "" {
			path := mirrored(c.URL)
			to := image["cloudImage"].(map[string]any)
			to["url"] = l.FactoryURL() + path

			if c.Checksum != "" {
				to["checksum"] = "sha256:" + l.Factory().SHA256At(path)
			}
		}

		if original.Cluster.Distribution != spec.DistributionK3s &&
			(original.Image.Source == "" || original.Image.Source == spec.SourceFactory) {
			block, _ := image["factory"].(map[string]any)
			if block == nil {
				block = map[string]any{}
			}

			block["url"] = l.FactoryURL()
			image["factory"] = block
		}
	})

	pools := s.edit("pools", func(pools map[string]any) {
		for name, pool := range original.Pools {
			iso(pools[name].(map[string]any)["image"], pool.Image.ISO)
		}
	})

	return errors.Join(image, pools)
}

// inline puts the text of patches into the block they belong to.
func inline(block any, patches []spec.Patch) { inlineTexts(block.(map[string]any), "patches", patches) }

// inlineTexts puts texts under a key. The line break says that one is no path.
func inlineTexts(block map[string]any, key string, given []spec.InlineOrFile) {
	texts := make([]any, len(given))

	for i, t := range given {
		texts[i] = t.Text

		if !t.URL() {
			texts[i] = t.Text + "\n"
		}
	}

	if len(texts) > 0 {
		block[key] = texts
	}
}

// inlineText is inlineTexts for a key of cluster.apiServer.
func inlineText(cluster map[string]any, key string, given *spec.InlineOrFile) {
	if given != nil {
		cluster["apiServer"].(map[string]any)[key] = given.Text + "\n"
	}
}

var ipv4 = regexp.MustCompile(`\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b`)

// mapAddresses changes the addresses inside a text that belong to the stack's network: ranges, URLs, patches.
func mapAddresses(text string, network netip.Prefix, toLab func(netip.Addr) netip.Addr) string {
	return ipv4.ReplaceAllStringFunc(text, func(found string) string {
		a, err := netip.ParseAddr(found)
		if err != nil || !network.Contains(a) {
			return found
		}

		return toLab(a).String()
	})
}
