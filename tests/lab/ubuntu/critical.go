package ubuntu

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// criticalArgs are the settings that all servers must have alike, by option (K3s: pkg/daemons/config, types.go,
// CriticalControlArgs).
type criticalArgs map[string]string

// critical are those of the service.
func (k *service) critical() criticalArgs {
	c := k.config
	pods, services := k.networks()

	dns := fmt.Sprint(c.DNS)
	if c.DNS == nil {
		dns = nth(services, 10).String()
	}

	args := criticalArgs{
		"cluster-cidr": pods, "service-cidr": services, "cluster-dns": dns,
		"cluster-domain":              cmp.Or(c.Domain, "cluster.local"),
		"egress-selector-mode":        cmp.Or(c.Egress, "agent"),
		"secrets-encryption-provider": cmp.Or(c.Provider, "aescbc"),
	}

	for option, on := range map[string]bool{
		"disable-cloud-controller": c.NoCloud, "disable-helm-controller": c.NoHelm, "disable-network-policy": c.NoPolicy,
		"disable-service-lb": slices.Contains(c.Disable, "servicelb"), "secrets-encryption": c.Encryption,
		"embedded-registry": c.Registry, "flannel-ipv6-masq": c.Masquerade, "flannel-external-ip": c.ExternalIP,
		"supervisor-metrics": c.Metrics,
	} {
		args[option] = fmt.Sprint(on)
	}

	return args
}

// compare holds the settings against those of the server to join (K3s: pkg/cluster, bootstrap.go, compareConfig).
func (k *service) compare(at *client) error {
	theirs, err := at.config(k.ctx)
	if err != nil {
		return err
	}

	own, differ := k.critical(), false

	for _, option := range slices.Sorted(maps.Keys(own)) {
		if own[option] != theirs[option] {
			differ = true

			k.sys.on.files.append(k3sLog, fmt.Sprintf("level=warning msg=\"critical configuration mismatched: %s\"\n", option))
		}
	}

	if differ {
		return errors.New("preparing server: failed to bootstrap cluster data: failed to validate server configuration: " +
			"critical configuration value mismatch between servers")
	}

	return nil
}

// nth is the nth address of a network.
func nth(network string, n int) netip.Addr {
	a := netip.MustParsePrefix(network).Addr()
	for range n {
		a = a.Next()
	}

	return a
}
