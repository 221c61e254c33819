package hookutil_test

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/hookutil"
)

func TestProperties(t *testing.T) {
	t.Parallel()

	m := resource.PropertyMap{
		"name": resource.MakeSecret(resource.NewProperty("a")),
		"size": resource.NewProperty(resource.Output{Element: resource.NewProperty(8.0), Known: true}),
		"tags": resource.NewProperty([]resource.PropertyValue{
			resource.NewProperty("b"), resource.NewProperty(""), resource.NewProperty(1.0),
			resource.MakeSecret(resource.NewProperty("c")),
		}),
		"disks": resource.NewProperty([]resource.PropertyValue{
			resource.MakeSecret(resource.NewProperty(resource.PropertyMap{"interface": resource.NewProperty("scsi0")})),
			resource.NewProperty("b"),
		}),
		"unknown": resource.MakeComputed(resource.NewProperty("")),
	}

	assert.Equal(t, "a", hookutil.String(m, "name"))
	assert.InDelta(t, 8, hookutil.Number(m, "size"), 0)
	assert.Equal(t, []string{"b", "c"}, hookutil.Strings(m, "tags"))
	assert.Equal(t, []resource.PropertyMap{{"interface": resource.NewProperty("scsi0")}}, hookutil.Objects(m, "disks"))

	for _, key := range []resource.PropertyKey{"absent", "unknown"} {
		assert.Empty(t, hookutil.String(m, key))
		assert.Zero(t, hookutil.Number(m, key))
		assert.Empty(t, hookutil.Strings(m, key))
		assert.Empty(t, hookutil.Objects(m, key))
	}

	assert.Empty(t, hookutil.String(m, "size"), "another type")
	assert.Zero(t, hookutil.Number(m, "name"), "another type")
	assert.Empty(t, hookutil.Strings(m, "name"), "another type")
}
