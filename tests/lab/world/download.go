package world

import (
	"compress/bzip2"
	"compress/gzip"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"talos-proxmox/tests/lab/machine"
)

// DownloadRequest asks a host for a file from elsewhere.
type DownloadRequest struct {
	URL string
	// Content is what the file is: iso, vztmpl, import.
	Content, Filename string
	// Checksum is what the file must have by Algorithm; empty: anything.
	Checksum, Algorithm string
	// Compression is what is undone before the file is kept: gz, lzo, zst, bz2; empty: nothing.
	Compression string
	// Fetch opens the file at the URL. Its error is what wget would end with; io.ErrUnexpectedEOF says that the connection
	// broke, after which wget begins again.
	Fetch func(context.Context) (io.ReadCloser, error)
}

// Download is one that a host made, or tried to.
type Download struct {
	Host, URL string
	// Volume is the id of the file.
	Volume string
	// Bytes came over the network, all attempts counted.
	Bytes int64
	// Error is why there is no file, empty when there is one.
	Error string
}

// Downloads are all so far, in the order in which they ended. A file that was there already is none.
func (w *World) Downloads() []Download {
	w.mu.Lock()
	defer w.mu.Unlock()

	return slices.Clone(w.downloads)
}

// MayQueryURLs refuses a caller who may not let a host look at URLs (pve-manager: query_url_metadata).
func (w *World) MayQueryURLs(c Caller, host string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.allowed(c.ID, "/", "Sys.Audit") && w.allowed(c.ID, "/", "Sys.Modify") ||
		w.allowed(c.ID, "/nodes/"+host, "Sys.AccessNetwork") {
		return nil
	}

	return &Error{Code: 403, Reason: "Permission check failed"}
}

// Download lets a host fetch a file and returns the task (pve-storage: download_url, pve-common:
// download_file_from_url).
func (w *World) Download(c Caller, host, storage string, r DownloadRequest) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	s, err := w.storage(host, storage)
	if err != nil {
		return "", err
	}

	switch {
	case !s.files():
		return "", failf("can't upload to storage type '%s', not a file based storage!", s.Type)
	case !s.holds(r.Content):
		return "", failf("storage '%s' is not configured for content-type '%s'", storage, r.Content)
	}

	name, err := contentName(r.Content, r.Filename)
	if err != nil {
		return "", err
	}

	if err := s.activate(host); err != nil {
		return "", err
	}

	d := &download{
		DownloadRequest: r, world: w, storage: s, host: host, name: name,
		id: storage + ":" + r.Content + "/" + name,
	}

	return w.start(c, job{node: host, kind: "download", id: name, work: d.run}), nil
}

var (
	unsafeInName = regexp.MustCompile(`[^a-zA-Z0-9_.-]`)
	extensions   = map[string]*regexp.Regexp{
		"iso":    regexp.MustCompile(`(?i)[^/]+\.(iso|img)$`),
		"vztmpl": regexp.MustCompile(`(?i)[^/]+\.tar(\.(gz|xz|zst|bz2))?$`),
		"import": regexp.MustCompile(`[a-zA-Z0-9.+=_-]+\.(ova|qcow2|raw|vmdk)$`),
	}
)

// contentName is the name under which a file is kept.
func contentName(content, name string) (string, error) {
	name = unsafeInName.ReplaceAllString(path.Base(strings.ReplaceAll(name, `\`, "/")), "_")

	if !extensions[content].MatchString(name) {
		if content == "import" {
			return "", Invalid("filename", "invalid filename or wrong extension")
		}

		return "", Invalid("filename", "wrong file extension")
	}

	return name, nil
}

// download is a task at work.
type download struct {
	DownloadRequest

	world   *World
	storage *Storage
	host    string
	name    string
	id      string
	bytes   int64
}

func (d *download) run(t *task) error {
	if d.Compression != "" && d.Content != "iso" {
		return failf("decompression not supported for %s", d.Content)
	}

	if d.Compression != "" && !slices.Contains([]string{"gz", "lzo", "zst", "bz2"}, d.Compression) {
		return failf("no decompression method found")
	}

	there, err := d.existing()
	if there || err != nil {
		return err
	}

	span, err := d.world.timeline.Wait(t.ctx, "download", d.host+" "+d.name, d.world.latencies.Download)
	if err != nil {
		return err
	}

	file, err := d.fetch(t.ctx)

	d.world.mu.Lock()
	defer d.world.mu.Unlock()

	done := Download{Host: d.host, URL: d.URL, Volume: d.id, Bytes: d.bytes}

	if err == nil {
		var v *volume
		if v, err = d.world.addFile(d.host, d.storage.Name, d.Content, d.name, file.size,
			&machine.File{Head: file.head}); err == nil {
			v.sums, v.span = file.sums(), span
		}
	}

	if err != nil {
		done.Error = err.Error()
	}

	d.world.downloads = append(d.world.downloads, done)

	return err
}

// existing tells whether the file is there already, which is only right when a checksum says so.
func (d *download) existing() (bool, error) {
	d.world.mu.Lock()
	defer d.world.mu.Unlock()

	v, ok := d.world.volumes[d.storage.key(d.host, d.id)]
	if !ok {
		return false, nil
	}

	if d.Checksum == "" {
		return false, failf("refusing to override existing file '%s'", v.path())
	}

	if got := v.sums[d.Algorithm]; !strings.EqualFold(got, d.Checksum) {
		return false, failf("checksum mismatch: got '%s' != expect '%s', aborting", got, d.Checksum)
	}

	return true, nil
}

// tries is how often wget begins again when a connection breaks.
const tries = 20

// fetch is wget, and what is done with the file before it gets its name.
func (d *download) fetch(ctx context.Context) (*received, error) {
	for range tries {
		file, err := d.try(ctx)

		switch {
		case err == nil:
			return d.unpack(file)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !errors.Is(err, io.ErrUnexpectedEOF):
			return nil, failf("download failed: %s", err)
		}
	}

	return nil, failf("download failed: exit code 4")
}

// fetched is a file as it came, and what is in it.
type fetched struct{ packed, plain *received }

func (d *download) try(ctx context.Context) (fetched, error) {
	body, err := d.Fetch(ctx)
	if err != nil {
		return fetched{}, err
	}
	defer body.Close()

	free := d.free()
	f := fetched{packed: &received{free: free, hash: newHash(d.Algorithm), algorithm: d.Algorithm}}

	if d.Compression == "" {
		err = f.packed.take(body)
	} else {
		f.plain = &received{free: free}
		err = d.decompress(f, body)
	}

	d.bytes += f.packed.size

	switch {
	case err == nil:
	case !errors.Is(err, errFull):
		err = io.ErrUnexpectedEOF
	default:
		err = fmt.Errorf("Cannot write to ‘%s.tmp_dwnl.%d’ (No space left on device).", d.path(), 1000+len(d.name)) // as wget says it
	}

	return f, err
}

// decompress undoes the compression while the file comes in. What is wrong with the compression is found out later.
func (d *download) decompress(f fetched, body io.Reader) error {
	in, out := io.Pipe()
	done := make(chan struct{})

	go func() {
		defer close(done)

		plain, err := decompressor(d.Compression, in)
		if err == nil {
			err = f.plain.take(plain)
		}

		f.plain.err = err
		_, _ = io.Copy(io.Discard, in) // the rest still has to arrive
	}()

	err := f.packed.take(io.TeeReader(body, out))
	_ = out.CloseWithError(err)
	<-done

	if err == nil && errors.Is(f.plain.err, errFull) {
		return errFull
	}

	return err
}

func decompressor(compression string, r io.Reader) (io.Reader, error) {
	switch compression {
	case "gz":
		return gzip.NewReader(r)
	case "bz2":
		return bzip2.NewReader(r), nil
	case "zst":
		return zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
	default:
		return nil, errors.New("nothing that the lab serves is of that kind")
	}
}

var decompressors = map[string]string{"gz": "zcat", "lzo": "lzop -d -c", "zst": "zstd -q -d -c", "bz2": "bzcat -q"}

// unpack verifies what came and returns what is kept of it.
func (d *download) unpack(f fetched) (*received, error) {
	if d.Checksum != "" {
		if got := f.packed.sums()[d.Algorithm]; !strings.EqualFold(got, d.Checksum) {
			return nil, failf("checksum mismatch: got '%s' != expect '%s'", got, d.Checksum)
		}
	}

	if f.plain == nil {
		return f.packed, nil
	}

	if f.plain.err != nil {
		return nil, failf("command '%s %s.tmp_dwnl.%d' failed: exit code 1", decompressors[d.Compression], d.path(),
			1000+len(d.name))
	}

	return f.plain, nil
}

func (d *download) path() string { return d.storage.filePath(d.Content, d.name) }

// free is the room that is left on the storage.
func (d *download) free() int64 {
	d.world.mu.Lock()
	defer d.world.mu.Unlock()

	info := d.world.storageInfo(d.host, d.storage)

	return info.Total - info.Used
}

var errFull = errors.New("no space left on device")

// headSize is how much is kept of a file.
const headSize = 4096

// received is what is known of a file that was read.
type received struct {
	size, free int64
	head       []byte
	algorithm  string
	hash       hash.Hash // nil: not asked for
	err        error
}

// take reads a stream to its end.
func (r *received) take(from io.Reader) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{r}, from, make([]byte, 1<<20))

	return err
}

func (r *received) Write(p []byte) (int, error) {
	if r.size+int64(len(p)) > r.free {
		return 0, errFull
	}

	r.size += int64(len(p))
	r.head = append(r.head, p[:min(len(p), headSize-len(r.head))]...)

	if r.hash != nil {
		_, _ = r.hash.Write(p)
	}

	return len(p), nil
}

func (r *received) sums() map[string]string {
	if r.hash == nil {
		return nil
	}

	return map[string]string{r.algorithm: hex.EncodeToString(r.hash.Sum(nil))}
}

// Algorithms are those by which a checksum may be given.
var Algorithms = []string{"md5", "sha1", "sha224", "sha256", "sha384", "sha512"}

func newHash(algorithm string) hash.Hash {
	switch algorithm {
	case "md5":
		return md5.New()
	case "sha1":
		return sha1.New()
	case "sha224":
		return sha256.New224()
	case "sha256":
		return sha256.New()
	case "sha384":
		return sha512.New384()
	case "sha512":
		return sha512.New()
	default:
		return nil
	}
}
