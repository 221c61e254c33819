package kube_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applyv1 "k8s.io/client-go/applyconfigurations/core/v1"
)

// What is applied belongs to who has applied it; others conflict, unless they force it.
func TestServerSideApply(t *testing.T) {
	f := start(t)
	maps := f.api.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	apply := func(manager string, force bool, data map[string]string) (*corev1.ConfigMap, error) {
		return maps.Apply(t.Context(), applyv1.ConfigMap("a", metav1.NamespaceDefault).WithData(data),
			metav1.ApplyOptions{FieldManager: manager, Force: force})
	}

	made, err := apply("one", false, map[string]string{"k": "v", "l": "v"})
	require.NoError(t, err)
	require.NotEmpty(t, made.UID)
	require.Equal(t, "one", made.ManagedFields[0].Manager)

	again, err := apply("one", false, map[string]string{"k": "v", "l": "v"})
	require.NoError(t, err)
	require.Equal(t, made.ResourceVersion, again.ResourceVersion, "nothing has changed")

	_, err = apply("two", false, map[string]string{"k": "w"})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.ErrorContains(t, err, `conflict with "one": .data.k`)

	forced, err := apply("two", true, map[string]string{"k": "w"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"k": "w", "l": "v"}, forced.Data)

	less, err := apply("one", false, map[string]string{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"k": "w"}, less.Data, "what is no longer applied is removed")

	// who changes it otherwise has a part of it, too
	changed, err := maps.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"data": {"m": "x"}}`),
		metav1.PatchOptions{FieldManager: "three"})
	require.NoError(t, err)
	require.Equal(t, metav1.ManagedFieldsOperationUpdate, changed.ManagedFields[len(changed.ManagedFields)-1].Operation)

	_, err = apply("two", false, map[string]string{"k": "w", "m": "y"})
	require.ErrorContains(t, err, `conflict with "three" using v1: .data.m`)

	// what was there before anybody applied
	_, err = maps.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "b"}, Data: map[string]string{"k": "v"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	_, err = maps.Apply(t.Context(), applyv1.ConfigMap("b", metav1.NamespaceDefault).WithData(map[string]string{"k": "w"}),
		metav1.ApplyOptions{FieldManager: "one"})
	require.ErrorContains(t, err, `conflict with "before-first-apply" using v1: .data.k`)

	dry, err := maps.Apply(t.Context(), applyv1.ConfigMap("c", metav1.NamespaceDefault),
		metav1.ApplyOptions{FieldManager: "one", DryRun: []string{metav1.DryRunAll}})
	require.NoError(t, err)
	require.Equal(t, "c", dry.Name)

	_, err = maps.Get(t.Context(), "c", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err))
}
