package impact

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"go.yaml.in/yaml/v3"

	"talos-proxmox/components/spec"
)

// Setting is one value of a machine configuration that differs. Of a secret it says only that it does.
type Setting struct {
	// Path of the setting, "machine.kubelet.image"; in a document of its own it begins with the document's kind and name.
	Path string `json:"path"`
	// Before and After are empty where the setting is not there, and for a secret.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	Secret bool   `json:"secret,omitempty"`
}

func (s Setting) String() string {
	switch {
	case s.Secret:
		return s.Path + ": changes (secret)"
	case s.Before == "":
		return s.Path + ": " + s.After + " (new)"
	case s.After == "":
		return s.Path + ": " + s.Before + " (goes)"
	default:
		return s.Path + ": " + s.Before + " becomes " + s.After
	}
}

// Settings compares two configurations, setting by setting, in the order of their paths.
func Settings(before, after talosconfig.Provider) ([]Setting, error) {
	was, err := flatten(before)
	if err != nil {
		return nil, err
	}

	is, err := flatten(after)
	if err != nil {
		return nil, err
	}

	var differ []Setting

	for path, old := range was {
		if now, there := is[path]; !there || now.text != old.text {
			differ = append(differ, setting(path, old, now))
		}
	}

	for path, now := range is {
		if _, there := was[path]; !there {
			differ = append(differ, setting(path, value{}, now))
		}
	}

	slices.SortFunc(differ, func(a, b Setting) int { return cmp.Compare(a.Path, b.Path) })

	return differ, nil
}

func setting(path string, before, after value) Setting {
	if sensitive(path) || before.hide() || after.hide() {
		return Setting{Path: path, Secret: true}
	}

	return Setting{Path: path, Before: before.text, After: after.text}
}

// longest is how long a value may be to be shown: beyond it, it is a file.
const longest = 160

// hidden are what a setting is called that may hold a secret of the operator's, which Talos does not know to be one.
var hidden = regexp.MustCompile(
	`(?i)(secret|token|key|password|passphrase|auth|credential|cert|environment|env|content|configfiles|header|args|` +
		`command|manifest)`)

// shown are settings that are called so and hold none.
var shown = regexp.MustCompile(
	`^(machine\.(install|sysctls|sysfs|nodeLabels|nodeAnnotations|nodeTaints|features)\.|` +
		`machine\.kubelet\.(image|nodeIP|extraConfig\.registerWithTaints)|` +
		`cluster\.(apiServer|controllerManager|scheduler|proxy)\.(image|certSANs)|cluster\.controlPlane\.endpoint|machine\.certSANs)`)

func sensitive(path string) bool { return hidden.MatchString(path) && !shown.MatchString(path) }

// value is a setting's, as YAML writes it on one line.
type value struct {
	text   string
	secret bool
}

// hide says whether the value is better not shown: a secret, a file, a URL with a password in it, or a kernel argument
// with a token.
func (v value) hide() bool {
	return v.secret || len(v.text) > longest || strings.Contains(v.text, "\n") || strings.Contains(v.text, "://") &&
		strings.Contains(v.text, "@") || spec.HideSecrets(v.text) != v.text
}

// redacted stands for what Talos knows to be a secret.
const redacted = "(secret)"

// flatten lists the settings of all documents by their paths.
func flatten(c talosconfig.Provider) (map[string]value, error) {
	plain, err := leaves(c)
	if err != nil {
		return nil, err
	}

	safe, err := leaves(c.RedactSecrets(redacted))
	if err != nil {
		return nil, err
	}

	all := make(map[string]value, len(plain))
	for path, text := range plain {
		all[path] = value{text: text, secret: safe[path] != text}
	}

	return all, nil
}

func leaves(c talosconfig.Provider) (map[string]string, error) {
	data, err := c.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return nil, err
	}

	found := map[string]string{}

	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc map[string]any

		if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, err
		}

		collect(found, documentName(doc), doc)
	}
}

// documentName tells documents apart; Talos' first has none.
func documentName(doc map[string]any) string {
	kind, ok := doc["kind"].(string)
	if !ok {
		return ""
	}

	if name, ok := doc["name"].(string); ok {
		return kind + "[" + name + "]"
	}

	return kind
}

func collect(found map[string]string, path string, at any) {
	switch v := at.(type) {
	case map[string]any:
		for key, below := range v {
			collect(found, strings.TrimPrefix(path+"."+key, "."), below)
		}
	case []any:
		for i, below := range v {
			collect(found, fmt.Sprintf("%s[%d]", path, i), below)
		}
	case nil:
	default:
		found[path] = fmt.Sprint(v)
	}
}

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
