package changes

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestRuns(t *testing.T) {
	of := func(image string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"image": image}},
		}}}}}
	}

	assert.True(t, runsImage(of("a:1"), "a:1"))
	assert.False(t, runsImage(of("a:1"), "a:2"))
	assert.False(t, runsImage(&unstructured.Unstructured{Object: map[string]any{"spec": "x"}}, "a:1"))
}
