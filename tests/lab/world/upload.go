package world

import (
	"io"
	"math"
	"strings"

	"talos-proxmox/tests/lab/machine"
)

// UploadedFile is a file that a client sends, of which no more than its beginning is kept.
type UploadedFile struct{ received *received }

// Receive reads a file to its end.
func Receive(file io.Reader, algorithm string) (*UploadedFile, error) {
	f := &received{free: math.MaxInt64, algorithm: algorithm, hash: newHash(algorithm)}

	return &UploadedFile{f}, f.take(file)
}

// UploadRequest puts a file on a storage, replacing one of its name.
type UploadRequest struct {
	Content, Filename   string
	Checksum, Algorithm string
	File                *UploadedFile
}

// Upload returns the task that takes a file in (pve-storage: API2/Storage/Status.pm, upload).
func (w *World) Upload(c Caller, host, storage string, r UploadRequest) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	s, err := w.storage(host, storage)
	if err != nil {
		return "", err
	}

	if !s.files() {
		return "", failf("can't upload to storage type '%s'", s.Type)
	}

	name, err := contentName(r.Content, r.Filename)
	if err != nil {
		return "", err
	}

	if !s.holds(r.Content) {
		return "", failf("storage '%s' does not support '%s' content", storage, r.Content)
	}

	if err := s.activate(host); err != nil {
		return "", err
	}

	return w.start(c, job{node: host, kind: "imgcopy", work: func(*task) error {
		file := r.File.received

		if got := file.sums()[r.Algorithm]; r.Algorithm != "" && !strings.EqualFold(got, r.Checksum) {
			return failf("checksum mismatch: got '%s' != expect '%s'", got, r.Checksum)
		}

		w.mu.Lock()
		defer w.mu.Unlock()

		v, err := w.addFile(host, storage, r.Content, name, file.size, &machine.File{Head: file.head})
		if err == nil {
			v.sums = file.sums()
		}

		return err
	}}), nil
}
