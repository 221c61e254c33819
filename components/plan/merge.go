package plan

import (
	"maps"
	"reflect"
)

// overlay returns base with everything that over states: what is nil in over is taken from base, maps merge by their keys,
// structs by their fields, and anything else is taken whole.
func overlay(base, over Shape) Shape {
	merge(reflect.ValueOf(&base).Elem(), reflect.ValueOf(over))

	return base
}

func merge(base, over reflect.Value) {
	switch over.Kind() { //nolint:exhaustive // a Shape holds no other kinds
	case reflect.Struct:
		for i := range over.NumField() {
			merge(base.Field(i), over.Field(i))
		}
	case reflect.Map:
		if over.IsNil() {
			return
		}

		both := maps.Clone(base.Interface().(map[string]string))
		if both == nil {
			both = map[string]string{}
		}

		maps.Copy(both, over.Interface().(map[string]string))
		base.Set(reflect.ValueOf(both))
	default:
		if !over.IsNil() {
			base.Set(over)
		}
	}
}

func (s Shape) isZero() bool { return reflect.ValueOf(s).IsZero() }
