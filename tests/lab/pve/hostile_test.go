package pve

import (
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/timeline"
	"talos-proxmox/tests/lab/world"
)

// hostile is what no client sends and everybody could.
var hostile = []string{
	"", " ", "0", "1", "-1", "100", "401", "9000", "999999999", "99999999999999999999", "x", "=", ",", ",,,", ";", ":",
	"a=b=c", "a=b,a=b", "\x00", "ä",
	"none", "cdrom", "cloudinit", "tank:", ":cloudinit", "tank:cloudinit", "tank:1", "tank:0", "tank:99999999999999999999",
	"tank:1e999", "1", "gone:1",
	"file=", "file=tank:1,size=", "file=tank:1,size=-1G", "tank:vm-401-disk-0", "tank:base-9000-disk-0",
	"tank:vm-401-cloudinit,media=cdrom",
	"local:iso/talos.iso,media=cdrom", "local:iso/", "none,media=cdrom", "tank:1,import-from=local:iso/talos.iso",
	"/dev/sda", "../../etc/passwd",
	"virtio", "virtio=", "model=virtio,bridge=vmbr0", "virtio=BC:24:11:00:00:01,bridge=,tag=x", "order=",
	"order=scsi0;net0", "order=;;", "legacy=cdn",
	"mapping=", "mapping=gpu", "host=", "host=0000:01:00.0;", "ip=dhcp", "ip=,gw=", "gw=1", "enabled=1", "current=", "+",
	"+1G", "10G", "-5G", "1T",
	"pve1", "pve2", "pve9", "true", "scsi0", "ide2", "unused0", "scsi0,ide2,net0,boot", "id=1:2,node=pve1,path=x",
	strings.Repeat("a", 5000),
}

var settings = strings.Fields(`acpi agent boot cores sockets memory balloon name net0 net31 scsi0 scsi1 ide0 ide2 sata0 virtio0 efidisk0 tpmstate0 unused0
	hostpci0 ipconfig0 serial0 smbios1 vmgenid tags template protection lock cicustom nameserver hotplug bios cdrom description`)

// plausible are values that get further than hostile ones do.
var plausible = map[string][]string{
	"node": {"pve1", "pve2", "pve9"}, "vmid": {"401", "402", "9000", "0", "x"}, "newid": {"401", "402", "9000", "1"},
	"poolid": {"p", "q"}, "pool": {"p"},
	"storage": {"tank", "local", "gone"}, "id": {"gpu"}, "sid": {"vm:401"}, "target": {"pve1", "pve2"},
	"disk": {"scsi0", "ide2"}, "size": {"+1G", "5G"},
	"delete": {"scsi0", "unused0", "ide2,net0,boot", "1"}, "idlist": {"scsi0,unused0"}, "vms": {"401,9000"},
	"scsi0": {"tank:1", "tank:vm-401-disk-0"},
	"ide2":  {"tank:cloudinit", "local:iso/talos.iso,media=cdrom", "none,media=cdrom"}, "net0": {"virtio,bridge=vmbr0"},
	"cores": {"2"}, "memory": {"1024"},
	"boot": {"order=scsi0;ide2"}, "hostpci0": {"mapping=gpu"},
	"map": {"id=10de:2204,subsystem-id=10de:147d,iommugroup=1,node=pve1,path=0000:01:00.0"}, "timeout": {"0", "1"},
	"pos": {"0", "1"}, "moveto": {"0", "2"}, "group": {"nodes"}, "cidr": {"10.0.0.0/8"}, "type": {"in", "group"},
	"action": {"DROP", "nodes"},
	"macro":  {"SSH"}, "proto": {"tcp", "icmp"}, "dport": {"22"}, "source": {"10.0.0.0/8", "+nodes"}, "rename": {"nodes"},
}

// sender draws calls. Its seed makes it send the same again.
type sender struct{ *rand.Rand }

func pick[T any](s sender, list []T) T { return list[s.IntN(len(list))] }

// value draws what is sent under a name.
func (s sender) value(name string) string {
	if good := plausible[name]; len(good) > 0 && s.IntN(4) > 0 {
		return pick(s, good)
	}

	return pick(s, hostile)
}

// call draws a call of one of the routes.
func (s sender) call(routes []route, tasks []world.TaskInfo) *http.Request {
	rt := pick(s, routes)
	path := rt.path

	for _, name := range slices.Sorted(maps.Keys(plausible)) {
		path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(s.value(name)))
	}

	upid := "UPID:x"
	if len(tasks) > 0 {
		upid = pick(s, tasks).UPID
	}

	path = strings.ReplaceAll(path, "{upid}", url.PathEscape(upid))
	path = strings.ReplaceAll(path, "{volume...}", url.PathEscape(s.value("scsi0")))

	form := url.Values{}

	if rt.params.config {
		for range s.IntN(4) {
			name := pick(s, settings)
			form.Set(name, s.value(name))
		}
	}

	for _, name := range slices.Sorted(maps.Keys(rt.params.known)) {
		if rt.params.known[name].required || s.IntN(5) == 0 {
			form.Set(name, s.value(name))
		}
	}

	r := httptest.NewRequest(rt.method, "/api2/json"+path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")

	return r
}

// Whatever is sent, the face answers, and the world stays one that can be looked at. A panic in a task would end the
// test.
func TestNothingThatIsSentHurts(t *testing.T) {
	storages := []world.Storage{
		{Name: "tank", Type: "lvmthin", Content: []string{"images"}},
		{Name: "local", Type: "dir", Content: []string{"iso", "images", "snippets"}},
	}

	w, err := world.New(world.Options{
		Hosts:       []world.Host{{Name: "pve1", Storages: storages}, {Name: "pve2", Storages: storages}},
		Credentials: world.Credentials{TokenID: "u@pve!t", TokenSecret: "s", Username: "root@pam", Password: "p"},
	})
	require.NoError(t, err)
	t.Cleanup(w.Close)

	ticket, err := w.Login("root@pam", "p")
	require.NoError(t, err)

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)

	face := New(w, &journal.Journal{}, timeline.New())
	send := sender{rand.New(rand.NewPCG(seed, 0))}

	for n := range 4000 {
		if n%10 == 0 {
			// What the calls before have destroyed comes back.
			_ = w.AddTemplate(world.Template{Name: "base", VMID: 9000, Host: "pve1", Storage: "tank", DiskGiB: 1})
			_ = w.AddTemplate(world.Template{
				Name: "vm", VMID: 401, Host: "pve1", Storage: "tank", DiskGiB: 1,
				Unfinalised: true,
			})
			_ = w.AddFile("pve1", "local", "iso", "talos.iso", world.MiB, nil)
		}

		r := send.call(face.routes, w.Tasks(""))

		if send.IntN(2) == 0 {
			r.AddCookie(&http.Cookie{Name: "PVEAuthCookie", Value: ticket.Ticket})
			r.Header.Set("CSRFPreventionToken", ticket.CSRF)
		} else {
			r.Header.Set("Authorization", "PVEAPIToken=u@pve!t=s")
		}

		answer := httptest.NewRecorder()
		face.ServeHTTP(answer, r)
		require.NotContains(t, answer.Body.String(), "panicked", r.Method+" "+r.URL.Path)

		for _, v := range w.Snapshot().VMs {
			// It may be gone by now; what counts is that it can be asked for.
			_, _ = w.Config(v.Host, v.ID, false)
		}
	}
}

func TestUnknownPaths(t *testing.T) {
	w, err := world.New(world.Options{})
	require.NoError(t, err)
	t.Cleanup(w.Close)

	for _, path := range []string{
		"", "/", "/api2", "/api2/json", "/api2/json/", "/api2/json//", "/api2/json/nodes//qemu",
		"/api2/extjs/version", "/api2/json/nodes/%zz/qemu",
	} {
		r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path, RawPath: path}}
		s := New(w, &journal.Journal{}, timeline.New())
		answer := httptest.NewRecorder()
		s.ServeHTTP(answer, r)
		require.Equal(t, http.StatusNotImplemented, answer.Code, path)
	}
}
