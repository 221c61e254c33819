package k3sconfig

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// Node is what is known of a node when its user data are written.
type Node struct {
	// Planned is everything that was decided about it.
	Planned plan.Node
	// First is the server that the cluster begins with. It is told so when nothing speaks against it: see Datastore.
	First bool
	// Server is the URL that the node joins at; empty for the first.
	Server string
}

// config is the configuration file of K3s (K3s: k3s server, k3s agent): the options of the command line, without
// dashes.
type config struct {
	Token      string   `yaml:"token"`
	AgentToken string   `yaml:"agent-token,omitempty"`
	Server     string   `yaml:"server,omitempty"`
	NodeName   string   `yaml:"node-name"`
	NodeIP     string   `yaml:"node-ip,omitempty"`
	TLSSAN     []string `yaml:"tls-san,omitempty"`
	// ClusterCIDR and ServiceCIDR are set where they are not K3s' own.
	ClusterCIDR string   `yaml:"cluster-cidr,omitempty"`
	ServiceCIDR string   `yaml:"service-cidr,omitempty"`
	Disable     []string `yaml:"disable,omitempty"`
	NodeLabel   []string `yaml:"node-label,omitempty"`
	NodeTaint   []string `yaml:"node-taint,omitempty"`
	// NoDefaultRegistry keeps containerd from asking a registry whose mirrors do not have an image.
	NoDefaultRegistry bool `yaml:"disable-default-registry-endpoint,omitempty"`
	// WriteKubeconfigMode keeps the server's own kubeconfig root's.
	WriteKubeconfigMode string `yaml:"write-kubeconfig-mode,omitempty"`

	More map[string]any `yaml:",inline"`
}

// apiServerArg is the option whose values are arguments of the API server.
const apiServerArg = "kube-apiserver-arg"

// configuration writes the configuration file of a node. arguments are those of its API server.
func configuration(p *plan.Plan, n Node, i Identity, arguments []string) (string, error) {
	k := p.K3s
	c := config{
		NoDefaultRegistry: slices.ContainsFunc(p.Mirrors, func(m plan.Mirror) bool { return m.Options.SkipFallback }),

		NodeName: n.Planned.Name, Server: n.Server, NodeLabel: pairs(n.Planned.OwnLabels()),
	}

	// Only for its registration: the kubelet does not start with restricted labels, and changes none of it later.
	for _, taint := range n.Planned.TaintList() {
		c.NodeTaint = append(c.NodeTaint, taint.ToString())
	}

	if n.Planned.Address.IsValid() {
		c.NodeIP = n.Planned.Address.String()
	}

	args := k.AgentArgs

	if n.Planned.Role == spec.RoleControlPlane {
		args = k.ServerArgs
		c.Token, c.AgentToken = i.ServerToken(), i.AgentToken
		c.Disable, c.WriteKubeconfigMode, c.TLSSAN = k.Disable, "0600", names(p)

		if k.Pods != plan.K3sPods {
			c.ClusterCIDR = k.Pods.String()
		}

		if k.Services != plan.K3sServices {
			c.ServiceCIDR = k.Services.String()
		}
	} else {
		c.Token = i.JoinToken()
	}

	c.More = options(args)

	// Names that the operator adds are as good as the program's.
	if more, there := c.More["tls-san"]; there {
		delete(c.More, "tls-san")

		c.TLSSAN = append(c.TLSSAN, listOf(more)...)
	}

	if arguments != nil {
		c.More[apiServerArg] = append(arguments, listOf(c.More[apiServerArg])...)
	}

	var b bytes.Buffer

	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)

	if err := enc.Encode(c); err != nil {
		return "", err
	}

	return b.String(), enc.Close()
}

// names are those that the certificate of the API is for in addition to each server's own: whoever asks one server may
// be sent to another.
func names(p *plan.Plan) []string {
	var all []string

	host, _, _ := strings.Cut(strings.TrimPrefix(p.Endpoint, "https://"), ":")
	if p.EndpointMode == spec.EndpointDNS {
		all = append(all, host)
	}

	for _, n := range p.ControlPlanes() {
		if n.Address.IsValid() {
			all = append(all, n.Address.String())
		}
	}

	return append(all, p.CertNames...)
}

func pairs(m map[string]string) []string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, key+"="+m[key])
	}

	return all
}

// options are arguments of the command line as the configuration file has them: one that is set once is a value, one
// that is set again a list.
func options(args []string) map[string]any {
	found := map[string]any{}

	for _, arg := range args {
		name, value, hasValue := strings.Cut(strings.TrimPrefix(arg, "--"), "=")

		var one any = value
		if !hasValue {
			one = true
		}

		switch now := found[name].(type) {
		case nil:
			found[name] = one
		case []any:
			found[name] = append(now, one)
		default:
			found[name] = []any{now, one}
		}
	}

	return found
}

func listOf(value any) []string {
	var all []string

	switch v := value.(type) {
	case []any:
		for _, one := range v {
			all = append(all, listOf(one)...)
		}
	case string:
		all = append(all, v)
	}

	return all
}
