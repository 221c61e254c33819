package rules

import (
	"fmt"
	"net/netip"
	"slices"

	"talos-proxmox/components/tokens"
)

func networkRules(b *builder) []Rule {
	return []Rule{
		perResource(b, Rule{
			Name: "bridge-firewall",
			Must: "A network interface on a public bridge, or with a public address, must be behind the firewall of Proxmox VE.",
			Remedy: "Set firewall on the interface (firewall.enabled in a stack of this project), or name the bridges that " +
				"are public.",
		}, bridgeSettings{PublicBridges: []string{providerBridge}}, bridgeFirewall),
	}
}

// providerBridge is the bridge of an interface that names none.
const providerBridge = "vmbr0"

type bridgeSettings struct {
	except
	PublicBridges []string `json:"publicBridges" jsonschema_description:"Public bridges; * matches any text."`
}

func (s bridgeSettings) check() error { return checkPatterns(slices.Concat(s.Except, s.PublicBridges)) }

func bridgeFirewall(s bridgeSettings, r Resource) []Finding {
	switch r.Type {
	case tokens.VM:
		return interfaces(s, r)
	case tokens.FirewallOptions:
		return firewallOptions(r)
	default:
		return nil
	}
}

func interfaces(s bridgeSettings, r Resource) []Finding {
	var found []Finding

	for i, nic := range list(r.at("networkDevices")) {
		firewall := at(nic, "firewall")
		if is(firewall, true) || !known(firewall) || is(at(nic, "enabled"), false) {
			continue
		}

		bridge := text(at(nic, "bridge"))
		if bridge == "" && known(at(nic, "bridge")) {
			bridge = providerBridge
		}

		path := fmt.Sprintf("networkDevices[%d].firewall", i)

		switch address := publicAddress(r, i); {
		case address != "":
			found = append(found, r.finding(path, "must be true for an interface with a public address", "address "+address,
				"set it to true"))
		case matches(s.PublicBridges, bridge):
			found = append(found, r.finding(path, "must be true on a public bridge", "bridge "+bridge, "set it to true"))
		}
	}

	return found
}

// publicAddress is an address of the interface that the whole world can reach, as the cloud-init drive states it.
func publicAddress(r Resource, nic int) string {
	for _, family := range []string{"ipv4", "ipv6"} {
		prefix, err := netip.ParsePrefix(text(r.at("initialization", "ipConfigs", nic, family, "address")))
		if a := prefix.Addr(); err == nil && a.IsGlobalUnicast() && !a.IsPrivate() && !sharedSpace.Contains(a) {
			return a.String()
		}
	}

	return ""
}

// sharedSpace is RFC 6598: carriers', and tailnets'.
var sharedSpace = netip.MustParsePrefix("100.64.0.0/10")

func firewallOptions(r Resource) []Finding {
	var found []Finding

	if is(r.at("enabled"), false) {
		found = append(found, r.finding("enabled", "must be true", "false",
			"leave the firewall on and write rules for what must pass"))
	}

	if policy := text(r.at("inputPolicy")); policy == "ACCEPT" {
		found = append(found, r.finding("inputPolicy", "must be DROP or REJECT", policy, "write rules for what must pass"))
	}

	return found
}
