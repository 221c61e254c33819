package kube_test

import (
	"mime"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// kubectl apply asks for the OpenAPI document first, and reads the type of the answer.
func TestOpenAPI(t *testing.T) {
	f := start(t)

	client, err := rest.HTTPClientFor(f.config("admin", "system:masters"))
	require.NoError(t, err)

	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+"/openapi/v2", nil)
	require.NoError(t, err)
	r.Header.Set("Accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")

	res, err := client.Do(r)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())

	media, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	require.NoError(t, err)
	require.Equal(t, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf", media)

	_, err = f.api.Discovery().OpenAPISchema()
	require.NoError(t, err)
}

// kubectl get all asks for every kind of that category.
func TestCategories(t *testing.T) {
	f := start(t)

	core, err := f.api.Discovery().ServerResourcesForGroupVersion("v1")
	require.NoError(t, err)

	var all []string

	for _, r := range core.APIResources {
		if len(r.Categories) > 0 {
			all = append(all, r.Name)
		}
	}

	require.Equal(t, []string{"pods", "services"}, all)
}

// kubectl auth asks who it is and what it may do.
func TestReviews(t *testing.T) {
	f := start(t)

	who, err := f.api.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, "admin", who.Status.UserInfo.Username)
	require.Contains(t, who.Status.UserInfo.Groups, "system:masters")

	for group, allowed := range map[string]bool{"system:masters": true, "guests": false} {
		got, err := f.client("someone", group).AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(),
			&authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Version: "*", Resource: "nodes"}},
			}, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Equal(t, allowed, got.Status.Allowed, group)
	}
}

// What a client leaves out is there when it looks again.
func TestDefaults(t *testing.T) {
	f := start(t)
	system := metav1.NamespaceSystem

	proxy, err := f.api.AppsV1().DaemonSets(system).Get(t.Context(), "kube-proxy", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, appsv1.RollingUpdateDaemonSetStrategyType, proxy.Spec.UpdateStrategy.Type)

	dns, err := f.api.AppsV1().Deployments(system).Get(t.Context(), "coredns", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, appsv1.RollingUpdateDeploymentStrategyType, dns.Spec.Strategy.Type)

	service, err := f.api.CoreV1().Services(system).Get(t.Context(), "kube-dns", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, corev1.ServiceAffinityNone, service.Spec.SessionAffinity)
	require.EqualValues(t, 53, service.Spec.Ports[0].TargetPort.IntVal)

	secret, err := f.api.CoreV1().Secrets("default").Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, corev1.SecretTypeOpaque, secret.Type)

	volume, err := f.api.CoreV1().PersistentVolumes().Create(t.Context(),
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, corev1.PersistentVolumeReclaimRetain, volume.Spec.PersistentVolumeReclaimPolicy)
	require.Equal(t, corev1.PersistentVolumeFilesystem, *volume.Spec.VolumeMode)
	require.Equal(t, corev1.VolumeAvailable, volume.Status.Phase)

	claim, err := f.api.CoreV1().PersistentVolumeClaims("default").Create(t.Context(),
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, corev1.ClaimPending, claim.Status.Phase)
}

// A namespace takes with it what is in it; those that Kubernetes needs stay.
func TestNamespaceDeletion(t *testing.T) {
	f := start(t)
	f.join("node-1")

	spaces := f.api.CoreV1().Namespaces()
	_, err := spaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}},
		metav1.CreateOptions{})
	require.NoError(t, err)

	labels := map[string]string{"app": "web"}
	_, err = f.api.AppsV1().Deployments("web").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	pods, err := f.api.CoreV1().Pods("web").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)

	require.NoError(t, spaces.Delete(t.Context(), "web", metav1.DeleteOptions{}))

	pods, err = f.api.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	require.NoError(t, err)
	require.Empty(t, pods.Items)

	err = spaces.Delete(t.Context(), metav1.NamespaceSystem, metav1.DeleteOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, `namespaces "kube-system" is forbidden: this namespace may not be deleted`)
}

// A dry run changes nothing, whatever the verb.
func TestDryRun(t *testing.T) {
	f := start(t)
	f.join("node-1")

	dry := []string{metav1.DryRunAll}
	nodes := f.api.CoreV1().Nodes()

	got, err := nodes.Patch(t.Context(), "node-1", types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`),
		metav1.PatchOptions{DryRun: dry})
	require.NoError(t, err)
	require.True(t, got.Spec.Unschedulable)

	_, err = nodes.Update(t.Context(), got, metav1.UpdateOptions{DryRun: dry})
	require.NoError(t, err)
	require.NoError(t, nodes.Delete(t.Context(), "node-1", metav1.DeleteOptions{DryRun: dry}))

	now, err := nodes.Get(t.Context(), "node-1", metav1.GetOptions{})
	require.NoError(t, err)
	require.False(t, now.Spec.Unschedulable)

	// nor does a deletion that means another object of the name
	other := types.UID("00000000-0000-0000-0000-000000000000")
	err = nodes.Delete(t.Context(), "node-1", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.NoError(t, nodes.Delete(t.Context(), "node-1",
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &now.UID}}))
}
