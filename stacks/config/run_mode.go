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

// OfThisMachine sets what the program has not set itself: whether this is a pipeline, and which hosts the provider
// knows.
func (c *Config) OfThisMachine() {
	if c.Pipeline == nil {
		c.Pipeline = new(inPipeline())
	}

	// Without a home, the provider remembers no host.
	if home, err := os.UserHomeDir(); err == nil && c.KnownHosts == "" {
		c.KnownHosts = filepath.Join(home, ".ssh", "known_hosts")
	}
}

// inPipeline knows the systems that Pulumi knows, and those that only set CI, as most do.
func inPipeline() bool {
	switch os.Getenv("CI") {
	case "", "0", "false":
		return ciutil.IsCI()
	default:
		return os.Getenv("PULUMI_DISABLE_CI_DETECTION") == ""
	}
}
