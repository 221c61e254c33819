package k3sconfig

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"talos-proxmox/components/cloudinit"
	"talos-proxmox/components/plan"
)

// SharedSettings are the options that all servers of a cluster must have alike, by name, as K3s compares them: a server
// that joins with other values than the one it joins at is refused (K3s: pkg/daemons/config, CriticalControlArgs, and
// pkg/cluster, compareConfig).
type SharedSettings map[string]string

// sharedKind is the kind of a setting's values, by which K3s compares them.
type sharedKind int

const (
	kindText   sharedKind = iota // the last one counts
	kindSwitch                   // absent: false
	kindList
)

// shared are these options, with what K3s takes where they are absent.
var shared = map[string]struct {
	kind     sharedKind
	absently string
}{
	"cluster-cidr":                         {kindList, plan.K3sPods.String()},
	"cluster-dns":                          {kindList, ""}, // the tenth address of services
	"cluster-domain":                       {kindText, "cluster.local"},
	"disable-cloud-controller":             {kindSwitch, ""},
	"disable-helm-controller":              {kindSwitch, ""},
	"disable-network-policy":               {kindSwitch, ""},
	"egress-selector-mode":                 {kindText, "agent"},
	"embedded-registry":                    {kindSwitch, ""},
	"flannel-backend":                      {kindText, "vxlan"},
	"flannel-external-ip":                  {kindSwitch, ""},
	"flannel-ip-masq-disable-random-fully": {kindSwitch, ""},
	"flannel-ipv6-masq":                    {kindSwitch, ""},
	"secrets-encryption":                   {kindSwitch, ""},
	"secrets-encryption-provider":          {kindText, "aescbc"},
	"service-cidr":                         {kindList, plan.K3sServices.String()},
	"supervisor-metrics":                   {kindSwitch, ""},
}

// disableServiceLB is the one packaged component that all servers must have, or disable.
const disableServiceLB = "disable=servicelb"

// dnsAddress is which address of services the cluster's DNS has (K3s: GetDefaultAddresses).
const dnsAddress = 10

// PlannedSharedSettings are those of a server that is created now.
func PlannedSharedSettings(p *plan.Plan) SharedSettings {
	given := options(p.K3s.ServerArgs)
	given["disable"] = p.K3s.Disable
	given["cluster-cidr"], given["service-cidr"] = p.K3s.Pods.String(), p.K3s.Services.String()

	return sharedOf(given)
}

// ReadSharedSettings are those that the configuration file of a server states.
func ReadSharedSettings(text string) (SharedSettings, error) {
	given, err := readOptions(text)
	if err != nil {
		return nil, err
	}

	return sharedOf(given), nil
}

// readOptions are the options that a configuration file of K3s has.
func readOptions(text string) (map[string]any, error) {
	given := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &given); err != nil {
		// What it says may hold a token.
		return nil, fmt.Errorf("%s is not a YAML file of options", ConfigFile)
	}

	return given, nil
}

// Differing are the names of the settings in which two servers differ.
func (s SharedSettings) Differing(other SharedSettings) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s)), func(name string) bool { return s[name] == other[name] })
}

// SharedSettingsKey is where the configuration states a setting.
func SharedSettingsKey(name string) string {
	switch name {
	case disableServiceLB:
		return "k3s.disable"
	case "cluster-cidr":
		return "k3s.clusterCIDR"
	case "service-cidr":
		return "k3s.serviceCIDR"
	default:
		return "k3s.serverArgs"
	}
}

// DifferShared are those of the settings that user data stated otherwise than they would now.
func DifferShared(then, now string) []string {
	var before, after cloudinit.Config

	if yaml.Unmarshal([]byte(then), &before) != nil || yaml.Unmarshal([]byte(now), &after) != nil {
		return nil
	}

	b, err := ReadSharedSettings(content(before, ConfigFile))
	if err != nil {
		return nil
	}

	a, err := ReadSharedSettings(content(after, ConfigFile))
	if err != nil {
		return nil
	}

	return a.Differing(b)
}

func sharedOf(given map[string]any) SharedSettings {
	found := SharedSettings{}

	for name, option := range shared {
		// What stands under the name with a plus is added (K3s: Configuration File).
		values := append(valuesOf(given[name]), valuesOf(given[name+"+"])...)

		switch {
		case option.kind == kindSwitch:
			found[name] = fmt.Sprint(len(values) > 0 && isTrue(values[len(values)-1]))
		case len(values) == 0:
			found[name] = option.absently
		case option.kind == kindText:
			found[name] = values[len(values)-1]
		default:
			found[name] = strings.Join(split(values), ",")
		}
	}

	if found["cluster-dns"] == "" {
		found["cluster-dns"] = dnsOf(found["service-cidr"])
	}

	disabled := split(append(valuesOf(given["disable"]), valuesOf(given["disable+"])...))
	found[disableServiceLB] = fmt.Sprint(slices.Contains(disabled, "servicelb"))

	return found
}

// valuesOf are the values of an option, in their order.
func valuesOf(value any) []string {
	switch v := value.(type) {
	case nil:
		return nil
	case []string:
		return slices.Clone(v)
	case []any:
		var all []string
		for _, one := range v {
			all = append(all, valuesOf(one)...)
		}

		return all
	default:
		return []string{fmt.Sprint(v)}
	}
}

// split are values that commas separate.
func split(values []string) []string {
	var all []string

	for _, value := range values {
		for one := range strings.SplitSeq(value, ",") {
			if one = strings.TrimSpace(one); one != "" {
				all = append(all, one)
			}
		}
	}

	return all
}

// isTrue reads a switch as Go's flags do.
func isTrue(text string) bool {
	return slices.Contains([]string{"1", "t", "true"}, strings.ToLower(text))
}

// dnsOf is the address of the cluster's DNS, where none is set.
func dnsOf(services string) string {
	first, _, _ := strings.Cut(services, ",")

	prefix, err := netip.ParsePrefix(first)
	if err != nil {
		return ""
	}

	a := prefix.Masked().Addr()
	for range dnsAddress {
		a = a.Next()
	}

	return a.String()
}
