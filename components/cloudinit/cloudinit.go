// Package cloudinit writes cloud-init user data: the part of cloud-config that nodes of this project need, as types. It
// is pure, and knows nothing of what the nodes are for.
package cloudinit

import (
	"bytes"

	"go.yaml.in/yaml/v3"
)

// Config is a cloud-config document (cloud-init: Module reference). Absent keys are left to the image's own defaults.
type Config struct {
	// Hostname, which manage_etc_hosts makes the machine know itself by.
	Hostname       string `yaml:"hostname"`
	ManageEtcHosts bool   `yaml:"manage_etc_hosts"`
	// Users are all that there are in addition to the system's own: the image's default user is not made.
	Users []User `yaml:"users"`
	// PasswordLogin admits passwords over SSH.
	PasswordLogin bool `yaml:"ssh_pwauth"`
	DisableRoot   bool `yaml:"disable_root"`
	// CACerts are trusted before packages are installed.
	CACerts *CACerts `yaml:"ca_certs,omitempty"`
	// Apt says where packages come from.
	Apt *Apt `yaml:"apt,omitempty"`
	// PackageUpdate reads the lists of packages again, PackageUpgrade brings what is installed up to them.
	PackageUpdate  bool     `yaml:"package_update"`
	PackageUpgrade bool     `yaml:"package_upgrade"`
	Packages       []string `yaml:"packages,omitempty"`
	// Files are written before packages are installed.
	Files []File `yaml:"write_files,omitempty"`
	// Commands run last, each a program and its arguments; no shell takes them apart.
	Commands [][]string `yaml:"runcmd,omitempty"`
}

// CACerts are certificate authorities that the system trusts in addition to its own, in PEM.
type CACerts struct {
	Trusted []string `yaml:"trusted"`
}

// Apt has the sources of packages.
type Apt struct {
	// Primary also holds security updates, where no other mirror is set for those.
	Primary []AptMirror `yaml:"primary,omitempty"`
	// HTTPProxy and HTTPSProxy are URLs of the proxies that packages are fetched through.
	HTTPProxy  string `yaml:"http_proxy,omitempty"`
	HTTPSProxy string `yaml:"https_proxy,omitempty"`
	// Conf is further configuration of apt.
	Conf string `yaml:"conf,omitempty"`
}

// AptMirror is a source of packages for some architectures; "default" is for all.
type AptMirror struct {
	Arches []string `yaml:"arches"`
	URI    string   `yaml:"uri"`
}

// User is a login.
type User struct {
	Name string `yaml:"name"`
	// Sudo is a rule of sudoers; empty: none.
	Sudo   string   `yaml:"sudo,omitempty"`
	Groups []string `yaml:"groups,omitempty"`
	Shell  string   `yaml:"shell,omitempty"`
	// LockPassword leaves the user without a password that could be entered.
	LockPassword bool     `yaml:"lock_passwd"`
	SSHKeys      []string `yaml:"ssh_authorized_keys,omitempty"`
}

// File is a file that is root's.
type File struct {
	Path string `yaml:"path"`
	// Permissions in octal, "0600".
	Permissions string `yaml:"permissions"`
	Content     string `yaml:"content"`
}

// header says what kind of user data follows.
const header = "#cloud-config\n"

// Marshal writes the document.
func (c Config) Marshal() (string, error) {
	var b bytes.Buffer

	b.WriteString(header)

	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)

	if err := enc.Encode(c); err != nil {
		return "", err
	}

	return b.String(), enc.Close()
}
