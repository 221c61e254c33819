package kube

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// setDefaults fills in what the API server fills in on creation, as far as clients look at it.
func setDefaults(obj runtime.Object) {
	switch o := obj.(type) {
	case *corev1.Namespace:
		o.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
		o.Status.Phase = corev1.NamespaceActive
		if o.Labels == nil {
			o.Labels = map[string]string{}
		}
		o.Labels["kubernetes.io/metadata.name"] = o.Name
	case *corev1.Pod:
		if o.Status.Phase == "" {
			o.Status.Phase = corev1.PodPending
		}
	case *corev1.PersistentVolume:
		defaultVolume(&o.Spec.VolumeMode)

		if o.Spec.PersistentVolumeReclaimPolicy == "" {
			o.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}

		// It is pending until the volume controller has seen it, which takes no time here.
		o.Status.Phase = corev1.VolumeAvailable
	case *corev1.PersistentVolumeClaim:
		defaultVolume(&o.Spec.VolumeMode)
		o.Status.Phase = corev1.ClaimPending
	case *corev1.Secret:
		if o.Type == "" {
			o.Type = corev1.SecretTypeOpaque
		}

		for name, text := range o.StringData {
			if o.Data == nil {
				o.Data = map[string][]byte{}
			}

			o.Data[name] = []byte(text)
		}

		o.StringData = nil
	case *rbacv1.RoleBinding:
		defaultBinding(&o.RoleRef, o.Subjects)
	case *rbacv1.ClusterRoleBinding:
		defaultBinding(&o.RoleRef, o.Subjects)
	case *corev1.Service:
		defaultService(&o.Spec)
	case *appsv1.DaemonSet:
		if o.Spec.UpdateStrategy.Type == "" {
			one, none := intstr.FromInt32(1), intstr.FromInt32(0)
			o.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{
				Type:          appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &one, MaxSurge: &none},
			}
		}
	case *appsv1.Deployment:
		if o.Spec.Replicas == nil {
			one := int32(1)
			o.Spec.Replicas = &one
		}

		if o.Spec.Strategy.Type == "" {
			quarter := intstr.FromString("25%")
			o.Spec.Strategy = appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &quarter, MaxSurge: &quarter},
			}
		}
	}
}

func defaultVolume(mode **corev1.PersistentVolumeMode) {
	if *mode == nil {
		files := corev1.PersistentVolumeFilesystem
		*mode = &files
	}
}

func defaultBinding(role *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	role.APIGroup = rbacv1.GroupName

	for i := range subjects {
		if s := &subjects[i]; s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind {
			s.APIGroup = rbacv1.GroupName
		}
	}
}

func defaultService(s *corev1.ServiceSpec) {
	if s.Type == "" {
		s.Type = corev1.ServiceTypeClusterIP
	}

	if s.SessionAffinity == "" {
		s.SessionAffinity = corev1.ServiceAffinityNone
	}

	for i := range s.Ports {
		p := &s.Ports[i]
		if p.Protocol == "" {
			p.Protocol = corev1.ProtocolTCP
		}

		if p.TargetPort == (intstr.IntOrString{}) {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
}
