package kubecomponents

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// auditPolicy is Policy of audit.k8s.io/v1.
type auditPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Rules             []auditRule `json:"rules"`
	OmitStages        []string    `json:"omitStages"`
	OmitManagedFields bool        `json:"omitManagedFields"`
}

type auditRule struct {
	Level             string           `json:"level"`
	Users             []string         `json:"users"`
	UserGroups        []string         `json:"userGroups"`
	Verbs             []string         `json:"verbs"`
	Resources         []auditResources `json:"resources"`
	Namespaces        []string         `json:"namespaces"`
	NonResourceURLs   []string         `json:"nonResourceURLs"`
	OmitStages        []string         `json:"omitStages"`
	OmitManagedFields *bool            `json:"omitManagedFields"`
}

type auditResources struct {
	Group         string   `json:"group"`
	Resources     []string `json:"resources"`
	ResourceNames []string `json:"resourceNames"`
}

var (
	auditLevels = []string{"None", "Metadata", "Request", "RequestResponse"}
	auditStages = []string{"RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"}
)

// AuditFaults are why an API server does not take an audit policy (Kubernetes: apiserver/pkg/apis/audit/validation), or
// takes it without a field. They quote no values.
func AuditFaults(policy map[string]any) []string {
	var decoded auditPolicy

	unknown, ok := decode(policy, &decoded)
	if !ok {
		return []string{"a field of the audit policy has a value of another type"}
	}

	var faults []string
	for _, field := range unknown {
		faults = append(faults, field+" is not a field of an audit policy")
	}

	if len(decoded.Rules) == 0 {
		faults = append(faults, "the audit policy has no rules")
	}

	stages := func(path string, stages []string) {
		for i, stage := range stages {
			if !slices.Contains(auditStages, stage) {
				faults = append(faults, fmt.Sprintf("%somitStages[%d] must be one of %s", path, i, strings.Join(auditStages, ", ")))
			}
		}
	}

	stages("", decoded.OmitStages)

	for i, rule := range decoded.Rules {
		path := fmt.Sprintf("rules[%d].", i)

		if !slices.Contains(auditLevels, rule.Level) {
			faults = append(faults, path+"level must be one of "+strings.Join(auditLevels, ", "))
		}

		for n, url := range rule.NonResourceURLs {
			if url != "*" && (!strings.HasPrefix(url, "/") || strings.Contains(url[:len(url)-1], "*")) {
				faults = append(faults, fmt.Sprintf("%snonResourceURLs[%d] must begin with /, and may end with *", path, n))
			}
		}

		for n, resources := range rule.Resources {
			if strings.Contains(resources.Group, "/") {
				faults = append(faults, fmt.Sprintf("%sresources[%d].group must be a group without a version", path, n))
			}

			if len(resources.ResourceNames) > 0 && len(resources.Resources) == 0 {
				faults = append(faults, fmt.Sprintf("%sresources[%d].resourceNames needs resources", path, n))
			}
		}

		if len(rule.NonResourceURLs) > 0 && (len(rule.Resources) > 0 || len(rule.Namespaces) > 0) {
			faults = append(faults, path+"nonResourceURLs cannot be combined with resources or namespaces")
		}

		stages(path, rule.OmitStages)
	}

	return faults
}
