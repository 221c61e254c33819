package impact

import (
	"regexp"
	"slices"

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

// trusted are the certificates that containerd trusts when it pulls. It reads them when it pulls for the first time
// after its start, and Talos does not restart it for them (Talos: issues 10314, 14022).
var trusted = regexp.MustCompile(`^TrustedRootsConfig\b`)

// login is that of a registry. Containerd reads it when it starts, and Talos restarts it for that from 1.14 on only.
// Earlier versions take the setting without a reboot nevertheless (Talos: v1alpha1_runtime.go, CanApplyImmediate). CAs
// and client certificates of registries are read for each pull.
var login = regexp.MustCompile(`^(machine\.registries\.config\..+\.auth\.(username|password|auth|identityToken)$|` +
	`RegistryAuthConfig\b)`)

// WaitsForReboot says whether a setting has no effect, or not all of it, before the node boots again. Nodes before
// Talos 1.14 say that themselves, but of what containerd reads.
func WaitsForReboot(version string, settings []Setting) bool {
	contract, err := talosconfig.ParseContractFromVersion(version)
	if err != nil {
		return false
	}

	restartsContainerd := contract.Greater(talosconfig.TalosVersion1_13)

	return slices.ContainsFunc(settings, func(s Setting) bool {
		switch {
		case trusted.MatchString(s.Path):
			return true
		case !restartsContainerd:
			return login.MatchString(s.Path)
		default:
			added := s.Before == "" && !s.Secret && addedModule.MatchString(s.Path)

			return waiting.MatchString(s.Path) && !added
		}
	})
}
