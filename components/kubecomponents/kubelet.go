package kubecomponents

import (
	"errors"
	"maps"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// unknownField is how apimachinery names a field that a type does not have.
var unknownField = regexp.MustCompile(`^unknown field "(.*)"$`)

// KubeletFaults are fields that KubeletConfiguration of Kubernetes 1.35 does not have, and fields with values of other
// types. Talos decodes these strictly, with the library of its own version.
func KubeletFaults(config map[string]any) (unknown, wrongType []string) {
	for _, field := range slices.Sorted(maps.Keys(config)) {
		more, ok := decode(map[string]any{field: config[field]}, new(kubelet.KubeletConfiguration))
		unknown = append(unknown, more...)

		if !ok {
			wrongType = append(wrongType, field)
		}
	}

	return unknown, wrongType
}

// decode reads an object strictly, as Talos does. It is not ok where a value has another type.
func decode(object map[string]any, into any) (unknown []string, ok bool) {
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object, into, true)
	if err == nil {
		return nil, true
	}

	strict, ok := runtime.AsStrictDecodingError(err)
	if !ok {
		return nil, false
	}

	for _, err := range strict.Errors() {
		if m := unknownField.FindStringSubmatch(err.Error()); m != nil {
			unknown = append(unknown, m[1])
		} else if !errors.Is(err, strict) {
			ok = false
		}
	}

	return unknown, ok
}
