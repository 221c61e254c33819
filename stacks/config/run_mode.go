package config

import (
	"os"
	"path/filepath"

	"github.com/pulumi/pulumi/sdk/v3/go/common/util/ciutil"
)

// DestroyVariable is the environment variable that tells the program that the run destroys the stack: the engine does
// not tell it.
const DestroyVariable = "TALOS_PROXMOX_DESTROY"

// offlineVariable keeps previews from asking Proxmox VE.
const offlineVariable = "TALOS_PROXMOX_OFFLINE"

func offline() string {
	if os.Getenv(offlineVariable) == "" {
		return ""
	}

	return offlineVariable + " is set"
}

// OfThisMachine sets what the configuration does not say: whether this is a pipeline, and which hosts the provider
// knows.
func (c *Config) OfThisMachine() {
	c.Pipeline = ciutil.IsCI()

	// Without a home, the provider remembers no host.
	if home, err := os.UserHomeDir(); err == nil {
		c.KnownHosts = filepath.Join(home, ".ssh", "known_hosts")
	}
}
