package world

import (
	"maps"
	"strings"
)

// The property strings of drives, by bus (qemu-server: Drive.pm).
var (
	efiFormat = with(plainDrive, format{
		"format": {schema: imageFormat}, "efitype": {schema: oneOf("2m", "4m")}, "pre-enrolled-keys": {schema: flag},
		"import-from": {},
	})
	tpmFormat    = with(plainDrive, format{"version": {schema: oneOf("v1.2", "v2.0")}, "import-from": {}})
	unusedFormat = format{"file": {main: true}, "volume": {}}
	ideFormat    = with(blockDrive, format{
		"model": {schema: schema{maxLength: 120}}, "ssd": {schema: flag},
		"wwn": {schema: worldWide},
	})
	sataFormat   = with(blockDrive, format{"ssd": {schema: flag}, "wwn": {schema: worldWide}})
	virtioFormat = with(blockDrive, format{"iothread": {schema: flag}, "ro": {schema: flag}})
	scsiFormat   = with(blockDrive, format{
		"iothread": {schema: flag}, "queues": {schema: atLeast(2)}, "ro": {schema: flag}, "scsiblock": {schema: flag},
		"ssd": {schema: flag},
		"wwn": {schema: worldWide}, "product": {schema: matching(`[A-Za-z0-9\-_\s]{0,16}`)},
		"vendor": {schema: matching(`[A-Za-z0-9\-_\s]{0,8}`)},
	})
)

var (
	imageFormat = oneOf("raw", "qcow", "qed", "qcow2", "vmdk", "cloop")
	worldWide   = matching(`0x[0-9a-fA-F]{16}`)
	diskSize    = schema{valid: func(value string) string {
		if _, ok := parseSize(value); !ok {
			return "value does not look like a valid disk size"
		}

		return ""
	}}
	plainDrive = format{"file": {main: true}, "volume": {}, "size": {schema: diskSize}}
	blockDrive = with(plainDrive, throttling(), format{
		"media":         {schema: oneOf("cdrom", "disk")},
		"snapshot":      {schema: flag},
		"cache":         {schema: oneOf("none", "writethrough", "writeback", "unsafe", "directsync")},
		"format":        {schema: imageFormat},
		"backup":        {schema: flag},
		"replicate":     {schema: flag},
		"rerror":        {schema: oneOf("ignore", "report", "stop")},
		"werror":        {schema: oneOf("enospc", "ignore", "report", "stop")},
		"aio":           {schema: oneOf("native", "threads", "io_uring")},
		"discard":       {schema: oneOf("ignore", "on")},
		"detect_zeroes": {schema: flag},
		"serial":        {schema: schema{maxLength: 60}},
		"shared":        {schema: flag},
		"import-from":   {},
	})
)

// driveAliases are other names of properties.
var driveAliases = map[string]string{
	"volume": "file", "bps_rd_length": "bps_rd_max_length", "bps_wr_length": "bps_wr_max_length",
	"iops_rd_length": "iops_rd_max_length",
	"iops_wr_length": "iops_wr_max_length",
}

// throttling are the limits of a drive's throughput.
func throttling() format {
	f := format{}

	for _, key := range strings.Fields("bps bps_rd bps_wr iops iops_rd iops_wr iops_max iops_rd_max iops_wr_max") {
		f[key] = part{schema: atLeast(0)}
	}

	for _, key := range strings.Fields("mbps mbps_rd mbps_wr mbps_max mbps_rd_max mbps_wr_max") {
		f[key] = part{schema: schema{form: number}}
	}

	for _, key := range strings.Fields("bps bps_rd bps_wr iops iops_rd iops_wr") {
		f[key+"_max_length"] = part{schema: atLeast(1)}
	}

	for _, key := range strings.Fields("bps_rd bps_wr iops_rd iops_wr") {
		f[key+"_length"] = part{schema: atLeast(1)}
	}

	return f
}

// with is a format with the properties of all.
func with(formats ...format) format {
	all := format{}
	for _, f := range formats {
		maps.Copy(all, f)
	}

	return all
}
