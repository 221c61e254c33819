package proxmoxvm

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRestarts(t *testing.T) {
	for path, want := range map[string][]string{
		"memory.dedicated":           {"memory"},
		"cpu":                        {"cpu"},
		"networkDevices[0].vlanId":   {"networkDevices"},
		"hostpcis[1]":                {"hostpcis"},
		"agent.timeout":              {"agent"},
		"disks[0].aio":               {"disks"},
		"disks[10].datastoreId":      {"disks"},
		"disks[0].size":              nil,
		"disks[0].cache":             {"disks"},
		"disks[1].discard":           {"disks"},
		"disks[1].iothread":          {"disks"},
		"disks[1].ssd":               {"disks"},
		"disks[1].backup":            nil,
		"disks[1].replicate":         nil,
		"disks[1]":                   nil,
		"disks":                      nil,
		"tags[0]":                    nil,
		"name":                       nil,
		"onBoot":                     nil,
		"nodeName":                   nil,
		"startup.order":              nil,
		"timeoutClone":               nil,
		"cdrom.fileId":               nil,
		"protection":                 nil,
		"description":                nil,
		"started":                    nil,
		"smbios.uuid":                nil,
		"operatingSystem.type":       {"operatingSystem"},
		"initialization.dns.servers": {"initialization"},
	} {
		assert.Equal(t, want, Restarts([]string{path}), path)
	}

	assert.Equal(t, []string{"cpu", "memory"},
		Restarts([]string{"memory.floating", "tags", "cpu.cores", "memory.dedicated"}))
}
