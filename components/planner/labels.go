package planner

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/labels"
	corev1 "k8s.io/api/core/v1"
	kubeletapis "k8s.io/kubelet/pkg/apis"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// kubernetesOwn are labels and taints that nothing else can keep, with the reason.
var kubernetesOwn = map[string]map[string]string{
	"labels": reasons("is set by the kubelet itself, whenever it starts",
		corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, kubeletapis.LabelOS, kubeletapis.LabelArch),
	"taints": reasons("is set and removed by Kubernetes itself, by the state of the node",
		corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable,
		corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure, corev1.TaintNodePIDPressure,
		corev1.TaintNodeNetworkUnavailable),
}

func reasons(reason string, keys ...string) map[string]string {
	all := map[string]string{}
	for _, key := range keys {
		all[key] = reason
	}

	return all
}

// regionName is a value of a label that is also part of a provider ID.
var regionName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// checkRegion: what the program knows by itself must not be set.
func (r *resolver) checkRegion(p *plan.Plan) {
	p.Region = r.Spec.Cluster.Region
	if p.Region == "" {
		return
	}

	if !regionName.MatchString(p.Region) {
		r.Problems.Add("cluster.region", "must be letters, digits, dots and dashes, 63 at most", p.Region, "rename it")
	}

	check := func(path string, s spec.VMSpec) {
		for _, label := range []string{corev1.LabelTopologyRegion, corev1.LabelTopologyZone} {
			if value, configured := s.Labels[label]; configured {
				r.Problems.Add(path+".labels."+label, "is set by cluster.region", value, "leave one of the two out")
			}
		}
	}

	check("defaults", r.Spec.Defaults)

	for _, pool := range r.pools {
		check(pool.path, pool.VMSpec)

		for _, m := range pool.members {
			if m.statesVM() {
				check(m.path, m.VMSpec)
			}
		}
	}
}

// checkKubernetes lets Talos say what it thinks of labels, taints and annotations.
func (r *resolver) checkKubernetes(path string, s spec.VMSpec) {
	for _, kind := range []struct {
		key      string
		values   map[string]string
		validate func(map[string]string) error
	}{
		{"labels", s.Labels, labels.Validate},
		{"taints", s.Taints, labels.ValidateTaints},
		{"annotations", s.Annotations, labels.ValidateAnnotations},
	} {
		for _, key := range slices.Sorted(maps.Keys(kind.values)) {
			if err := kind.validate(map[string]string{key: kind.values[key]}); err != nil {
				r.Problems.Add(path+"."+kind.key+"."+key, "is not valid in Kubernetes: "+oneLine(err), kind.values[key],
					"correct it")
			} else if reason := kubernetesOwn[kind.key][key]; reason != "" {
				r.Problems.Add(path+"."+kind.key+"."+key, reason, kind.values[key], "leave it out")
			}
		}
	}
}

// oneLine folds the errors of Talos, which come as a list.
func oneLine(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	_, after, found := strings.Cut(text, "occurred: * ")

	if found {
		return after
	}

	return text
}
