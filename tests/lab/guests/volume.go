package guests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/google/uuid"

	"talos-proxmox/tests/lab/machine"
)

// headSize is how much of a volume is read and written: what recognises images needs no more.
const headSize = 4096

// ticket begins a volume that a system has written to; the number after it stands for what it wrote. So whatever
// copies, deletes or moves the volume does the same to what is on it.
const ticket = "talos-proxmox lab ticket "

// volumes are what systems have written, by ticket.
type volumes struct {
	mu      sync.Mutex
	written map[string]written
}

type written struct {
	on      inode
	content machine.Content
}

// inode tells volumes apart, and one from its copy.
type inode struct{ device, number uint64 }

// volume is an open one; it implements [machine.Store].
type volume struct {
	all  *volumes
	file *os.File
	on   inode
}

func (a *volumes) open(path string) (*volume, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}

	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}

	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s is not a regular file", path), f.Close())
	}

	return &volume{all: a, file: f, on: inode{stat.Dev, stat.Ino}}, nil
}

// Size implements [machine.Store].
func (v *volume) Size() int64 {
	info, err := v.file.Stat()
	if err != nil {
		return 0
	}

	return info.Size()
}

// Content implements [machine.Store]: what a system wrote, a copy of it where the volume is a copy, else the file that the
// volume was made from; nil for a blank one.
func (v *volume) Content() machine.Content {
	head := make([]byte, headSize)

	n, err := v.file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}

	head = head[:n]
	text, stamped := bytes.CutPrefix(head, []byte(ticket))

	if !stamped {
		if len(bytes.Trim(head, "\x00")) == 0 {
			return nil
		}

		return &machine.File{Head: head}
	}

	number, _, _ := strings.Cut(string(text), "\n")

	v.all.mu.Lock()
	found, known := v.all.written[number]
	v.all.mu.Unlock()

	switch {
	case !known: // of another run
		return nil
	case found.on == v.on:
		return found.content
	}

	content := found.content.CloneContent()
	v.Write(content)

	return content
}

// Write implements [machine.Store].
func (v *volume) Write(c machine.Content) {
	head := make([]byte, headSize)

	if f, file := c.(*machine.File); file {
		copy(head, f.Head)
	} else if c != nil {
		number := uuid.NewString()
		copy(head, ticket+number+"\n")

		v.all.mu.Lock()
		if v.all.written == nil {
			v.all.written = map[string]written{}
		}

		v.all.written[number] = written{on: v.on, content: c}
		v.all.mu.Unlock()
	}

	// A volume that is gone takes its VM along.
	_, _ = v.file.WriteAt(head, 0)
}

// readHead is the beginning of a file.
func readHead(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	head := make([]byte, headSize)
	n, err := io.ReadFull(f, head)

	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = nil
	}

	return head[:n], err
}
