package kube

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// wantsTable tells whether the client prefers the server's own rendering, as kubectl does.
func wantsTable(r *http.Request) bool {
	first, _, _ := strings.Cut(r.Header.Get("Accept"), ",")

	return strings.Contains(first, "as=Table") && strings.Contains(first, "v=v1;")
}

// column is one column of a table; wide ones are shown with -o wide.
type column struct {
	name string
	wide bool
	cell func(runtime.Object) any
}

func text(s string) string {
	if s == "" {
		return "<none>"
	}

	return s
}

var (
	nameColumn = column{"Name", false, func(o runtime.Object) any { return accessor(o).GetName() }}
	ageColumn  = column{"Age", false, func(o runtime.Object) any {
		return duration.HumanDuration(time.Since(accessor(o).GetCreationTimestamp().Time))
	}}
)

func col[T runtime.Object](name string, wide bool, cell func(T) any) column {
	return column{name, wide, func(o runtime.Object) any { return cell(o.(T)) }}
}

// columns returns what kubectl shows of a kind: the columns of the real API server for the kinds that people look at.
func columns(k *kind) []column {
	switch k {
	case nodes:
		return []column{
			nameColumn,
			col("Status", false, func(n *corev1.Node) any { return nodeState(n) }),
			col("Roles", false, func(n *corev1.Node) any { return nodeRoles(n) }),
			ageColumn,
			col("Version", false, func(n *corev1.Node) any { return n.Status.NodeInfo.KubeletVersion }),
			col("Internal-IP", true, func(n *corev1.Node) any { return text(nodeAddress(n)) }),
			col("External-IP", true, func(*corev1.Node) any { return "<none>" }),
			col("OS-Image", true, func(n *corev1.Node) any { return text(n.Status.NodeInfo.OSImage) }),
			col("Kernel-Version", true, func(n *corev1.Node) any { return text(n.Status.NodeInfo.KernelVersion) }),
			col("Container-Runtime", true, func(n *corev1.Node) any { return text(n.Status.NodeInfo.ContainerRuntimeVersion) }),
		}
	case pods:
		return []column{
			nameColumn,
			col("Ready", false, func(p *corev1.Pod) any { return podContainers(p) }),
			col("Status", false, func(p *corev1.Pod) any { return string(p.Status.Phase) }),
			col("Restarts", false, func(*corev1.Pod) any { return "0" }),
			ageColumn,
			col("IP", true, func(p *corev1.Pod) any { return text(p.Status.PodIP) }),
			col("Node", true, func(p *corev1.Pod) any { return text(p.Spec.NodeName) }),
			col("Nominated Node", true, func(*corev1.Pod) any { return "<none>" }),
			col("Readiness Gates", true, func(*corev1.Pod) any { return "<none>" }),
		}
	case namespaces:
		return []column{
			nameColumn, col("Status", false, func(n *corev1.Namespace) any { return string(n.Status.Phase) }),
			ageColumn,
		}
	case services:
		return []column{
			nameColumn,
			col("Type", false, func(s *corev1.Service) any { return string(s.Spec.Type) }),
			col("Cluster-IP", false, func(s *corev1.Service) any { return text(s.Spec.ClusterIP) }),
			col("External-IP", false, func(*corev1.Service) any { return "<none>" }),
			col("Port(s)", false, func(s *corev1.Service) any { return servicePorts(s) }),
			ageColumn,
		}
	case daemonSets:
		return []column{
			nameColumn,
			col("Desired", false, func(d *appsv1.DaemonSet) any { return d.Status.DesiredNumberScheduled }),
			col("Current", false, func(d *appsv1.DaemonSet) any { return d.Status.CurrentNumberScheduled }),
			col("Ready", false, func(d *appsv1.DaemonSet) any { return d.Status.NumberReady }),
			col("Up-to-date", false, func(d *appsv1.DaemonSet) any { return d.Status.UpdatedNumberScheduled }),
			col("Available", false, func(d *appsv1.DaemonSet) any { return d.Status.NumberAvailable }),
			ageColumn,
		}
	case deployments:
		return []column{
			nameColumn,
			col("Ready", false, func(d *appsv1.Deployment) any {
				return fmt.Sprintf("%d/%d", d.Status.ReadyReplicas,
					replicas(d))
			}),
			col("Up-to-date", false, func(d *appsv1.Deployment) any { return d.Status.UpdatedReplicas }),
			col("Available", false, func(d *appsv1.Deployment) any { return d.Status.AvailableReplicas }),
			ageColumn,
		}
	case jobs:
		return []column{
			nameColumn,
			col("Status", false, func(j *batchv1.Job) any { return jobStatus(j) }),
			col("Completions", false, func(j *batchv1.Job) any { return fmt.Sprintf("%d/1", j.Status.Succeeded) }),
			ageColumn,
		}
	default:
		return []column{nameColumn, ageColumn}
	}
}

func jobStatus(j *batchv1.Job) string {
	if j.Status.CompletionTime != nil {
		return "Complete"
	}

	return "Running"
}

// table renders objects as the server-side table that kubectl prints.
func table(k *kind, items []runtime.Object, version string, r *http.Request) metav1.Table {
	cols := columns(k)
	out := metav1.Table{
		TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: version},
		Rows:     []metav1.TableRow{},
	}

	for _, c := range cols {
		def := metav1.TableColumnDefinition{Name: c.name, Type: "string"}
		if c.name == "Name" {
			def.Format = "name"
		}

		if c.wide {
			def.Priority = 1
		}

		out.ColumnDefinitions = append(out.ColumnDefinitions, def)
	}

	whole := r.URL.Query().Get("includeObject") == string(metav1.IncludeObject)

	for _, obj := range items {
		row := metav1.TableRow{}
		for _, c := range cols {
			row.Cells = append(row.Cells, c.cell(obj))
		}

		if whole {
			obj = obj.DeepCopyObject() // a watch hands in what the history holds
			obj.GetObjectKind().SetGroupVersionKind(k.gvk())
			row.Object = runtime.RawExtension{Object: obj}
		} else {
			m := accessor(obj)
			row.Object = runtime.RawExtension{Object: &metav1.PartialObjectMetadata{
				TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"},
				ObjectMeta: metav1.ObjectMeta{
					Name: m.GetName(), Namespace: m.GetNamespace(), UID: m.GetUID(), ResourceVersion: m.GetResourceVersion(),
					CreationTimestamp: m.GetCreationTimestamp(), Generation: m.GetGeneration(),
					Labels: m.GetLabels(), Annotations: m.GetAnnotations(),
				},
			}}
		}

		out.Rows = append(out.Rows, row)
	}

	return out
}

// replicas is how many pods a deployment wants.
func replicas(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}

	return *d.Spec.Replicas
}

func nodeState(n *corev1.Node) string {
	state := "NotReady"
	if nodeCondition(n) == corev1.ConditionTrue {
		state = "Ready"
	}

	if n.Spec.Unschedulable {
		state += ",SchedulingDisabled"
	}

	return state
}

func nodeRoles(n *corev1.Node) string {
	var roles []string

	for label := range n.Labels {
		if role, ok := strings.CutPrefix(label, "node-role.kubernetes.io/"); ok {
			roles = append(roles, role)
		}
	}

	slices.Sort(roles)

	return text(strings.Join(roles, ","))
}

func podContainers(p *corev1.Pod) string {
	ready := 0

	for _, cs := range p.Status.ContainerStatuses {
		if cs.Ready {
			ready++
		}
	}

	return fmt.Sprintf("%d/%d", ready, len(p.Spec.Containers))
}

func servicePorts(s *corev1.Service) string {
	ports := make([]string, 0, len(s.Spec.Ports))
	for _, p := range s.Spec.Ports {
		ports = append(ports, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
	}

	return text(strings.Join(ports, ","))
}
