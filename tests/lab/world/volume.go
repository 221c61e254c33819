package world

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"talos-proxmox/tests/lab/machine"
	"talos-proxmox/tests/lab/timeline"
)

// volume is a disk image or a file on a storage.
type volume struct {
	// id is "storage:name".
	id      string
	storage *Storage
	// host is empty for a volume on shared storage.
	host string
	// kind is the content type: images, iso, vztmpl, snippets, import.
	kind   string
	format string
	// owner is the VM whose image this is, 0 for files.
	owner int
	// parent is the id of the base image of a linked clone.
	parent string
	// disk is what an image holds, nil for files.
	disk *machine.Disk
	// size, content, text and sums (checksums by algorithm, as far as they are known) are a file's.
	size    int64
	content machine.Content
	text    string
	mode    fs.FileMode // of a snippet
	sums    map[string]string
	created time.Time
	// span is what imposed time the volume was made by: what uses it comes after it.
	span *timeline.Span
}

// volumeKey tells the volumes of one name apart that storages of one name hold on different hosts.
type volumeKey struct{ host, id string }

func (v *volume) key() volumeKey { return volumeKey{v.host, v.id} }

func (v *volume) bytes() int64 {
	if v.disk != nil {
		return v.disk.Size()
	}

	return v.size
}

// name is what follows the storage in the id.
func (v *volume) name() string {
	_, name, _ := strings.Cut(v.id, ":")

	return name
}

// Path is where the volume is on the host.
func (v *volume) path() string {
	switch {
	case v.kind == "images" && v.storage.files():
		return v.storage.Path() + "/images/" + v.name()
	case v.storage.files():
		kind, file, _ := strings.Cut(v.name(), "/")

		return v.storage.filePath(kind, file)
	case v.storage.Type == "zfspool":
		return "/dev/zvol/" + v.storage.Name + "/" + path.Base(v.name())
	default:
		return "/dev/" + v.storage.Name + "/" + path.Base(v.name())
	}
}

// filePath is where a storage keeps a file (pve-storage: Plugin.pm, $vtype_subdirs).
func (s *Storage) filePath(kind, file string) string {
	dir := "/template/" + kind + "/"

	switch kind {
	case "snippets", "import":
		dir = "/" + kind + "/"
	case "vztmpl":
		dir = "/template/cache/"
	}

	return s.Path() + dir + file
}

// volume finds a volume as a host sees it.
func (w *World) volume(host, id string) (*volume, error) {
	name, rest, ok := strings.Cut(id, ":")
	if !ok {
		return nil, failf("unable to parse volume ID '%s'", id)
	}

	s, err := w.storage(host, name)
	if err != nil {
		return nil, err
	}

	if v, ok := w.volumes[s.key(host, id)]; ok {
		return v, nil
	}

	missing := failf("volume '%s' does not exist", id)

	kind, file, _ := strings.Cut(rest, "/")
	if extension, known := extensions[kind]; s.files() && known {
		if !extension.MatchString(file) {
			return nil, failf("unable to parse directory volume name '%s'", rest)
		}

		return nil, &missingFile{missing, s.filePath(kind, file)}
	}

	return nil, missing
}

// missingFile is a file that a storage could hold and does not. Proxmox VE does not look before it removes one.
type missingFile struct {
	error

	path string
}

func (m *missingFile) Unwrap() error { return m.error }

func (s *Storage) key(host, id string) volumeKey {
	if s.Shared {
		host = ""
	}

	return volumeKey{host, id}
}

// image makes a disk image with the first name that is free on its storage.
func (w *World) image(host string, s *Storage, owner int, format string, disk *machine.Disk) (*volume, error) {
	if format == "" {
		format = "raw"
	}

	if where := s.rawOnly(); where != "" && format != "raw" {
		return nil, failf("unsupported format '%s' at %s.", format, where)
	}

	if !s.files() {
		format = "raw"
	}

	v := &volume{storage: s, kind: "images", format: format, owner: owner, created: time.Now()}
	v.host = s.key(host, "").host

	for n := 0; ; n++ {
		if !w.diskNameTaken(v, fmt.Sprintf("-%d-disk-%d", owner, n)) {
			v.id = v.imageID(fmt.Sprintf("vm-%d-disk-%d", owner, n))

			break
		}
	}

	if err := w.room(host, s, v.id, disk.Size()); err != nil {
		return nil, err
	}

	v.disk = machine.NewDisk(disk.Interface, v.id, disk.Size(), disk.Content())
	w.volumes[v.key()] = v

	return v, nil
}

// diskNameTaken looks for the number among the VM's own and base images.
func (w *World) diskNameTaken(v *volume, suffix string) bool {
	for _, o := range w.volumes {
		if o.storage != v.storage || o.host != v.host || o.kind != "images" {
			continue
		}

		base := strings.TrimSuffix(path.Base(o.name()), path.Ext(o.name()))
		if base == "vm"+suffix || base == "base"+suffix {
			return true
		}
	}

	return false
}

// imageID names an image as its storage does: a directory with the VM's number and an extension where volumes are
// files, the name of the base image before it where the storage shows that.
func (v *volume) imageID(name string) string {
	id := name

	if v.storage.files() {
		id = fmt.Sprintf("%d/%s.%s", v.owner, name, v.format)
	}

	if v.parent != "" && v.storage.Type != "lvmthin" {
		_, base, _ := strings.Cut(v.parent, ":")
		id = base + "/" + id
	}

	return v.storage.Name + ":" + id
}

// rename gives a volume another id, in the world and on its disk.
func (w *World) rename(v *volume, id string) {
	delete(w.volumes, v.key())
	v.id = id
	v.disk = machine.NewDisk(v.disk.Interface, id, v.disk.Size(), v.disk.Content())
	w.volumes[v.key()] = v
}

// cloudInitImage makes the image that carries a VM's cloud-init data.
func (w *World) cloudInitImage(host string, s *Storage, owner int, iface string) (*volume, error) {
	v := &volume{storage: s, kind: "images", format: "raw", owner: owner, created: time.Now()}
	v.host = s.key(host, "").host

	if s.files() {
		v.format = "qcow2"
	}

	v.id = v.imageID(fmt.Sprintf("vm-%d-cloudinit", owner))
	v.disk = machine.NewDisk(iface, v.id, 4*MiB, nil)

	if _, taken := w.volumes[v.key()]; taken {
		return nil, failf("disk image '%s' already exists", v.path())
	}

	w.volumes[v.key()] = v

	return v, nil
}

func (w *World) free(v *volume) { delete(w.volumes, v.key()) }

// children are the linked clones of a base image.
func (w *World) children(v *volume) []*volume {
	var list []*volume

	for _, o := range w.volumes {
		if o.parent == v.id && (o.host == v.host) {
			list = append(list, o)
		}
	}

	return list
}

// AddFile puts a file on a storage: an ISO image, a snippet.
func (w *World) AddFile(host, storage, kind, name string, size int64, content machine.Content) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	_, err := w.addFile(host, storage, kind, name, size, content)

	return err
}

// AddDisk puts a disk with the number of a VM on a storage, as "pvesm alloc" does, and returns its id. Whether there is
// such a VM is not asked.
func (w *World) AddDisk(host, storage string, vmid int, size int64) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	s, err := w.storage(host, storage)
	if err != nil {
		return "", err
	}

	v, err := w.image(host, s, vmid, "", machine.NewDisk("", "", size, nil))
	if err != nil {
		return "", err
	}

	return v.id, nil
}

// imageFile is the name of an image that is a file (pve-storage: Plugin.pm, parse_name_dir).
var imageFile = regexp.MustCompile(`^[^/\s]+\.(raw|qcow2|vmdk)$`)

// Allocate makes a disk image under a name of the caller's, for the number of a VM, and returns its id. Whether there is
// such a VM is not asked: plugins that keep volumes for Kubernetes own them by the number of none.
func (w *World) Allocate(host, storage string, vmid int, format, name string, size int64) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	s, err := w.storage(host, storage)
	if err != nil {
		return "", err
	}

	format = cmp.Or(format, "raw")
	prefix, where := fmt.Sprintf("vm-%d-", vmid), s.rawOnly()

	switch found := imageFile.FindStringSubmatch(name); {
	case where != "" && format != "raw":
		return "", failf("unsupported format '%s' at %s.", format, where)
	case !s.files() && !strings.HasPrefix(name, prefix):
		return "", failf("illegal name '%s' - should be '%s*'", name, prefix)
	case !s.files():
	case found == nil:
		return "", failf("unable to parse volume filename '%s'", name)
	case found[1] != format:
		return "", failf("illegal name '%s' - wrong extension for format ('%s != '%s')", name, found[1], format)
	}

	v := &volume{storage: s, kind: "images", format: format, owner: vmid, created: time.Now()}
	v.host = s.key(host, "").host
	v.id = s.Name + ":" + name

	if s.files() {
		v.id = fmt.Sprintf("%s:%d/%s", s.Name, vmid, name)
	}

	size = s.roundUp(size)

	switch _, taken := w.volumes[v.key()]; {
	case taken && s.Type == "zfspool":
		return "", failf("zfs error: cannot create '%s/%s': dataset already exists", s.Name, name)
	case taken && !s.files():
		return "", failf("lvcreate 'pve/%s' error:   Logical Volume \"%s\" already exists in volume group \"pve\"", name, name)
	case taken:
		return "", failf("disk image '%s' already exists", v.path())
	}

	if err := w.room(host, s, v.id, size); err != nil {
		return "", err
	}

	v.disk = machine.NewDisk("", v.id, size, nil)
	w.volumes[v.key()] = v

	return v.id, nil
}

// AddSnippet puts a text file on a storage, for cloud-init.
func (w *World) AddSnippet(host, storage, name, text string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	v, err := w.addFile(host, storage, "snippets", name, int64(len(text)), nil)
	if err != nil {
		return err
	}

	v.text, v.mode = text, 0o644

	return nil
}

// WriteFile is what root does with tee on a host: it writes a file of which only snippets are known to a storage.
func (w *World) WriteFile(host, path, text string) error {
	dir, name := pathOf(path)

	w.mu.Lock()
	h, err := w.host(host)
	w.mu.Unlock()

	if err != nil {
		return err
	}

	for _, s := range h.Storages {
		if s.files() && dir == s.Path()+"/snippets" {
			return w.AddSnippet(host, s.Name, name, text)
		}
	}

	return failf("%s: No such file or directory", path)
}

// ChangeMode is what root does with chmod to such a file.
func (w *World) ChangeMode(host, path string, mode fs.FileMode) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	v := w.file(host, path)
	if v == nil || v.kind != "snippets" {
		return fs.ErrNotExist
	}

	v.mode = mode.Perm()

	return nil
}

// Mode says who may read such a file; 0: there is none.
func (w *World) Mode(host, path string) fs.FileMode {
	w.mu.Lock()
	defer w.mu.Unlock()

	if v := w.file(host, path); v != nil {
		return v.mode
	}

	return 0
}

// ReadFile is the content of such a file; false when there is none.
func (w *World) ReadFile(host, path string) (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if v := w.file(host, path); v != nil && v.kind == "snippets" {
		return v.text, true
	}

	return "", false
}

func pathOf(path string) (dir, name string) {
	i := strings.LastIndex(path, "/")

	return path[:max(i, 0)], path[i+1:]
}

func (w *World) addFile(host, storage, kind, name string, size int64, content machine.Content) (*volume, error) {
	s, err := w.storage(host, storage)
	if err != nil {
		return nil, err
	}

	if !s.holds(kind) {
		return nil, failf("storage '%s' does not support '%s' content", storage, kind)
	}

	v := &volume{
		id: storage + ":" + kind + "/" + name, storage: s, kind: kind, format: fileFormat(kind, name),
		size: size, content: content, created: time.Now(),
	}
	v.host = s.key(host, "").host
	w.volumes[v.key()] = v

	return v, nil
}

func fileFormat(kind, name string) string {
	switch {
	case kind == "iso":
		return "iso"
	case kind == "vztmpl":
		return "t" + strings.TrimPrefix(path.Ext(name), ".")
	case kind == "snippets":
		return "snippet"
	default:
		return strings.TrimPrefix(path.Ext(name), ".")
	}
}

// volumesOn lists what a host sees on a storage, by id.
func (w *World) volumesOn(host string, s *Storage) []*volume {
	var list []*volume

	for _, v := range w.volumes {
		if v.storage == s && (v.host == "" || v.host == host) {
			list = append(list, v)
		}
	}

	slices.SortFunc(list, func(a, b *volume) int { return strings.Compare(a.id, b.id) })

	return list
}
