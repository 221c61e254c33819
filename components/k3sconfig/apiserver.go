package k3sconfig

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/components/cloudinit"
	"talos-proxmox/components/kubecomponents"
	"talos-proxmox/components/plan"
)

// apiServerDir is where servers keep the files that their API servers read.
const apiServerDir = "/etc/rancher/k3s/apiserver/"

// auditLog is where, and how much of it, K3s advises to keep (K3s: CIS Hardening Guide). It is rotated at 100 MiB.
var auditLog = map[string]string{
	"audit-log-path":   "/var/lib/rancher/k3s/server/logs/audit.log",
	"audit-log-maxage": "30", "audit-log-maxbackup": "10", "audit-log-maxsize": "100",
}

// apiServer are the arguments of a server's API server, NAME=VALUE, and the files that they name. What the
// operator states is left out, and wins: the plan lets only arguments of the audit log through.
func apiServer(p *plan.Plan) (args []string, files []cloudinit.File, err error) {
	a, all := p.APIServer, plan.APIServerArgs(p.APIServer)

	keep := func(argument, name, text string) {
		path := apiServerDir + name
		all[argument] = path
		files = append(files, cloudinit.File{Path: path, Permissions: "0600", Content: text})
	}

	if a.Authentication != nil {
		keep("authentication-config", "authentication.yaml", a.Authentication.Text)
	}

	if a.Audit != nil {
		maps.Copy(all, auditLog)
		keep("audit-policy-file", "audit.yaml", a.Audit.Text)
	}

	// What is passed here replaces what K3s enables itself.
	if disabled := kubecomponents.DisabledPlugins(maps.Keys(a.Admission)); len(disabled) > 0 {
		all[kubecomponents.EnablePlugins] = strings.Join(append([]string{"NodeRestriction"}, disabled...), ",")
	}

	if len(a.Admission) > 0 {
		text, err := admission(a.Admission)
		if err != nil {
			return nil, nil, err
		}

		keep("admission-control-config-file", "admission.yaml", text)
	}

	configured := options(listOf(options(p.K3s.ServerArgs)[apiServerArg]))

	for _, name := range slices.Sorted(maps.Keys(all)) {
		if _, there := configured[name]; !there {
			args = append(args, name+"="+all[name])
		}
	}

	return args, files, nil
}

// podSecurityHead is what a configuration of PodSecurity must begin with: an API server does not start without it. The
// configuration of Talos has it.
var podSecurityHead = map[string]any{
	"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
}

// exemptSystem has a configuration of PodSecurity leave alone the namespace of K3s' own pods, as Talos has its own.
func exemptSystem(configuration map[string]any) map[string]any {
	exemptions, _ := configuration["exemptions"].(map[string]any)
	namespaces, _ := exemptions["namespaces"].([]any)

	if !slices.Contains(namespaces, any(metav1.NamespaceSystem)) {
		namespaces = append(slices.Clone(namespaces), metav1.NamespaceSystem)
	}

	exemptions, configuration = maps.Clone(exemptions), maps.Clone(configuration)
	if exemptions == nil {
		exemptions = map[string]any{}
	}

	exemptions["namespaces"], configuration["exemptions"] = namespaces, exemptions

	return configuration
}

// admission is Kubernetes' AdmissionConfiguration.
func admission(plugins map[string]map[string]any) (string, error) {
	type plugin struct {
		Name          string         `yaml:"name"`
		Configuration map[string]any `yaml:"configuration"`
	}

	var all []plugin
	for _, name := range slices.Sorted(maps.Keys(plugins)) {
		configuration := plugins[name]
		if name == kubecomponents.PodSecurity && configuration != nil {
			given := exemptSystem(configuration)
			configuration = maps.Clone(podSecurityHead)
			maps.Copy(configuration, given)
		}

		all = append(all, plugin{name, configuration})
	}

	text, err := yaml.Marshal(struct {
		APIVersion string   `yaml:"apiVersion"`
		Kind       string   `yaml:"kind"`
		Plugins    []plugin `yaml:"plugins"`
	}{"apiserver.config.k8s.io/v1", "AdmissionConfiguration", all})

	return string(text), err
}
