package impact

import (
	"regexp"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
)

// waiting are the settings that a running node does not take up, or not fully, from Talos 1.14 on. Those that its
// documentation names: etcd reads its settings when it starts, services keep the environment they were started with,
// modules are neither unloaded nor loaded with other parameters, and keys of volumes are used when these are unlocked.
// The rest is what Talos 1.13 takes only with a reboot, without what 1.14 has learnt (udev rules, the base runtime
// specification).
var waiting = regexp.MustCompile(`^(machine\.(type|token|disks|files|env|systemDiskEncryption|kernel)\b|` +
	`machine\.features\.(rbac|stableHostname|apidCheckExtKeyUsage|diskQuotaSupport)\b|` +
	`cluster\.etcd\b|persist\b|` +
	`(EnvironmentConfig|KernelModuleConfig)\b|` +
	`(VolumeConfig|UserVolumeConfig|RawVolumeConfig|SwapVolumeConfig)(\[[^\]]*\])?\.encryption\b)`)

// addedModule is a module that is added, which Talos loads at once.
var addedModule = regexp.MustCompile(`^(machine\.kernel\.modules\[\d+\]\.name|KernelModuleConfig(\[[^\]]*\])?\.\w+)$`)

// WaitsForReboot says whether a setting has no effect before the node boots again. Nodes before Talos 1.14 say that
// themselves.
func WaitsForReboot(version string, settings []Setting) bool {
	contract, err := talosconfig.ParseContractFromVersion(version)
	if err != nil || !contract.Greater(talosconfig.TalosVersion1_13) {
		return false
	}

	for _, s := range settings {
		added := s.Before == "" && !s.Secret && addedModule.MatchString(s.Path)
		if waiting.MatchString(s.Path) && !added {
			return true
		}
	}

	return false
}
