package tests

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/components/spec"
	"talos-proxmox/tests/rehearsal"
)

// shapeKey is a value of a key of spec.VMSpec that is not its default, and how Proxmox VE shows it: what a setting of
// the VM holds. Keys that are no setting of a VM are looked for elsewhere: see TestShape.
type shapeKey struct {
	value         any
	setting, want string
}

// shapeKeys are all keys of spec.VMSpec.
var shapeKeys = map[string]shapeKey{
	"cores":      {3, "cores", "3"},
	"cpuType":    {"x86-64-v2-AES", "cpu", "x86-64-v2-AES"},
	"numa":       {true, "numa", "1"},
	"cpuUnits":   {200, "cpuunits", "200"},
	"memoryMiB":  {6144, "memory", "6144"},
	"ballooning": {true, "balloon", "5120"},

	"minimumMemoryMiB": {5120, "balloon", "5120"},
	"diskGiB":          {50, "scsi2", "size=50G"},

	"disk.datastore": {"tank", "scsi2", "tank:"},
	"disk.interface": {"scsi2", "scsi2", "tank:"},
	"disk.cache":     {"writeback", "scsi2", "cache=writeback"},
	"disk.aio":       {"threads", "scsi2", "aio=threads"},
	"disk.discard":   {false, "scsi2", "discard=ignore"},
	"disk.ssd":       {true, "scsi2", "ssd=1"},
	"disk.iothread":  {true, "scsi2", "iothread=1"},
	"disk.backup":    {false, "scsi2", "backup=0"},
	"disk.replicate": {false, "scsi2", "replicate=0"},

	"extraDisks.sizeGiB":   {20, "scsi5", "size=20G"},
	"extraDisks.datastore": {"slow", "scsi5", "slow:"},
	"extraDisks.interface": {"scsi5", "scsi5", "slow:"},
	"extraDisks.cache":     {"unsafe", "scsi5", "cache=unsafe"},
	"extraDisks.aio":       {"threads", "scsi5", "aio=threads"},
	"extraDisks.discard":   {false, "scsi5", "discard=ignore"},
	"extraDisks.ssd":       {true, "scsi5", "ssd=1"},
	"extraDisks.iothread":  {true, "scsi5", "iothread=1"},
	"extraDisks.backup":    {false, "scsi5", "backup=0"},
	"extraDisks.replicate": {false, "scsi5", "replicate=0"},
	"extraDisks.volume":    {value: map[string]any{"name": "data", "filesystem": "ext4"}},

	"nics.bridge":   {"vmbr7", "net0", "bridge=vmbr7"},
	"nics.vlan":     {30, "net0", "tag=30"},
	"nics.mtu":      {9000, "net0", "mtu=9000"},
	"nics.firewall": {true, "net0", "firewall=1"},

	"machine":        {"i440fx", "machine", "pc"},
	"firmware":       {"seabios", "bios", "seabios"},
	"tpm":            {true, "tpmstate0", "version=v2.0"},
	"scsiController": {"virtio-scsi-single", "scsihw", "virtio-scsi-single"},
	"serial":         {true, "serial0", "socket"},
	"onBoot":         {false, "onboot", "0"},

	"startup.order":            {7, "startup", "order=7"},
	"startup.upDelaySeconds":   {60, "startup", "up=60"},
	"startup.downDelaySeconds": {90, "startup", "down=90"},

	"protection":   {true, "protection", "1"},
	"tags":         {[]string{"fast"}, "tags", "fast"},
	"resourcePool": {value: "dev"},
	"haGroup":      {value: "racks"},
	"ha":           {value: map[string]any{}},
	"labels":       {value: map[string]string{"tier": "db"}},
	"taints":       {value: map[string]string{"dedicated": "db:NoSchedule"}},
	"annotations":  {value: map[string]string{"example.com/owner": "me"}},
}

// keysOf are the keys of a type, with those below them, and their defaults.
func keysOf(t reflect.Type, below string, found map[string]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			keysOf(f.Type, below, found)

			continue
		}

		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		key := below + name

		inner := f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}

		// Where rules place a VM, haGroup does not: TestHARules has the keys below.
		// Volumes are Talos'.
		if inner == reflect.TypeFor[spec.HA]() || inner == reflect.TypeFor[spec.Volume]() {
			found[key] = ""

			continue
		}

		if inner.Kind() == reflect.Struct {
			keysOf(inner, key+".", found)

			continue
		}

		found[key] = ""

		for _, tag := range strings.Split(f.Tag.Get("jsonschema"), ",") {
			if d, ok := strings.CutPrefix(tag, "default="); ok {
				found[key] = d
			}
		}
	}
}

// TestShape: each key of the shape of a VM, with a value that is not its default, comes to Proxmox VE and back, and a
// refresh finds no difference.
func TestShape(t *testing.T) {
	t.Parallel()

	keys := map[string]string{}
	keysOf(reflect.TypeFor[spec.VMSpec](), "", keys)

	shape := map[string]any{}

	for key, otherwise := range keys {
		k, stated := shapeKeys[key]
		require.True(t, stated, "shapeKeys has no value for %s", key)
		require.NotEqual(t, otherwise, fmt.Sprint(k.value), "%s is the default of %s", otherwise, key)

		into := shape

		if outer, _, below := strings.Cut(key, "."); below {
			if shape[outer] == nil {
				shape[outer] = map[string]any{}
			}

			into = shape[outer].(map[string]any)
		}

		into[key[strings.LastIndex(key, ".")+1:]] = k.value
	}

	require.Len(t, shapeKeys, len(keys), "shapeKeys has a key that a shape has not")

	for _, list := range []string{"extraDisks", "nics"} {
		shape[list] = []any{shape[list]}
	}

	stated, err := json.Marshal(shape)
	require.NoError(t, err)

	text := pair{"iso", "metal", "", "reserved"}.stack()
	// JSON is YAML: the keys follow the others of the pool.
	text = strings.Replace(text, "worker: { role: worker, count: 1,", "worker: { role: worker, count: 1, "+
		string(stated[1:len(stated)-1])+",", 1)

	r := rehearse(t, stackFile(t, text))
	outputs := upResult(t, r.Stack).Outputs
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireShape(t, r, outputs)
	requireSettled(t, r.Stack)
}

// requireShape holds that a worker is as shapeKeys state.
func requireShape(t *testing.T, r *rehearsal.Rehearsal, outputs auto.OutputMap) {
	t.Helper()

	const worker = "pair-worker-1"

	config := vmConfig(t, r, worker)

	for key, k := range shapeKeys {
		if k.setting != "" {
			assert.Contains(t, fmt.Sprint(config[k.setting]), k.want, key)
		}
	}

	v, _ := r.Lab.World().Snapshot().VM(worker)
	assert.Equal(t, shapeKeys["resourcePool"].value, v.Pool)

	managed, err := r.Lab.World().HAResource(fmt.Sprintf("vm:%d", v.ID))
	require.NoError(t, err)
	assert.Equal(t, shapeKeys["haGroup"].value, managed.Group)

	node, err := kubernetesClient(t, outputs).CoreV1().Nodes().Get(t.Context(), worker, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "db", node.Labels["tier"])
	assert.Equal(t, "me", node.Annotations["example.com/owner"])
	require.Len(t, node.Spec.Taints, 1)
	assert.Equal(t, "dedicated=db:NoSchedule", node.Spec.Taints[0].ToString())
}
