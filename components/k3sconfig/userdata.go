package k3sconfig

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/cloudinit"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

var (
	//go:embed install.sh
	installer string
	//go:embed mirror.sh
	mirror string
	//go:embed k3s-install.service
	unit string
	//go:embed k3s-install.path
	watch string
)

// Secrets are those of the operator that nodes are told.
type Secrets struct {
	// RegistryLogins are as spec.ReadRegistryLogins reads them.
	RegistryLogins string
}

// UserData is what a node is told when it boots first. It is secret: it holds the node's token, and the first server's
// also the keys of the cluster's authorities.
func UserData(p *plan.Plan, n Node, i Identity, s Secrets) (string, error) {
	k := p.K3s
	packages := append([]string{"qemu-guest-agent", "curl", "ca-certificates"}, k.Packages...)

	var (
		arguments []string
		read      []cloudinit.File
		err       error
	)

	role, datastore := "agent", ""
	if n.Planned.Role == spec.RoleControlPlane {
		role = "server"

		if arguments, read, err = apiServer(p); err != nil {
			return "", err
		}
	}

	own, err := configuration(p, n, i, arguments)
	if err != nil {
		return "", err
	}

	if n.First {
		datastore = "K3S_DATASTORE='told'\n"
	}

	files := []cloudinit.File{
		{Path: ConfigFile, Permissions: "0600", Content: own},
		// By it, servers know the node again when its machine was recreated.
		{Path: "/etc/rancher/node/password", Permissions: "0600", Content: i.nodePassword(n.Planned.Name)},
		// Who waits reads it from the beginning on: nothing is wrong yet.
		{Path: FatalFile, Permissions: "0644"},
		{
			Path: installFile, Permissions: "0600",
			Content: fmt.Sprintf("K3S_ROLE='%s'\nK3S_PACKAGES='%s'\n", role,
				strings.Join(packages, " ")) + datastore + proxy(p) + Wanted(k),
		},
		{Path: "/usr/local/sbin/k3s-install", Permissions: "0755", Content: installation(k)},
		{Path: "/etc/systemd/system/k3s-install.service", Permissions: "0644", Content: unit},
		{Path: "/etc/systemd/system/k3s-install.path", Permissions: "0644", Content: watch},
	}

	if n.First {
		files = append(files, authorities(i)...)
	}

	pull, err := registries(p.Mirrors, s.RegistryLogins)
	if err != nil {
		return "", err
	}

	files = slices.Concat(files, pull, read)

	var trusted *cloudinit.CACerts

	for _, ca := range p.TrustedCAs {
		if trusted == nil {
			trusted = &cloudinit.CACerts{}
		}

		trusted.Trusted = append(trusted.Trusted, strings.TrimSpace(ca.Text)+"\n")
	}

	var keys []string
	for _, key := range k.SSHKeys {
		keys = append(keys, strings.TrimSpace(key))
	}

	if k.GenerateSSHKey {
		keys = append(keys, i.SSH.Public)
	}

	return cloudinit.Config{
		Hostname: n.Planned.Name, ManageEtcHosts: true, DisableRoot: true,
		Users: []cloudinit.User{{
			Name: k.User, Sudo: "ALL=(ALL) NOPASSWD:ALL", Groups: []string{"sudo"}, Shell: "/bin/bash", LockPassword: true,
			SSHKeys: keys,
		}},
		CACerts: trusted, Apt: packageSources(p), PackageUpdate: true, PackageUpgrade: k.Upgrade, Packages: packages,
		Files: files,
		Commands: [][]string{
			{"systemctl", "daemon-reload"},
			{"systemctl", "start", "qemu-guest-agent"},
			// It goes on by itself, and tries again what may work later.
			{"systemctl", "enable", "--now", "--no-block", "k3s-install.service", "k3s-install.path"},
		},
	}.Marshal()
}

// installation is the installer with the operator's timeout and mirror. It is text of user data: with the default of
// ten minutes, and without a mirror, it is the file as it stands.
func installation(k *plan.PlannedK3s) string {
	seconds := int(k.StartTimeout.Seconds())
	changes := []string{
		`[ "$tries" -le 300 ]`, fmt.Sprintf(`[ "$tries" -le %d ]`, seconds/datastorePause),
		"timeout 600 systemctl", fmt.Sprintf("timeout %d systemctl", seconds),
	}

	if k.Mirror != "" {
		changes = append(changes,
			"url=https://raw.githubusercontent.com/k3s-io/k3s/$tag/install.sh", "url=$K3S_MIRROR/$tag/install.sh",
			"is not there. Correct", "is not there. Add it to the mirror, or correct",
			"# It holds the binary against the checksums of its release.\n", "",
			`say "installing K3s `, mirror+`say "installing K3s `,
			// It knows no other source in older releases, and knows it by different names in newer ones.
			"INSTALL_K3S_SKIP_START=true", "INSTALL_K3S_SKIP_START=true INSTALL_K3S_SKIP_DOWNLOAD=true",
		)
	}

	return strings.NewReplacer(changes...).Replace(installer)
}

// datastorePause is how many seconds install.sh sleeps before it looks again for what the first server is told.
const datastorePause = 2

// Requested is Wanted for a node that runs: the checksum of an earlier installation script counts no longer, even if
// there is none now.
func Requested(k *plan.PlannedK3s) string {
	text := Wanted(k)
	if k.InstallChecksum == "" {
		text += "K3S_INSTALL_CHECKSUM=''\n"
	}

	return text
}

// Wanted is what a node is told of the version to run, and where it is.
func Wanted(k *plan.PlannedK3s) string {
	wanted := fmt.Sprintf("K3S_VERSION='%s'\nK3S_CHECKSUM='%s'\n", k.Version, k.Checksum)
	if k.InstallChecksum != "" {
		wanted += fmt.Sprintf("K3S_INSTALL_CHECKSUM='%s'\n", k.InstallChecksum)
	}

	if k.Mirror != "" {
		wanted += fmt.Sprintf("K3S_MIRROR='%s'\n", k.Mirror)
	}

	return wanted
}

// authorities are the files that K3s takes instead of making its own, all of them: it wants every one.
func authorities(i Identity) []cloudinit.File {
	files := []cloudinit.File{}

	for _, a := range []struct {
		name string
		pair KeyPair
	}{
		{"server-ca", i.ServerCA},
		{"client-ca", i.ClientCA},
		{"request-header-ca", i.RequestHeaderCA},
		{"etcd/server-ca", i.EtcdServerCA},
		{"etcd/peer-ca", i.EtcdPeerCA},
	} {
		files = append(files,
			cloudinit.File{Path: tlsDir + a.name + ".crt", Permissions: "0644", Content: a.pair.Certificate},
			cloudinit.File{Path: tlsDir + a.name + ".key", Permissions: "0600", Content: a.pair.Key})
	}

	return append(files, cloudinit.File{Path: tlsDir + "service.key", Permissions: "0600", Content: i.ServiceAccountKey})
}
