// Package factory plays the Image Factory: it keeps schematics under their real ids and serves images of a real-looking
// size, each of which says in its first bytes what it is.
package factory

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"talos-proxmox/tests/lab/journal"
)

// Options configure a factory.
type Options struct {
	// Journal records the calls; nil: they are not recorded.
	Journal *journal.Journal
	// Touch is called for each request; nil: nothing is.
	Touch func()
	// Versions are the Talos versions on offer; empty: DefaultVersions.
	Versions []string
	// Size says how big an image is; nil: about as big as the real one.
	Size func(Asset) int64
}

// Factory is an Image Factory. It implements [http.Handler].
type Factory struct {
	opts Options

	mu         sync.Mutex
	schematics map[string]*Schematic
	mirrored   map[string]Asset
}

// New returns a factory that knows the plain schematic only.
func New(o Options) *Factory {
	if o.Journal == nil {
		o.Journal = &journal.Journal{}
	}

	if o.Touch == nil {
		o.Touch = func() {}
	}

	if len(o.Versions) == 0 {
		o.Versions = DefaultVersions()
	}

	if o.Size == nil {
		o.Size = Asset.size
	}

	f := &Factory{opts: o, schematics: map[string]*Schematic{}, mirrored: map[string]Asset{}}
	f.Add(&Schematic{})

	return f
}

// Add makes a schematic known and returns its id.
func (f *Factory) Add(s *Schematic) string {
	id := s.ID()
	f.AddAs(id, s)

	return id
}

// AddAs makes a schematic known by an id that says nothing of what it stands for.
func (f *Factory) AddAs(id string, s *Schematic) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.schematics[id] = s
}

// SHA256At is the checksum of what is mirrored at a path, in hexadecimal digits; empty when nothing is.
func (f *Factory) SHA256At(path string) string {
	a, ok := f.mirror(path)
	if !ok {
		return ""
	}

	h := sha256.New()
	_, _ = io.Copy(h, f.content(a)) // neither side can fail

	return hex.EncodeToString(h.Sum(nil))
}

// Mirror serves an image under another path too, as a server that an operator copied it to: "/talos-1.12.4.iso".
func (f *Factory) Mirror(path string, a Asset) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mirrored[path] = a
}

func (f *Factory) mirror(path string) (Asset, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, ok := f.mirrored[path]

	return a, ok
}

// Schematic returns a schematic by its id.
func (f *Factory) Schematic(id string) (*Schematic, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.schematics[id]

	return s, ok
}

// Size returns the size of an image in bytes.
func (f *Factory) Size(a Asset) int64 { return max(f.opts.Size(a), a.smallest(f.plain(a), f.raw(a))) }

// plain is the size of what a compressed image holds.
func (f *Factory) plain(a Asset) int64 {
	a.Compression = ""

	return max(f.opts.Size(a), HeadSize)
}

func (f *Factory) content(a Asset) io.Reader { return a.content(f.Size(a), f.plain(a), f.raw(a)) }

// raw is the size of the disk that a disk image holds.
func (f *Factory) raw(a Asset) int64 {
	a.QCOW2, a.Compression = false, ""

	return max(f.opts.Size(a), HeadSize)
}

// ServeHTTP answers one request.
func (f *Factory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.opts.Touch()

	call := r.Method + " " + r.URL.Path

	if fault := f.opts.Journal.Enter(journal.Factory, "", call); fault != nil {
		switch fault.Kind {
		case journal.Refuse:
			http.Error(w, fault.Message, http.StatusInternalServerError)
			return
		case journal.LoseReply:
			f.route(&discard{header: http.Header{}}, r, call)
			hangUp(w)
			return
		case journal.Answer:
			fault.Write(w)
			return
		case journal.Reset:
			hangUp(w)
			return
		case journal.Replace:
			_, _ = io.WriteString(w, fault.Message)
			return
		case journal.Truncate:
			f.route(&half{ResponseWriter: w}, r, call)
			return
		case journal.Stall:
			fault.Hold(r.Context(), nil)
			hangUp(w)

			return
		case journal.FailTask, journal.FailTaskLate: // not for this face
		}
	}

	f.route(w, r, call)
}

// hangUp closes the connection under a request.
func hangUp(w http.ResponseWriter) {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}

		_ = c.Close()

		return
	}

	panic(http.ErrAbortHandler)
}

// half lets half of the content through. The server ends a connection on which less was sent than announced.
type half struct {
	http.ResponseWriter

	left int64
}

func (h *half) WriteHeader(code int) {
	length, _ := strconv.ParseInt(h.Header().Get("Content-Length"), 10, 64)
	h.left = length / 2
	h.ResponseWriter.WriteHeader(code)
}

func (h *half) Write(p []byte) (int, error) {
	n, err := h.ResponseWriter.Write(p[:min(int64(len(p)), h.left)])
	h.left -= int64(n)

	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}

	return n, err
}

type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

func (f *Factory) route(w http.ResponseWriter, r *http.Request, call string) {
	p := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	read := r.Method == http.MethodGet || r.Method == http.MethodHead

	if a, ok := f.mirror(r.URL.Path); ok && read {
		f.send(w, r, a)

		return
	}

	switch {
	case r.Method == http.MethodPost && len(p) == 1 && p[0] == "schematics":
		f.create(w, r)
	case r.Method == http.MethodGet && len(p) == 2 && p[0] == "schematics":
		f.show(w, p[1])
	case r.Method == http.MethodGet && len(p) == 1 && p[0] == "versions":
		writeJSON(w, f.opts.Versions)
	case read && len(p) == 1 && p[0] == "healthz":
		w.WriteHeader(http.StatusOK)
	case r.Method == http.MethodGet && len(p) == 4 && p[0] == "version" && p[3] == "official" &&
		(p[2] == "extensions" || p[2] == "overlays"):
		f.list(w, p[1], p[2])
	case read && len(p) == 4 && p[0] == "image":
		f.image(w, r, p[1], p[2], p[3])
	default:
		f.refuse(w, call, "the lab's Image Factory does not have it")
	}
}

// refuse is the answer to what the lab does not know.
func (f *Factory) refuse(w http.ResponseWriter, call, why string) {
	f.opts.Journal.Refused(journal.Factory, "", call, why)
	http.Error(w, why, http.StatusNotImplemented)
}

// schematicLimit is far more than any schematic needs.
const schematicLimit = 1 << 20

func (f *Factory) create(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, schematicLimit))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	s, err := Parse(body)
	if err != nil {
		f.opts.Journal.Ignore("a schematic: " + err.Error())
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	if why := s.notPlayed(); why != "" {
		f.refuse(w, r.Method+" "+r.URL.Path, "the lab's machines have no "+why)
		return
	}

	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	writeJSON(w, map[string]string{"id": f.Add(s), "schematic": string(s.text())})
}

// show answers with a schematic as it is kept (image-factory: internal/frontend/http, configuration.go).
func (f *Factory) show(w http.ResponseWriter, id string) {
	s, ok := f.Schematic(id)
	if !ok {
		http.Error(w, "schematic not found", http.StatusNotFound)
		return
	}

	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(s.text())
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// HasVersion tells whether there are images of a version of Talos.
func (f *Factory) HasVersion(version string) bool {
	_, ok := f.knows(version)

	return ok
}

// knows returns a version as it is listed, false when the factory does not have it.
func (f *Factory) knows(version string) (string, bool) {
	if !strings.HasPrefix(version, "v") {
		version = "v" + version
	}

	return version, slices.Contains(f.opts.Versions, version)
}

func (f *Factory) list(w http.ResponseWriter, version, what string) {
	version, ok := f.knows(version)
	if !ok {
		http.Error(w, "version "+version+" is not available", http.StatusNotFound)
		return
	}

	if what == "overlays" {
		writeJSON(w, []any{}) // overlays are for boards
		return
	}

	type info struct {
		Name        string `json:"name"`
		Ref         string `json:"ref"`
		Digest      string `json:"digest"`
		Author      string `json:"author"`
		Description string `json:"description"`
	}

	var out []info
	for _, name := range Extensions() {
		out = append(out, info{
			Name: name, Ref: "ghcr.io/" + name + ":" + strings.TrimPrefix(version, "v"), Digest: digest(name + version),
			Author: "Sidero Labs", Description: "[lab] " + name,
		})
	}

	writeJSON(w, out)
}

var idPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (f *Factory) image(w http.ResponseWriter, r *http.Request, id, version, file string) {
	s, ok := f.Schematic(id)
	if !ok || !idPattern.MatchString(id) {
		http.Error(w, fmt.Sprintf("schematic ID %q not found", id), http.StatusNotFound)
		return
	}

	if version, ok = f.knows(version); !ok {
		http.Error(w, "version "+version+" is not available", http.StatusNotFound)
		return
	}

	a, err := ParseFile(id, version, file)
	if errors.Is(err, errNotPlayed) {
		f.refuse(w, r.Method+" "+r.URL.Path, err.Error())
		return
	}

	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	// a schematic may name anything; whether the extension exists is found out when an image is made of it
	for _, name := range s.Customization.SystemExtensions.OfficialExtensions {
		if !available(name) {
			http.Error(w, fmt.Sprintf("official extension %q is not available for Talos version %s", name, version),
				http.StatusBadRequest)
			return
		}
	}

	w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s"`, file))
	f.send(w, r, a)
}

func (f *Factory) send(w http.ResponseWriter, r *http.Request, a Asset) {
	size := f.Size(a)
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	w.Header().Set("Content-Type", "application/octet-stream")
	w.WriteHeader(http.StatusOK)

	if r.Method == http.MethodGet {
		// a client that goes away is its own affair
		_, _ = io.CopyBuffer(struct{ io.Writer }{w}, f.content(a), make([]byte, 1<<20))
	}
}

// Head is the beginning of an image, as much as Identify needs.
func (f *Factory) Head(a Asset) []byte {
	head := make([]byte, HeadSize)
	_, _ = io.ReadFull(f.content(a), head)

	return head
}
