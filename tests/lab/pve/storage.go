package pve

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/tests/lab/world"
)

func storageRoutes() []route {
	audit := need("/storage/{storage}", "Datastore.Audit", "Datastore.AllocateSpace")
	nodes := "/nodes/{node}/storage"

	return []route{
		{method: "GET", path: "/storage", params: parameters("type"), handle: storages},
		{
			method: "GET", path: "/storage/{storage}",
			needs: need("/storage/{storage}", "Datastore.Allocate"), handle: storageConfig,
		},
		{
			method: "GET", path: nodes, params: parameters("content storage enabled:bool target format:bool"),
			handle: nodeStorages,
		},
		{method: "GET", path: nodes + "/{storage}/status", needs: audit, handle: storageStatus},
		{
			method: "GET", path: nodes + "/{storage}/content", needs: audit, params: parameters("content vmid:int"),
			handle: content,
		},
		{
			method: "POST", path: nodes + "/{storage}/content",
			needs:  need("/storage/{storage}", "Datastore.AllocateSpace"),
			params: parameters("filename! vmid:int! size! format"), handle: allocate,
		},
		{method: "GET", path: nodes + "/{storage}/content/{volume...}", handle: volume},
		{
			method: "DELETE", path: nodes + "/{storage}/content/{volume...}", params: parameters("delay:int"),
			handle: deleteVolume,
		},
		{
			method: "POST", path: nodes + "/{storage}/download-url",
			needs: need("/storage/{storage}", "Datastore.AllocateTemplate"),
			// The node and the storage are in the path; a client may repeat them.
			params: parameters(
				"url! content! filename! checksum checksum-algorithm compression verify-certificates:bool node storage"),
			handle: downloadURL,
		},
		{
			method: "POST", path: nodes + "/{storage}/upload",
			needs:  need("/storage/{storage}", "Datastore.AllocateTemplate"),
			params: parameters("content! filename! checksum checksum-algorithm"), handle: upload,
		},
		{
			method: "GET", path: "/nodes/{node}/query-url-metadata", params: parameters("url! verify-certificates:bool"),
			handle: queryURLMetadata,
		},
	}
}

func storages(r *request) (any, error) {
	out := []map[string]any{}
	seen := map[string]bool{}

	for _, s := range r.world.Storages(r.caller, "") {
		if kind := r.values.Get("type"); !seen[s.Name] && (kind == "" || kind == s.Type) {
			seen[s.Name] = true
			out = append(out, storageEntry(s))
		}
	}

	return out, nil
}

func storageEntry(s world.StorageInfo) map[string]any {
	out := map[string]any{"storage": s.Name, "type": s.Type, "content": s.Content, "digest": strings.Repeat("0", 40)}
	if s.Shared {
		out["shared"] = 1
	}

	if !s.Enabled {
		out["disable"] = 1
	}

	optional(out, "path", s.Path)

	if s.Type == "lvmthin" {
		out["vgname"], out["thinpool"] = "pve", "data"
	}

	return out
}

func storageConfig(r *request) (any, error) {
	s, err := r.world.StorageConfig(r.vars["storage"])
	if err != nil {
		return nil, err
	}

	return storageEntry(s), nil
}

func storageState(s world.StorageInfo) map[string]any {
	return map[string]any{
		"type": s.Type, "content": s.Content, "active": bit(s.Active), "enabled": bit(s.Enabled), "shared": bit(s.Shared),
		"total": s.Total, "used": s.Used,
		"avail": s.Total - s.Used,
	}
}

func nodeStorages(r *request) (any, error) {
	out := []map[string]any{}

	for _, s := range r.world.Storages(r.caller, r.vars["node"]) {
		if name := r.values.Get("storage"); name != "" && name != s.Name {
			continue
		}

		if !holdsAny(s.Content, r.values.list("content")) || r.values.isSet("enabled") && !s.Enabled {
			continue
		}

		entry := storageState(s)
		entry["storage"] = s.Name
		entry["used_fraction"] = 0.0

		if s.Total > 0 {
			entry["used_fraction"] = float64(s.Used) / float64(s.Total)
		}

		out = append(out, entry)
	}

	return out, nil
}

func holdsAny(content string, wanted []string) bool {
	for _, w := range wanted {
		if strings.Contains(","+content+",", ","+w+",") {
			return true
		}
	}

	return len(wanted) == 0
}

func storageStatus(r *request) (any, error) {
	s, err := r.world.Storage(r.vars["node"], r.vars["storage"])
	if err != nil {
		return nil, world.Invalid("storage", "No such storage.")
	}

	return storageState(s), nil
}

func content(r *request) (any, error) {
	list, err := r.world.Volumes(r.caller, r.vars["node"], r.vars["storage"], r.values.Get("content"),
		r.values.number("vmid"))
	if err != nil {
		return nil, err
	}

	out := []map[string]any{}

	for _, v := range list {
		entry := map[string]any{
			"volid": v.ID, "content": v.Kind, "format": v.Format, "size": v.Size,
			"ctime": v.Created.Unix(),
		}

		// LVM says it as a text.
		if s, err := r.world.Storage(r.vars["node"], r.vars["storage"]); err == nil && s.Type == "lvmthin" {
			entry["ctime"] = strconv.FormatInt(v.Created.Unix(), 10)
		}

		if v.VMID != 0 {
			entry["vmid"] = v.VMID
		}

		optional(entry, "parent", v.Parent)

		// What is in directories has a use, and says so where it has no parent (pve-storage: Plugin.pm, list_images).
		if v.Path != "" && v.Kind == "images" && strings.HasPrefix(v.Path, "/mnt/") {
			entry["used"] = v.Size

			if v.Parent == "" {
				entry["parent"] = nil
			}
		}

		out = append(out, entry)
	}

	return out, nil
}

// sizeOfImage is a number of KiB, or of the units that its suffix names.
var sizeOfImage = regexp.MustCompile(`^(\d+)([MG]?)$`)

func allocate(r *request) (any, error) {
	found := sizeOfImage.FindStringSubmatch(r.values.Get("size"))
	if found == nil {
		return nil, world.Invalid("size", "value does not match the regex pattern")
	}

	size, err := strconv.ParseInt(found[1], 10, 32)
	if err != nil {
		return nil, unknownError{err}
	}

	name, format := r.values.Get("filename"), r.values.Get("format")
	if !slices.Contains([]string{"", "raw", "qcow2", "vmdk"}, format) || name == "" {
		return nil, unknownError{fmt.Errorf("an image of the format %q and the name %q", format, name)}
	}

	// What the name ends with is its format.
	if end := strings.TrimPrefix(path.Ext(name), "."); slices.Contains([]string{"raw", "qcow2", "vmdk"}, end) {
		if format != "" && format != end {
			return nil, world.Invalid("format", "different storage formats (%s != %s)", format, end)
		}

		format = end
	}

	return r.world.Allocate(r.vars["node"], r.vars["storage"], r.values.number("vmid"), format, name,
		size*map[string]int64{"": 1 << 10, "M": world.MiB, "G": world.GiB}[found[2]])
}

func volume(r *request) (any, error) {
	v, err := r.world.Volume(r.caller, r.vars["node"], r.vars["storage"], r.vars["volume"])
	if err != nil {
		return nil, err
	}

	// Files other than images are raw to whoever asks for one alone.
	format := v.Format
	if v.Kind != "images" {
		format = "raw"
	}

	return map[string]any{"path": v.Path, "size": v.Size, "used": v.Size, "format": format}, nil
}

func deleteVolume(r *request) (any, error) {
	return r.world.DeleteVolume(r.caller, r.vars["node"], r.vars["storage"], r.vars["volume"])
}
