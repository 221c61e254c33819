// Package hookutil reads what the engine passes to resource hooks, and registers hooks.
package hookutil

import (
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// String is a string property; "" where it is absent, unknown or of another type.
func String(m resource.PropertyMap, key resource.PropertyKey) string {
	v := Unwrap(m[key])
	if !v.IsString() {
		return ""
	}

	return v.StringValue()
}

// Strings are the strings of a list property, without empty ones.
func Strings(m resource.PropertyMap, key resource.PropertyKey) []string {
	v := Unwrap(m[key])
	if !v.IsArray() {
		return nil
	}

	var all []string

	for _, item := range v.ArrayValue() {
		if item := Unwrap(item); item.IsString() && item.StringValue() != "" {
			all = append(all, item.StringValue())
		}
	}

	return all
}

// Objects are the objects of a list property.
func Objects(m resource.PropertyMap, key resource.PropertyKey) []resource.PropertyMap {
	v := Unwrap(m[key])
	if !v.IsArray() {
		return nil
	}

	var all []resource.PropertyMap

	for _, item := range v.ArrayValue() {
		if item := Unwrap(item); item.IsObject() {
			all = append(all, item.ObjectValue())
		}
	}

	return all
}

// Inputs are the inputs that a resource has, or is to have where it is created.
func Inputs(args *pulumi.ResourceHookArgs) resource.PropertyMap {
	if len(args.OldInputs) > 0 {
		return args.OldInputs
	}

	return args.NewInputs
}

// Number is a number property; 0 where it is absent, unknown or of another type.
func Number(m resource.PropertyMap, key resource.PropertyKey) float64 {
	v := Unwrap(m[key])
	if !v.IsNumber() {
		return 0
	}

	return v.NumberValue()
}

// Unwrap returns the value inside of secrets and outputs.
func Unwrap(v resource.PropertyValue) resource.PropertyValue {
	for {
		switch {
		case v.IsSecret():
			v = v.SecretValue().Element
		case v.IsOutput():
			v = v.OutputValue().Element
		default:
			return v
		}
	}
}
