package components

import (
	"reflect"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm/vmidentity"
)

// withRelease adds to the outputs of a cluster that an update with lifecycle.teardown has released it.
func withRelease(outputs pulumi.Map, p *plan.Plan) pulumi.Map {
	if p.Teardown {
		outputs[vmidentity.ReleasedOutput] = pulumi.String(p.Cluster)
	}

	return outputs
}

// outputsOf are the outputs of a component: its fields with a pulumi tag, which is their name.
func outputsOf(component pulumi.ComponentResource) pulumi.Map {
	outputs := pulumi.Map{}
	value := reflect.Indirect(reflect.ValueOf(component))

	for i := range value.NumField() {
		if name, ok := value.Type().Field(i).Tag.Lookup("pulumi"); ok {
			outputs[name] = value.Field(i).Interface().(pulumi.Input)
		}
	}

	return outputs
}
