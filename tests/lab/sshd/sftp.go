package sshd

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"talos-proxmox/tests/lab/journal"
)

// tee writes a file, which root may, and who has sudo.
func (p *process) tee() int {
	if len(p.args) != 2 || strings.HasPrefix(p.args[1], "-") {
		return p.unknown("tee")
	}

	path := p.args[1]

	p.server.touch()

	if f := p.server.journal.Enter(journal.SSH, p.server.host, "tee "+path); f != nil && f.Kind != journal.Interfere {
		fmt.Fprintln(p.errs, f.Message)

		return 1
	}

	text, err := io.ReadAll(p.in)

	switch {
	case err != nil:
		return 1
	case !p.root:
		fmt.Fprintf(p.errs, "tee: %s: Permission denied\n", path)

		return 1
	}

	if err := p.server.world.WriteFile(p.server.host, path, string(text)); err != nil {
		fmt.Fprintf(p.errs, "tee: %v\n", err)

		return 1
	}

	_, _ = p.out.Write(text)

	return 0
}

// sftp shows the files that have been written, and changes only who may read them: all of them are root's.
func (s *Server) sftp(c ssh.Channel, root bool) {
	face := &readOnly{s, root}

	server := sftp.NewRequestServer(c, sftp.Handlers{FileGet: face, FilePut: face, FileCmd: face, FileList: face})
	_ = server.Serve()
	_ = server.Close()
}

// readOnly is a file system that can be read. Root may change the modes of files.
type readOnly struct {
	server *Server
	root   bool
}

// Fileread implements sftp.FileReader.
func (f *readOnly) Fileread(r *sftp.Request) (io.ReaderAt, error) {
	text, there := f.server.world.ReadFile(f.server.host, r.Filepath)
	if !there {
		return nil, os.ErrNotExist
	}

	return strings.NewReader(text), nil
}

// Filewrite implements sftp.FileWriter.
func (f *readOnly) Filewrite(r *sftp.Request) (io.WriterAt, error) { return nil, f.refuse(r) }

// Filecmd implements sftp.FileCmder.
func (f *readOnly) Filecmd(r *sftp.Request) error {
	switch {
	case r.Method != "Setstat" || r.AttrFlags() != (sftp.FileAttrFlags{Permissions: true}):
		return f.refuse(r)
	case !f.root:
		return os.ErrPermission
	default:
		return f.server.world.ChangeMode(f.server.host, r.Filepath, r.Attributes().FileMode())
	}
}

// Filelist implements sftp.FileLister.
func (f *readOnly) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	if r.Method != "Stat" && r.Method != "Lstat" {
		return nil, f.refuse(r)
	}

	text, there := f.server.world.ReadFile(f.server.host, r.Filepath)
	if !there {
		return nil, os.ErrNotExist
	}

	return one{info{r.Filepath, int64(len(text)), f.server.world.Mode(f.server.host, r.Filepath)}}, nil
}

func (f *readOnly) refuse(r *sftp.Request) error {
	f.server.journal.Refused(journal.SSH, f.server.host, "sftp "+r.Method+" "+r.Filepath,
		"the lab's hosts let files be looked at only")

	return sftp.ErrSSHFxOpUnsupported
}

// one is a list of one file.
type one struct{ os.FileInfo }

// ListAt implements sftp.ListerAt.
func (o one) ListAt(into []os.FileInfo, offset int64) (int, error) {
	if offset > 0 || len(into) == 0 {
		return 0, io.EOF
	}

	into[0] = o.FileInfo

	return 1, io.EOF
}

type info struct {
	name string
	size int64
	mode os.FileMode
}

func (i info) Name() string       { return i.name[strings.LastIndex(i.name, "/")+1:] }
func (i info) Size() int64        { return i.size }
func (i info) Mode() os.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return false }
func (i info) Sys() any           { return nil }
