package ubuntu

import (
	"fmt"
	"maps"
	"strings"
	"sync"
)

// files are those on a disk.
type files struct {
	mu    sync.Mutex
	text  map[string]string
	modes map[string]uint64
}

func newFiles(i Image) *files {
	return &files{modes: map[string]uint64{}, text: map[string]string{
		"/etc/os-release": fmt.Sprintf("PRETTY_NAME=%q\nID=%s\nVERSION_ID=%q\n", i.ID+" "+i.Version, i.ID, i.Version),
	}}
}

func (f *files) clone() *files {
	f.mu.Lock()
	defer f.mu.Unlock()

	return &files{text: maps.Clone(f.text), modes: maps.Clone(f.modes)}
}

func (f *files) read(path string) (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text, there := f.text[path]

	return text, there
}

func (f *files) write(path, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text[path] = text
}

func (f *files) append(path, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text[path] += text
}

func (f *files) remove(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.text, path)

	for other := range f.text {
		if strings.HasPrefix(other, path+"/") {
			delete(f.text, other)
		}
	}
}

func (f *files) chmod(path string, mode uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.modes[path] = mode
}

func (f *files) mode(path string) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.modes[path]
}

// move gives a file another name, and what was there before is gone.
func (f *files) move(from, to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text[to], f.modes[to] = f.text[from], f.modes[from]
	delete(f.text, from)
}

// under are the paths below a directory.
func (f *files) under(dir string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()

	var found []string

	for path := range f.text {
		if strings.HasPrefix(path, dir) {
			found = append(found, path)
		}
	}

	return found
}
