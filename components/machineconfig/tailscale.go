package machineconfig

import (
	"errors"
	"net/netip"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/runtime/extensions"

	"talos-proxmox/components/machineconfig/encode"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

const (
	// tailscaleService is the name of the extension's service.
	tailscaleService = "tailscale"
	// tailscaleArgs begins the variable with arguments of "tailscale up", loginServerArg the one that names the server.
	tailscaleArgs  = "TS_EXTRA_ARGS="
	loginServerArg = "--login-server="
)

// Tailscale is the configuration patch with which the nodes of a pool join the tailnet, to go before the pool's other
// patches. It holds the key and is as secret; nothing else that is rendered holds it. It is empty for a pool whose
// nodes do not join. The variables are those of the extension's containerboot.
func Tailscale(p *plan.Plan, pool plan.PlannedPool, key string) (string, error) {
	if !pool.Tailnet {
		return "", nil
	}

	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("tailscaleAuthKey: must not be empty, or contain characters that no key contains, " +
			"such as spaces")
	}

	doc := extensions.NewServicesConfigV1Alpha1()
	doc.ServiceName = tailscaleService
	doc.ServiceEnvironment = []string{
		"TS_AUTHKEY=" + key,
		// The key may have expired when a node that is a member starts again.
		"TS_AUTH_ONCE=true",
	}

	if server := p.Tailscale.LoginServer; server != "" {
		doc.ServiceEnvironment = append(doc.ServiceEnvironment, tailscaleArgs+loginServerArg+server)
	}

	if p.Tailscale.AdvertiseEndpoint && pool.Role == spec.RoleControlPlane {
		route := netip.PrefixFrom(p.VIP, p.VIP.BitLen())
		doc.ServiceEnvironment = append(doc.ServiceEnvironment, "TS_ROUTES="+route.String())
	}

	return encode.Document(doc)
}

// LoginServer is the control server of the tailnet that a node joins, empty for Tailscale's own. member says whether it
// joins one.
func LoginServer(cfg talosconfig.Provider) (server string, member bool) {
	for _, service := range cfg.ExtensionServiceConfigs() {
		if service.Name() != tailscaleService {
			continue
		}

		member = true

		for _, variable := range service.Environment() {
			args, found := strings.CutPrefix(variable, tailscaleArgs)
			if !found {
				continue
			}

			for _, arg := range strings.Fields(args) {
				if given, found := strings.CutPrefix(arg, loginServerArg); found {
					server = given
				}
			}
		}
	}

	return server, member
}
