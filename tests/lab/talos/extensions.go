package talos

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

const tailscale = "tailscale"

// extensionServices are the services that the image's extensions bring along; the names are those of the extensions.
func (n *node) extensionServices() []string {
	var out []string

	for _, name := range []string{"qemu-guest-agent", tailscale, "iscsid", "cloudflared", "netbird", "zerotier"} {
		if n.image.has(name) || name == "iscsid" && n.image.has("iscsi-tools") {
			out = append(out, name)
		}
	}

	return out
}

// runExtensions starts the extensions' services, each again when its configuration changes.
func (n *node) runExtensions(ctx context.Context) {
	started := map[string]string{}

	for {
		changed := n.kick.next()

		for _, name := range n.extensionServices() {
			if now := fmt.Sprint(n.extensionConfig(name)); started[name] != now {
				started[name] = now
				n.startExtension(name)
			}
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// startExtension starts the service of an extension. Some wait for a configuration of their own.
func (n *node) startExtension(name string) {
	id := "ext-" + name
	cfg := n.extensionConfig(name)

	if slices.Contains([]string{tailscale, "cloudflared", "netbird", "zerotier"}, name) && cfg == nil {
		n.services.set(id, "Waiting", fmt.Sprintf("Waiting for extension service config %q", name), nil)

		return
	}

	if name == tailscale {
		if problem := tailscaleProblem(cfg.Environment()); problem != "" {
			n.services.set(id, stateFailed, "Failed to run: "+problem, nil)

			return
		}
	}

	n.services.set(id, stateRunning, "Started task "+id, nil)
}

func (n *node) extensionConfig(name string) talosconfig.ExtensionServiceConfig {
	for _, c := range n.config().ExtensionServiceConfigs() {
		if c.Name() == name {
			return c
		}
	}

	return nil
}

// variable is the value of an environment variable; the last one counts.
func variable(environment []string, name string) string {
	value := ""

	for _, e := range environment {
		if k, v, _ := strings.Cut(e, "="); k == name {
			value = v
		}
	}

	return value
}

// tailscaleFlags are those of "tailscale up" that have to do with joining.
var tailscaleFlags = []string{
	"--accept-dns", "--accept-routes", "--advertise-exit-node", "--advertise-routes", "--advertise-tags", "--auth-key",
	"--hostname",
	"--login-server", "--reset", "--shields-up", "--snat-subnet-routes", "--ssh", "--timeout",
}

// tailscaleProblem is why the service does not stay up. One without a key does: it waits for a login.
func tailscaleProblem(environment []string) string {
	for arg := range strings.FieldsSeq(variable(environment, "TS_EXTRA_ARGS")) {
		if flag, _, _ := strings.Cut(arg, "="); !slices.Contains(tailscaleFlags, flag) {
			return "tailscale up failed: flag provided but not defined: " + strings.TrimPrefix(flag, "-")
		}
	}

	if routes := variable(environment, "TS_ROUTES"); routes != "" {
		for route := range strings.SplitSeq(routes, ",") {
			p, err := netip.ParsePrefix(route)
			if err != nil {
				return fmt.Sprintf("tailscale up failed: %q is not a valid IP address or CIDR prefix", route)
			}

			if p != p.Masked() {
				return fmt.Sprintf("tailscale up failed: %s has non-address bits set; expected %s", p, p.Masked())
			}
		}
	}

	return ""
}

func (n *node) publishExtensionConfigs(b *board) {
	for _, c := range n.config().ExtensionServiceConfigs() {
		show(b, runtime.NewExtensionServiceConfigSpec(runtime.NamespaceName, c.Name()),
			func(s *runtime.ExtensionServiceConfigSpec) {
				s.Environment = c.Environment()

				for _, f := range c.ConfigFiles() {
					s.Files = append(s.Files, runtime.ExtensionServiceConfigFile{Content: f.Content(), MountPath: f.MountPath()})
				}
			})
	}
}
